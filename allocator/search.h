// Complete search for a plan within a given capacity.
//
// Memory is filled from the bottom up. Each section has a floor below which all is decided. The
// search picks a valley of the floors and in it one section, and branches over which buffer is
// the lowest undecided one of this section: one that can rest on the floor, or none of these, in
// which case the floor rises to the next height at which a buffer can rest. The branches exclude
// each other, so no plan is visited twice for the order in which distant buffers were placed. A
// section whose floor plus undecided bytes passes the capacity closes the branch.
//
// Rejected: branching over (buffer, offset) pairs visits equal plans in many orders. A memory of
// failed states, an order among equal buffers, and placing what spans all first were measured on
// the tight instances of the tests and gained nothing.
#pragma once

#include "allocator/budget.h"
#include "allocator/timeline.h"

namespace tandem::planning {

struct SearchOptions {
  Units capacity = 0;
  // Each technique can be switched off to measure what it is worth.
  bool infer_floors = true;    // Where no undecided buffer can start at the floor, raise it.
  bool decompose = true;       // Solve parts of time that no undecided buffer joins apart.
  bool restart = true;         // Failure limits (Luby's sequence) over jittered orders.
  bool weigh_failures = true;  // In half of the runs, prefer sections that failed often.
  uint64_t seed = 1;
};

enum class SearchOutcome {
  kFound,
  kInfeasible,  // Proven: no plan is within the capacity.
  kStopped,     // The budget was used up first.
};

struct SearchResult {
  SearchOutcome outcome = SearchOutcome::kStopped;
  Offsets offsets;  // Only where found.
};

// Whether the problem is small enough to be searched: memory is the sum of all spans.
bool CanSearch(const Timeline& timeline);

// `problem` is taken as one chunk.
SearchResult SearchWithin(const Problem& problem, const Timeline& timeline,
                          const SearchOptions& options, Budget* budget);

}  // namespace tandem::planning
