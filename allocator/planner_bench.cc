// Time and height of each strategy.
//
//   bazel run //allocator:planner_bench -- --benchmark_filter=Layered
//
// `ns` is the time for one buffer, `ratio` the height over the lower bound. With
// TANDEM_SHARED_DATA set, the instances there come after the random problems.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <random>
#include <string>

#include "allocator/planner.h"
#include "allocator/testing_instances.h"
#include "allocator/testing_problems.h"
#include "allocator/validate.h"

namespace tandem {
namespace {

constexpr OffsetLimits kLimits = {.alignment = 64};

void Plan(benchmark::State& state, const std::string& strategy,
          const std::vector<Lifetime>& lifetimes) {
  double ratio = 0;
  for (auto _ : state) {
    const Result<OffsetPlan> plan = strategy == "portfolio"
                                        ? PlanOffsets(lifetimes, kLimits)
                                        : PlanOffsetsWith(strategy, lifetimes, kLimits);
    if (!plan) {
      state.SkipWithError(plan.error().message.c_str());
      return;
    }
    ratio = static_cast<double>(plan->height) / static_cast<double>(plan->lower_bound);
  }
  state.counters["ratio"] = ratio;
  // In seconds, printed with a unit: 80n is 80 nanoseconds.
  state.counters["a_buffer"] = benchmark::Counter(
      static_cast<double>(lifetimes.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void Validate(benchmark::State& state, const std::vector<Lifetime>& lifetimes) {
  const Result<OffsetPlan> plan = PlanOffsetsWith(StrategyNames().front(), lifetimes, kLimits);
  for (auto _ : state) benchmark::DoNotOptimize(ValidateOffsets(lifetimes, kLimits, *plan));
  state.counters["a_buffer"] = benchmark::Counter(
      static_cast<double>(lifetimes.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void Register(const std::string& problem, const std::vector<Lifetime>& lifetimes) {
  std::vector<std::string> strategies(StrategyNames().begin(), StrategyNames().end());
  strategies.push_back("portfolio");
  for (const std::string& strategy : strategies)
    benchmark::RegisterBenchmark((problem + "/" + strategy).c_str(), [strategy, lifetimes](
                                                                         benchmark::State& state) {
      Plan(state, strategy, lifetimes);
    })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark((problem + "/validate").c_str(), [lifetimes](
                                                                    benchmark::State& state) {
    Validate(state, lifetimes);
  })->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  std::mt19937_64 random(1);
  for (const int count : {1000, 2000, 64'000})
    Register("Layered" + std::to_string(count), testing_problems::Layered(random, count));
  Register("Guillotine200", testing_problems::Guillotine(random, 200, 1000, 1'000'000));
  const char* data = std::getenv("TANDEM_SHARED_DATA");
  if (data == nullptr) return;
  for (const char* folder : {"/planner/minimalloc", "/planner/traces"})
    for (const auto& instance : testing_instances::ReadFolder(std::string(data) + folder))
      Register(instance.name, instance.lifetimes);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
