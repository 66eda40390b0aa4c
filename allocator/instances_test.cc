// Instances that others published, and lifetimes of real models: how close do plans come?
#include <gtest/gtest.h>

#include <cstdio>

#include "allocator/planner.h"
#include "allocator/testing_instances.h"
#include "allocator/validate.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

using testing_instances::Instance;

std::vector<Instance> InstancesOrNone(const char* folder) {
  const auto path = testing_data::SharedData(folder);
  return path ? testing_instances::ReadFolder(*path) : std::vector<Instance>();
}

// Plans, checks and prints; returns the ratio to the lower bound.
double RatioOf(const Instance& instance, const OffsetLimits& limits) {
  const Result<OffsetPlan> plan = PlanOffsets(instance.lifetimes, limits);
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return 0;
  const Result<void> valid = ValidateOffsets(instance.lifetimes, limits, *plan);
  EXPECT_TRUE(valid) << instance.name << ": " << valid.error().message;
  const double ratio = static_cast<double>(plan->height) / static_cast<double>(plan->lower_bound);
  std::printf("%-24s %6zu lifetimes  %.5f of the bound  by %.*s\n", instance.name.c_str(),
              instance.lifetimes.size(), ratio, static_cast<int>(plan->strategy.size()),
              plan->strategy.data());
  return ratio;
}

TEST(InstancesTest, RealModelsComeWithinOnePercentOfTheBound) {
  const std::vector<Instance> instances = InstancesOrNone("planner/traces");
  if (instances.empty()) GTEST_SKIP() << "no planner/traces: set TANDEM_SHARED_DATA";
  for (const Instance& instance : instances) {
    EXPECT_LE(RatioOf(instance, {}), 1.01) << instance.name;
    EXPECT_LE(RatioOf(instance, {.alignment = 256}), 1.01) << instance.name << ", aligned";
  }
}

TEST(InstancesTest, TightInstancesAreHalfSolvedWithoutAskingForTime) {
  const std::vector<Instance> instances = InstancesOrNone("planner/minimalloc");
  if (instances.empty()) GTEST_SKIP() << "no planner/minimalloc: set TANDEM_SHARED_DATA";
  size_t within = 0;
  for (const Instance& instance : instances) {
    EXPECT_LE(RatioOf(instance, {}), 1.2) << instance.name;
    within += PlanOffsets(instance.lifetimes)->height <= instance.capacity;
  }
  EXPECT_GE(2 * within, instances.size());
}

TEST(InstancesTest, TightInstancesAreSolvedWithinTheirCapacity) {
  const std::vector<Instance> instances = InstancesOrNone("planner/minimalloc");
  if (instances.empty()) GTEST_SKIP() << "no planner/minimalloc: set TANDEM_SHARED_DATA";
  for (const Instance& instance : instances) {
    ASSERT_GT(instance.capacity, 0) << instance.name;
    const double ratio = RatioOf(instance, {.search_seconds = 2});
    const int64_t bound = LowerBound(instance.lifetimes, 1);
    EXPECT_LE(ratio * static_cast<double>(bound), static_cast<double>(instance.capacity))
        << instance.name;
  }
}

}  // namespace
}  // namespace tandem
