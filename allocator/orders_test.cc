#include "allocator/orders.h"

#include <gtest/gtest.h>

namespace tandem::planning {
namespace {

TEST(OrdersTest, EachKeyRanksByWhatItNames) {
  Problem problem;
  problem.buffers = {{0, 2, 4}, {1, 9, 1}, {4, 5, 7}, {4, 6, 5}, {8, 9, 4}};
  Complete(&problem);
  const Timeline timeline = BuildTimeline(problem);
  const auto order = [&](Key key) { return OrderBy(key, problem, timeline); };
  EXPECT_EQ(order(Key::kBirth), (Order{0, 1, 2, 3, 4}));
  EXPECT_EQ(order(Key::kSize), (Order{2, 3, 0, 4, 1}));
  EXPECT_EQ(order(Key::kDuration).front(), 1);
  EXPECT_EQ(order(Key::kArea), (Order{3, 0, 1, 2, 4}));
  // The peak is at 4, where 1, 2 and 3 are live.
  EXPECT_EQ(order(Key::kBreadth), (Order{2, 3, 1, 0, 4}));
}

}  // namespace
}  // namespace tandem::planning
