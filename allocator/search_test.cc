#include "allocator/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "allocator/testing_problems.h"
#include "allocator/validate.h"

namespace tandem::planning {
namespace {

// The smallest kind of problem whose optimum, 6, is above its lower bound, 5.
const std::vector<Lifetime> kGap = {{0, 1, 2}, {0, 2, 3}, {1, 5, 1}, {1, 3, 1},
                                    {2, 5, 2}, {4, 6, 2}, {5, 6, 3}};

// At most seven: anywhere, or near the problem above.
std::vector<Lifetime> Tiny(std::mt19937_64& random) {
  if (random() % 2 == 0)
    return testing_problems::Scattered(random, 1 + static_cast<int>(random() % 7), 9, 6);
  std::vector<Lifetime> lifetimes = kGap;
  const auto scale = 1 + static_cast<int64_t>(random() % 3);
  for (Lifetime& lifetime : lifetimes) lifetime.bytes *= scale;
  for (auto changes = random() % 3; changes > 0; --changes) {
    Lifetime& lifetime = lifetimes[random() % lifetimes.size()];
    (random() % 2 == 0 ? lifetime.begin : lifetime.end) += static_cast<int64_t>(random() % 3) - 1;
    lifetime.bytes = std::max<int64_t>(0, lifetime.bytes + static_cast<int64_t>(random() % 3) - 1);
  }
  std::shuffle(lifetimes.begin(), lifetimes.end(), random);
  return lifetimes;
}

// The least height of all plans: some order, with each buffer at its lowest free offset, gives it.
class Exhaustive {
 public:
  explicit Exhaustive(const std::vector<Lifetime>& lifetimes) {
    for (const Lifetime& lifetime : lifetimes)
      if (lifetime.bytes > 0 && lifetime.begin < lifetime.end) rest_.push_back(lifetime);
    for (const Lifetime& lifetime : rest_) best_ += lifetime.bytes;
    bound_ = LowerBound(lifetimes, 1);
    Try(0);
  }
  int64_t height() const { return best_; }

 private:
  struct Placed {
    Lifetime lifetime;
    int64_t offset;
  };

  int64_t LowestFree(const Lifetime& lifetime) const {
    std::vector<int64_t> candidates = {0};
    for (const Placed& p : placed_) candidates.push_back(p.offset + p.lifetime.bytes);
    std::sort(candidates.begin(), candidates.end());
    for (const int64_t offset : candidates) {
      const bool free = std::none_of(placed_.begin(), placed_.end(), [&](const Placed& p) {
        return p.lifetime.begin < lifetime.end && lifetime.begin < p.lifetime.end &&
               p.offset < offset + lifetime.bytes && offset < p.offset + p.lifetime.bytes;
      });
      if (free) return offset;
    }
    return 0;
  }

  void Try(int64_t height) {
    if (height >= best_ && !rest_.empty()) return;
    if (rest_.empty()) best_ = std::min(best_, height);
    for (size_t i = 0; i < rest_.size() && best_ > bound_; ++i) {
      std::swap(rest_[i], rest_.back());
      const Lifetime lifetime = rest_.back();
      rest_.pop_back();
      const int64_t offset = LowestFree(lifetime);
      placed_.push_back({lifetime, offset});
      Try(std::max(height, offset + lifetime.bytes));
      placed_.pop_back();
      rest_.push_back(lifetime);
      std::swap(rest_[i], rest_.back());
    }
  }

