#include "allocator/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "allocator/testing_problems.h"

namespace tandem {
namespace {

// Three buffers in two chunks of at most 128 bytes.
const std::vector<Lifetime> kLifetimes = {{0, 4, 60}, {2, 6, 64}, {3, 5, 100}, {4, 9, 30}};
const OffsetLimits kLimits = {.alignment = 32, .largest_buffer = 128};

OffsetPlan GoodPlan() {
  return {.offsets = {0, 64, 0, 0},
          .chunks = {0, 0, 1, 0},
          .chunk_bytes = {128, 128},
          .height = 256,
          .lower_bound = 256,
          .strategy = "by hand"};
}

std::string Complaint(const OffsetPlan& plan, const OffsetLimits& limits = kLimits) {
  const Result<void> valid = ValidateOffsets(kLifetimes, limits, plan);
  if (valid) return "";
  EXPECT_EQ(valid.error().code, ErrorCode::kInternal);
  return valid.error().message;
}

std::string ComplaintAfter(const std::function<void(OffsetPlan&)>& spoil) {
  OffsetPlan plan = GoodPlan();
  spoil(plan);
  return Complaint(plan);
}

TEST(ValidateTest, AcceptsAGoodPlan) { EXPECT_EQ(Complaint(GoodPlan()), ""); }

TEST(ValidateTest, LowerBoundIsTheLargestAlignedSumLiveAtOnce) {
  EXPECT_EQ(LowerBound(kLifetimes, 1), 60 + 64 + 100);
  EXPECT_EQ(LowerBound(kLifetimes, 32), 64 + 64 + 128);
  EXPECT_EQ(LowerBound({}, 1), 0);
  EXPECT_EQ(LowerBound(std::vector<Lifetime>{{3, 3, 9}, {5, 2, 9}}, 1), 0);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(LowerBound(std::vector<Lifetime>{{0, 2, kMost}, {0, 2, kMost}}, 1), kMost);
}

TEST(ValidateTest, RejectsWrongCounts) {
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.offsets.pop_back(); }),
            "3 offsets and 4 chunks for 4 lifetimes");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.chunks.push_back(0); }),
            "4 offsets and 5 chunks for 4 lifetimes");
}

TEST(ValidateTest, RejectsOverlap) {
  // Both ways round: the newcomer from below, and from above.
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) {
              p.offsets[1] = 32;
              p.chunk_bytes[0] = 96;
              p.height = 224;
            }),
            "buffers 0 and 1 are live at 2 and share bytes of chunk 0");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) {
              p.offsets = {64, 32, 0, 0};
            }),
            "buffers 0 and 1 are live at 2 and share bytes of chunk 0");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) {
              p.offsets[1] = 0;
              p.chunk_bytes[0] = 64;
              p.height = 192;
            }),
            "buffers 0 and 1 are live at 2 and share bytes of chunk 0");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.offsets[3] = 64; }),
            "buffers 1 and 3 are live at 4 and share bytes of chunk 0");
}

TEST(ValidateTest, RejectsOffsets) {
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.offsets[3] = -32; }), "buffer 3 has offset -32");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.offsets[3] = 16; }),
            "buffer 3: offset 16 is not aligned to 32");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.offsets[1] = 96; }),
            "buffer 1: 64 bytes at offset 96 pass the end of chunk 0 at 128");
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 32 * 32;
  EXPECT_NE(ComplaintAfter([](OffsetPlan& p) { p.offsets[1] = kHuge; }), "");
}

TEST(ValidateTest, RejectsChunks) {
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.chunks[2] = 2; }),
            "buffer 2 lies in chunk 2 of 2");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.chunks[2] = -1; }),
            "buffer 2 lies in chunk -1 of 2");
  EXPECT_EQ(Complaint(GoodPlan(), {.alignment = 32, .largest_buffer = 127}),
            "chunk 0 has 128 bytes, more than the largest buffer of 127");
}

TEST(ValidateTest, RejectsHeights) {
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.chunk_bytes[1] = 100; }),
            "chunk 1 has 100 bytes, but what lies in it ends at 128");
  EXPECT_EQ(
      ComplaintAfter([](OffsetPlan& p) { p.chunk_bytes.push_back(0), p.chunk_bytes[0] = 160; }),
      "chunk 0 has 160 bytes, more than the largest buffer of 128");
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.height = 224; }),
            "the height is 224, but the chunks add up to 256");
}

TEST(ValidateTest, RejectsHeightsThatNothingReaches) {
  OffsetPlan plan = GoodPlan();
  plan.chunk_bytes[0] = 160;
  plan.height = 288;
  EXPECT_EQ(Complaint(plan, {.alignment = 32, .largest_buffer = 1024}),
            "chunk 0 has 160 bytes, but what lies in it ends at 128");
}

TEST(ValidateTest, RejectsLowerBounds) {
  EXPECT_EQ(ComplaintAfter([](OffsetPlan& p) { p.lower_bound = 224; }),
            "the lower bound is 256, not 224");
}

TEST(ValidateTest, FindsEveryCollisionThatAPairwiseCheckFinds) {
  std::mt19937_64 random(6);
  int collisions = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const auto lifetimes = testing_problems::Scattered(random, 6, 12, 6);
    Result<OffsetPlan> plan = PlanOffsets(lifetimes);
    ASSERT_TRUE(plan);
    for (size_t i = 0; i < lifetimes.size(); ++i)
      if (random() % 4 == 0 && plan->height >= lifetimes[i].bytes)
        plan->offsets[i] = static_cast<Offset>(
            random() % static_cast<uint64_t>(plan->height - lifetimes[i].bytes + 1));
    bool collides = false;
    int64_t top = 0;
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      const Lifetime& a = lifetimes[i];
      if (a.bytes == 0 || a.begin >= a.end) continue;
      top = std::max(top, plan->offsets[i] + a.bytes);
      for (size_t k = 0; k < i; ++k) {
        const Lifetime& b = lifetimes[k];
        collides |= b.bytes > 0 && b.begin < b.end && a.begin < b.end && b.begin < a.end &&
                    plan->offsets[i] < plan->offsets[k] + b.bytes &&
                    plan->offsets[k] < plan->offsets[i] + a.bytes;
      }
    }
    if (top != plan->height) continue;
    collisions += collides;
    EXPECT_EQ(!ValidateOffsets(lifetimes, {}, *plan), collides) << "trial " << trial;
  }
  EXPECT_GT(collisions, 300);
}

}  // namespace
}  // namespace tandem
