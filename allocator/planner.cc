#include "allocator/planner.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "allocator/budget.h"
#include "allocator/portfolio.h"
#include "allocator/problem.h"
#include "allocator/time_order.h"

namespace tandem {
namespace {

using planning::kUnlimited;
using planning::Problem;
using planning::Units;

// Planners add up to twice the sum of all sizes (chunks left half empty).
constexpr int64_t kLargestSum = std::numeric_limits<int64_t>::max() / 4;

struct Normalized {
  Problem problem;
  std::vector<int32_t> source;  // Parallel to problem.buffers: index of the lifetime.
};

bool HoldsBytes(const Lifetime& lifetime) {
  return lifetime.bytes > 0 && lifetime.begin < lifetime.end;
}

Result<void> CheckLifetimes(std::span<const Lifetime> lifetimes, const OffsetLimits& limits) {
  if (limits.alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(limits.alignment)))
    return Fail(ErrorCode::kInvalid, "alignment {} is not a power of two", limits.alignment);
  if (lifetimes.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 2)
    return Fail(ErrorCode::kInvalid, "{} lifetimes are more than one plan can hold",
                lifetimes.size());
  int64_t sum = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& lifetime = lifetimes[i];
    if (lifetime.bytes < 0)
      return Fail(ErrorCode::kInvalid, "lifetime {} has {} bytes", i, lifetime.bytes);
    if (!HoldsBytes(lifetime)) continue;
    if (lifetime.bytes > limits.largest_buffer)
      return Fail(ErrorCode::kOutOfMemory,
                  "lifetime {} needs {} bytes, but the largest buffer is {} bytes", i,
                  lifetime.bytes, limits.largest_buffer);
    if (lifetime.bytes > kLargestSum - limits.alignment ||
        sum > kLargestSum - limits.alignment - lifetime.bytes)
      return Fail(ErrorCode::kInvalid, "lifetimes up to {} add up to more than {} bytes", i,
                  kLargestSum);
    sum += (lifetime.bytes + limits.alignment - 1) / limits.alignment * limits.alignment;
  }
  return {};
}

Result<Normalized> Normalize(std::span<const Lifetime> lifetimes, const OffsetLimits& limits) {
  TANDEM_CHECK(CheckLifetimes(lifetimes, limits));
  Normalized result;
  std::vector<int32_t> holding;
  std::vector<Position> begins;
  holding.reserve(lifetimes.size());
  begins.reserve(lifetimes.size());
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (!HoldsBytes(lifetimes[i])) continue;
    holding.push_back(static_cast<int32_t>(i));
    begins.push_back(lifetimes[i].begin);
  }
  const int shift = std::countr_zero(static_cast<uint64_t>(limits.alignment));
  Problem& problem = result.problem;
  problem.buffers.reserve(holding.size());
  result.source.reserve(holding.size());
  Units sum = 0;
  for (const int32_t k : planning::TimeOrder(begins)) {
    const Lifetime& lifetime = lifetimes[holding[k]];
    const Units size = (lifetime.bytes + limits.alignment - 1) >> shift;
    problem.buffers.push_back({lifetime.begin, lifetime.end, size});
    result.source.push_back(holding[k]);
    sum += size;
  }
  // Whole units only: what lies in the last, partial unit of a buffer of odd size is not used.
  const Units chunk = limits.largest_buffer >> shift;
  if (chunk < sum) {
    for (size_t i = 0; i < problem.buffers.size(); ++i)
      if (problem.buffers[i].size > chunk)
        return Fail(ErrorCode::kOutOfMemory,
                    "lifetime {} needs {} bytes, aligned to {}, but the largest buffer is {} bytes",
                    result.source[i], lifetimes[result.source[i]].bytes, limits.alignment,
                    limits.largest_buffer);
    problem.chunk = chunk;
  }
  planning::Complete(&problem);
  return result;
}

OffsetPlan ToPlan(const Normalized& normalized, size_t lifetimes, const OffsetLimits& limits,
                  const planning::Found& found) {
  const Problem& problem = normalized.problem;
  OffsetPlan plan;
  plan.offsets.assign(lifetimes, 0);
  plan.chunks.assign(lifetimes, 0);
  plan.strategy = found.strategy;
  plan.height = found.height * limits.alignment;
  plan.lower_bound = problem.lower_bound * limits.alignment;
  for (size_t k = 0; k < problem.buffers.size(); ++k) {
    Units offset = found.offsets[k];
    size_t chunk = 0;
    if (problem.chunk != kUnlimited) {
      chunk = static_cast<size_t>(offset / problem.chunk);
      offset %= problem.chunk;
    }
    plan.offsets[normalized.source[k]] = offset * limits.alignment;
    plan.chunks[normalized.source[k]] = static_cast<int32_t>(chunk);
    if (chunk >= plan.chunk_bytes.size()) plan.chunk_bytes.resize(chunk + 1, 0);
    plan.chunk_bytes[chunk] =
        std::max(plan.chunk_bytes[chunk], (offset + problem.buffers[k].size) * limits.alignment);
  }
  return plan;
}

// Steps for all strategies but the first. About ten milliseconds, and for large problems enough to
// fill valleys once or twice.
constexpr int64_t kSteps = 150'000;
constexpr int64_t kStepsPerBuffer = 8;

planning::Budget BudgetOf(const OffsetLimits& limits, const Problem& problem) {
  if (limits.search_seconds > 0) return planning::Budget::Seconds(limits.search_seconds);
  return planning::Budget::Steps(kSteps +
                                 kStepsPerBuffer * static_cast<int64_t>(problem.buffers.size()));
}

}  // namespace

std::span<const std::string_view> StrategyNames() { return planning::Names(); }

Result<OffsetPlan> PlanOffsets(std::span<const Lifetime> lifetimes, const OffsetLimits& limits) {
  TANDEM_ASSIGN(const Normalized normalized, Normalize(lifetimes, limits));
  return ToPlan(normalized, lifetimes.size(), limits,
                planning::PlanByAll(normalized.problem, BudgetOf(limits, normalized.problem)));
}

Result<OffsetPlan> PlanOffsetsWith(std::string_view strategy, std::span<const Lifetime> lifetimes,
                                   const OffsetLimits& limits) {
  const auto names = planning::Names();
  const auto at = std::find(names.begin(), names.end(), strategy);
  if (at == names.end())
    return Fail(ErrorCode::kNotFound, "no planning strategy is named '{}'", strategy);
  TANDEM_ASSIGN(const Normalized normalized, Normalize(lifetimes, limits));
  return ToPlan(normalized, lifetimes.size(), limits,
                planning::PlanByOne(normalized.problem, static_cast<size_t>(at - names.begin()),
                                    BudgetOf(limits, normalized.problem)));
}

}  // namespace tandem
