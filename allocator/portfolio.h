// The strategies, and the loop over them that keeps the best plan.
//
//  online       Like a memory allocator at run time: no looking ahead. Linear.
//  valley-K     Bottom up: each valley of the skyline gets the first by key K of what fits.
//  first-fit-K  In order of key K, each at the lowest offset that is free all its life.
//  core         What is live near the peak is planned first and alone, by the strategies above;
//               the rest fits around it, larger first. Peaks are short in real graphs, so the
//               core is small, and a part of the whole's freedom is enough for it.
//  search       Complete search for ever lower heights, from the lower bound.
//
// No single rule is good on all graphs, each costs about n log n, and the lower bound tells when
// to stop; so trying several is both cheap and safe.
#pragma once

#include <span>
#include <string_view>

#include "allocator/budget.h"
#include "allocator/problem.h"

namespace tandem::planning {

struct Found {
  Offsets offsets;
  Units height = 0;
  std::string_view strategy;
};

std::span<const std::string_view> Names();  // Cheapest first.

// Tries the strategies in order until the lower bound is reached or the budget is used up. The
// first one always runs.
Found PlanByAll(const Problem& problem, Budget budget);

// One strategy alone. `core` and `search` improve on the plan of the first strategy; where they
// find nothing lower, that plan stands with its own name. `index` is into Names().
Found PlanByOne(const Problem& problem, size_t index, Budget search_budget);

}  // namespace tandem::planning
