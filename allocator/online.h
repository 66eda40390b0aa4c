// The cheapest strategy: what a memory allocator does at run time, without looking ahead.
//
// Buffers come in order of birth and go in order of death; each takes the smallest hole that it
// finds, else new memory at the top. Linear, and it always succeeds, so it is the first of the
// portfolio and alone what large graphs pay for. Good where lifetimes are nested like a stack's,
// and no better than first come, first served where they are not.
#pragma once

#include "allocator/problem.h"

namespace tandem::planning {

Offsets PlanOnline(const Problem& problem);

}  // namespace tandem::planning
