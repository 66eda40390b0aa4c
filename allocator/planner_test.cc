#include "allocator/planner.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "allocator/testing_problems.h"
#include "allocator/validate.h"

namespace tandem {
namespace {

using testing_problems::Layered;
using testing_problems::Scattered;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

OffsetPlan Planned(const std::vector<Lifetime>& lifetimes, const OffsetLimits& limits = {}) {
  const Result<OffsetPlan> plan = PlanOffsets(lifetimes, limits);
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return {};
  const Result<void> valid = ValidateOffsets(lifetimes, limits, *plan);
  EXPECT_TRUE(valid) << valid.error().message;
  return *plan;
}

Error PlanError(const std::vector<Lifetime>& lifetimes, const OffsetLimits& limits = {}) {
  const Result<OffsetPlan> plan = PlanOffsets(lifetimes, limits);
  EXPECT_FALSE(plan);
  return plan ? Error{} : plan.error();
}

TEST(PlannerTest, NothingNeedsNothing) {
  const OffsetPlan plan = Planned({});
  EXPECT_EQ(plan.height, 0);
  EXPECT_EQ(plan.lower_bound, 0);
  EXPECT_TRUE(plan.chunk_bytes.empty());
}

TEST(PlannerTest, WhatHoldsNoBytesNeedsNothing) {
  const OffsetPlan plan = Planned({{0, 10, 0}, {5, 5, 100}, {7, 3, 100}, {0, 4, 0}});
  EXPECT_EQ(plan.offsets.size(), 4u);
  EXPECT_EQ(plan.height, 0);
  EXPECT_TRUE(plan.chunk_bytes.empty());
}

TEST(PlannerTest, HalfOpenLifetimesShareWhenOneEndsAsTheOtherBegins) {
  EXPECT_EQ(Planned({{0, 5, 100}, {5, 9, 100}}).height, 100);
  EXPECT_EQ(Planned({{0, 6, 100}, {5, 9, 100}}).height, 200);
  const std::vector<Lifetime> chain = {{0, 2, 9}, {2, 3, 9}, {3, 7, 9}, {7, 8, 9}};
  for (const std::string_view name : StrategyNames())
    EXPECT_EQ(PlanOffsetsWith(name, chain)->height, 9) << name;
}

TEST(PlannerTest, PositionsMayBeAnywhere) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(Planned({{kLeast, -1, 3}, {-1, kMost, 4}, {kLeast, kMost, 5}, {0, 1, 6}}).height, 15);
}

TEST(PlannerTest, OffsetsAreAlignedAndHeightCountsThePadding) {
  const OffsetPlan plan = Planned({{0, 3, 1}, {0, 3, 65}, {1, 3, 64}}, {.alignment = 64});
  EXPECT_EQ(plan.lower_bound, 64 + 128 + 64);
  EXPECT_EQ(plan.height, 256);
}

TEST(PlannerTest, ReachesTheBoundWhereAnAllocatorDoesNot) {
  // In program order, the second and the third leave a hole that the last can not use.
  const std::vector<Lifetime> lifetimes = {{0, 2, 2}, {0, 4, 1}, {1, 3, 2}, {2, 4, 3}, {3, 4, 2}};
  const OffsetPlan plan = Planned(lifetimes);
  EXPECT_EQ(plan.height, plan.lower_bound);
}

TEST(PlannerTest, EveryStrategyIsValidOnRandomProblems) {
  ASSERT_GE(StrategyNames().size(), 3u);
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 1500; ++trial) {
    const auto lifetimes = Scattered(random, static_cast<int>(random() % 60),
                                     1 + static_cast<Position>(random() % 40), 200);
    OffsetLimits limits;
    limits.alignment = int64_t{1} << (random() % 6);
    if (random() % 2 == 0) limits.largest_buffer = 224 + static_cast<int64_t>(random() % 400);
    for (const std::string_view name : StrategyNames()) {
      const Result<OffsetPlan> plan = PlanOffsetsWith(name, lifetimes, limits);
      ASSERT_TRUE(plan) << name << ", trial " << trial << ": " << plan.error().message;
      const Result<void> valid = ValidateOffsets(lifetimes, limits, *plan);
      ASSERT_TRUE(valid) << name << ", trial " << trial << ": " << valid.error().message;
      EXPECT_TRUE(plan->strategy == name || name == "search" || name == "core");
    }
  }
}

