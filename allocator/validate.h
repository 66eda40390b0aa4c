// Independent check of a plan: shares no code with the planners.
#pragma once

#include "allocator/planner.h"

namespace tandem {

// Largest sum of aligned sizes live at one position.
int64_t LowerBound(std::span<const Lifetime> lifetimes, int64_t alignment);

// Proves that no two buffers that are live at once share a byte, that offsets are aligned, that
// nothing passes the end of its chunk or the largest buffer, and that height and lower bound are
// what they say. The error names the first violation. O(n log n).
Result<void> ValidateOffsets(std::span<const Lifetime> lifetimes, const OffsetLimits& limits,
                             const OffsetPlan& plan);

}  // namespace tandem
