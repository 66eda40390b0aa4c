// The strategies, and the loop over them that keeps the best plan.
#pragma once

#include <span>
#include <string_view>

#include "allocator/problem.h"

namespace tandem::planning {

struct Found {
  Offsets offsets;
  Units height = 0;
  std::string_view strategy;
};

std::span<const std::string_view> Names();  // Cheapest first.

// Tries the strategies in order until the lower bound is reached or `steps` are used up. The
// first one always runs.
Found PlanByAll(const Problem& problem, int64_t steps);

// One strategy alone, without a limit on its work. `index` is into Names().
Found PlanByOne(const Problem& problem, size_t index);

}  // namespace tandem::planning