TEST(PlannerTest, EveryStrategyIsValidOnALargeProblem) {
  std::mt19937_64 random(2);
  const std::vector<Lifetime> lifetimes = Layered(random, 3000);
  for (const int64_t largest : {kMost, int64_t{64} * 4096}) {
    const OffsetLimits limits = {.alignment = 256, .largest_buffer = largest};
    for (const std::string_view name : StrategyNames()) {
      const Result<OffsetPlan> plan = PlanOffsetsWith(name, lifetimes, limits);
      ASSERT_TRUE(plan) << name << ": " << plan.error().message;
      const Result<void> valid = ValidateOffsets(lifetimes, limits, *plan);
      ASSERT_TRUE(valid) << name << ": " << valid.error().message;
    }
  }
}

TEST(PlannerTest, ThePortfolioIsNoWorseThanItsFirstStrategies) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<Lifetime> lifetimes = Layered(random, 400);
    const OffsetPlan plan = Planned(lifetimes);
    for (const std::string_view name : StrategyNames().first(3))
      EXPECT_LE(plan.height, PlanOffsetsWith(name, lifetimes)->height) << name;
  }
}

TEST(PlannerTest, PerfectPackingsAreFound) {
  std::mt19937_64 random(6);
  for (const int count : {5, 20, 50, 100, 200}) {
    const auto lifetimes = testing_problems::Guillotine(random, count, 5 * count, 4096);
    const OffsetPlan plan = Planned(lifetimes);
    EXPECT_EQ(plan.lower_bound, 4096);
    EXPECT_EQ(plan.height, 4096) << count << " pieces";
  }
}

TEST(PlannerTest, EqualInputGivesEqualPlans) {
  std::mt19937_64 random(4);
  const std::vector<Lifetime> lifetimes = Layered(random, 900);
  const OffsetPlan once = Planned(lifetimes), again = Planned(lifetimes);
  EXPECT_EQ(once.offsets, again.offsets);
  EXPECT_EQ(once.chunks, again.chunks);
  EXPECT_EQ(once.strategy, again.strategy);
}

TEST(PlannerTest, NothingStraddlesTheLargestBuffer) {
  const OffsetLimits limits = {.largest_buffer = 4096};
  const OffsetPlan one = Planned({{0, 2, 4000}, {0, 2, 1000}}, limits);
  EXPECT_EQ(one.chunk_bytes.size(), 2u);
  EXPECT_EQ(one.height, 5000);
  const OffsetPlan two = Planned({{0, 2, 2400}, {0, 2, 2400}}, limits);
  EXPECT_EQ(two.chunk_bytes, (std::vector<int64_t>{2400, 2400}));
}

TEST(PlannerTest, OneChunkIsEnoughWhereTheSumIsLargeButThePeakIsNot) {
  std::vector<Lifetime> lifetimes;
  for (int i = 0; i < 100; ++i) lifetimes.push_back({i, i + 2, 2000});
  EXPECT_EQ(Planned(lifetimes, {.largest_buffer = 4096}).chunk_bytes, std::vector<int64_t>{4000});
}

TEST(PlannerTest, ManyChunks) {
  std::vector<Lifetime> lifetimes;
  for (int i = 0; i < 300; ++i) lifetimes.push_back({0, 1, 60});
  const OffsetPlan plan = Planned(lifetimes, {.largest_buffer = 100});
  EXPECT_EQ(plan.chunk_bytes.size(), 300u);
  EXPECT_EQ(plan.height, plan.lower_bound);
}