  std::vector<Lifetime> rest_;
  std::vector<Placed> placed_;
  int64_t best_ = 0, bound_ = 0;
};

Problem ProblemOf(const std::vector<Lifetime>& lifetimes) {
  Problem problem;
  for (const Lifetime& lifetime : lifetimes)
    if (lifetime.bytes > 0 && lifetime.begin < lifetime.end)
      problem.buffers.push_back({lifetime.begin, lifetime.end, lifetime.bytes});
  std::stable_sort(problem.buffers.begin(), problem.buffers.end(),
                   [](const Buffer& a, const Buffer& b) { return a.begin < b.begin; });
  Complete(&problem);
  return problem;
}

void ExpectPlanWithin(const Problem& problem, const Offsets& offsets, Units capacity) {
  std::vector<Lifetime> lifetimes;
  for (const Buffer& buffer : problem.buffers)
    lifetimes.push_back({buffer.begin, buffer.end, buffer.size});
  OffsetPlan plan;
  plan.offsets = offsets;
  plan.chunks.assign(offsets.size(), 0);
  plan.height = Height(problem, offsets);
  plan.chunk_bytes.assign(plan.height > 0 ? 1 : 0, plan.height);
  plan.lower_bound = problem.lower_bound;
  const Result<void> valid = ValidateOffsets(lifetimes, {}, plan);
  EXPECT_TRUE(valid) << valid.error().message;
  EXPECT_LE(plan.height, capacity);
}

TEST(SearchTest, StrategiesAndBoundsAgreeWithAllPlansOfTinyProblems) {
  std::mt19937_64 random(7);
  int above_bound = 0, optimal = 0;
  constexpr int kTrials = 6000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::vector<Lifetime> lifetimes = Tiny(random);
    const int64_t optimum = Exhaustive(lifetimes).height();
    const int64_t bound = LowerBound(lifetimes, 1);
    ASSERT_LE(bound, optimum);
    above_bound += optimum > bound;
    for (const std::string_view name : StrategyNames()) {
      const Result<OffsetPlan> plan = PlanOffsetsWith(name, lifetimes);
      ASSERT_TRUE(plan);
      ASSERT_EQ(plan->lower_bound, bound);
      ASSERT_GE(plan->height, optimum) << name << ", trial " << trial;
      optimal += name == "valley-size" && plan->height == optimum;
    }
    // The search is complete, so the portfolio that ends with it finds the optimum.
    ASSERT_EQ(PlanOffsets(lifetimes)->height, optimum) << "trial " << trial;
  }
  std::printf("%d of %d optima above the bound\n", above_bound, kTrials);
  EXPECT_GT(above_bound, kTrials / 20);
  EXPECT_GT(optimal, kTrials * 3 / 4);
}

TEST(SearchTest, TheBoundMayBeOutOfReach) {
  EXPECT_EQ(LowerBound(kGap, 1), 5);
  EXPECT_EQ(Exhaustive(kGap).height(), 6);
  EXPECT_EQ(PlanOffsets(kGap)->height, 6);
}

TEST(SearchTest, FindsExactlyWhatIsFeasibleWithAnyTechniqueOff) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::vector<Lifetime> lifetimes = Tiny(random);
    const Problem problem = ProblemOf(lifetimes);
    if (problem.buffers.empty()) continue;
    const Timeline timeline = BuildTimeline(problem);
    const int64_t optimum = Exhaustive(lifetimes).height();
    for (int techniques = 0; techniques < 16; ++techniques) {
      SearchOptions options;
      options.infer_floors = (techniques & 1) != 0;
      options.decompose = (techniques & 2) != 0;
      options.restart = (techniques & 4) != 0;
      options.weigh_failures = (techniques & 8) != 0;
      options.seed = static_cast<uint64_t>(trial);
      for (options.capacity = optimum - 1; options.capacity <= optimum; ++options.capacity) {
        Budget budget = Budget::Unlimited();
        const SearchResult result = SearchWithin(problem, timeline, options, &budget);
        const bool feasible = options.capacity == optimum;
        ASSERT_EQ(result.outcome, feasible ? SearchOutcome::kFound : SearchOutcome::kInfeasible)
            << "trial " << trial << ", techniques " << techniques;
        if (feasible) ExpectPlanWithin(problem, result.offsets, optimum);
      }
    }
  }
}

TEST(SearchTest, FindsPerfectPackings) {
  std::mt19937_64 random(9);
  for (int trial = 0; trial < 60; ++trial) {
    const int count = 10 + trial;
    const Problem problem = ProblemOf(testing_problems::Guillotine(random, count, 4 * count, 1000));
    ASSERT_EQ(problem.lower_bound, 1000);
    const Timeline timeline = BuildTimeline(problem);
    SearchOptions options;
    options.capacity = 1000;
    Budget budget = Budget::Steps(5'000'000);
    const SearchResult result = SearchWithin(problem, timeline, options, &budget);
    ASSERT_EQ(result.outcome, SearchOutcome::kFound) << count << " pieces";
    ExpectPlanWithin(problem, result.offsets, 1000);
  }
}

TEST(SearchTest, StopsWhenTheBudgetIsUsedUp) {
  std::mt19937_64 random(10);
  const Problem problem = ProblemOf(testing_problems::Guillotine(random, 300, 400, 1'000'000));
  const Timeline timeline = BuildTimeline(problem);
  SearchOptions options;
  options.capacity = problem.lower_bound;
  Budget steps = Budget::Steps(50);
  EXPECT_EQ(SearchWithin(problem, timeline, options, &steps).outcome, SearchOutcome::kStopped);
  Budget seconds = Budget::Seconds(0);
  EXPECT_EQ(SearchWithin(problem, timeline, options, &seconds).outcome, SearchOutcome::kStopped);
}

TEST(SearchTest, BelowTheBoundNothingIsFeasible) {
  const Problem problem = ProblemOf({{0, 2, 5}, {1, 3, 5}});
  SearchOptions options;
  options.capacity = 9;
  Budget budget = Budget::Unlimited();
  EXPECT_EQ(SearchWithin(problem, BuildTimeline(problem), options, &budget).outcome,
            SearchOutcome::kInfeasible);
}

}  // namespace
}  // namespace tandem::planning
