#include "allocator/time_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace tandem::planning {
namespace {

TEST(TimeOrderTest, EqualsAStableSort) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<int64_t> times(random() % 200);
    const auto bits = 1 + random() % 64;
    for (int64_t& time : times) time = static_cast<int64_t>(random() >> (64 - bits)) - 1000;
    std::vector<int32_t> expected(times.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](int32_t a, int32_t b) { return times[a] < times[b]; });
    ASSERT_EQ(TimeOrder(times), expected) << "trial " << trial;
  }
}

TEST(TimeOrderTest, TheWholeRange) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(TimeOrder({kMost, 0, kLeast, -1, kMost}), (std::vector<int32_t>{2, 3, 1, 0, 4}));
}

}  // namespace
}  // namespace tandem::planning