TEST(PlannerTest, AlignmentWithinAnOddLargestBuffer) {
  // Only one unit of 64 fits into a buffer of 100 bytes, whatever its last 36 could hold.
  const OffsetLimits limits = {.alignment = 64, .largest_buffer = 100};
  EXPECT_EQ(Planned({{0, 1, 60}, {0, 1, 60}}, limits).chunk_bytes.size(), 2u);
  const Error error = PlanError({{0, 1, 60}, {0, 1, 90}}, limits);
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_NE(error.message.find("lifetime 1 needs 90 bytes"), std::string::npos) << error.message;
}

TEST(PlannerTest, EverySecondOfManyInputsIsFreedEarly) {
  std::vector<Lifetime> lifetimes;
  for (int i = 0; i < 1400; ++i) lifetimes.push_back({0, i % 2 == 0 ? 1 : 1400, 64 + i % 3});
  for (int i = 1; i < 1400; ++i) lifetimes.push_back({i, i + 1, 700});
  const OffsetPlan plan = Planned(lifetimes, {.alignment = 4});
  EXPECT_LE(plan.height, plan.lower_bound * 102 / 100);
}

TEST(PlannerTest, MoreTimeIsNoWorse) {
  std::mt19937_64 random(5);
  const auto lifetimes = testing_problems::Guillotine(random, 60, 200, 1000);
  EXPECT_LE(Planned(lifetimes, {.search_seconds = 0.2}).height, Planned(lifetimes).height);
}

TEST(PlannerTest, ErrorsNameTheLifetime) {
  const Error negative = PlanError({{0, 1, 5}, {0, 1, -7}});
  EXPECT_EQ(negative.code, ErrorCode::kInvalid);
  EXPECT_EQ(negative.message, "lifetime 1 has -7 bytes");
  const Error large = PlanError({{0, 1, 5}, {0, 1, 4097}}, {.largest_buffer = 4096});
  EXPECT_EQ(large.code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(large.message, "lifetime 1 needs 4097 bytes, but the largest buffer is 4096 bytes");
  EXPECT_EQ(PlanError({{0, 1, 1}}, {.largest_buffer = 0}).code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(PlanError({{0, 1, 1}}, {.largest_buffer = -1}).code, ErrorCode::kOutOfMemory);
}

TEST(PlannerTest, WhatIsNeverLiveMayBeOfAnySize) {
  EXPECT_EQ(Planned({{3, 3, kMost}, {0, 1, 8}}, {.largest_buffer = 16}).height, 8);
}

TEST(PlannerTest, BadAlignments) {
  for (const int64_t alignment : {int64_t{0}, int64_t{-8}, int64_t{3}, int64_t{96}, kMost}) {
    const Error error = PlanError({{0, 1, 5}}, {.alignment = alignment});
    EXPECT_EQ(error.code, ErrorCode::kInvalid);
    EXPECT_NE(error.message.find("power of two"), std::string::npos);
  }
}

TEST(PlannerTest, SumsThatOverflowAreErrors) {
  EXPECT_EQ(PlanError({{0, 1, kMost}}).code, ErrorCode::kInvalid);
  EXPECT_EQ(PlanError({{0, 1, kMost / 2}, {0, 1, kMost / 2}, {0, 1, 2}}).code, ErrorCode::kInvalid);
  // Though never live at once: the planners add up.
  EXPECT_EQ(PlanError({{0, 1, kMost / 4}, {1, 2, kMost / 4}}).code, ErrorCode::kInvalid);
  for (const int64_t bytes : {int64_t{1}, kMost})
    EXPECT_EQ(PlanError({{0, 1, bytes}, {0, 1, bytes}}, {.alignment = int64_t{1} << 62}).code,
              ErrorCode::kInvalid);
  EXPECT_EQ(Planned({{0, 1, kMost / 16}, {0, 1, kMost / 16}}).height, kMost / 16 * 2);
}

TEST(PlannerTest, UnknownStrategies) {
  const Result<OffsetPlan> plan = PlanOffsetsWith("best", std::vector<Lifetime>{{0, 1, 5}});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plan.error().message, "no planning strategy is named 'best'");
}

}  // namespace
}  // namespace tandem
