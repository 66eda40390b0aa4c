// The planning problem as the strategies see it: only lifetimes that hold bytes, in order of
// birth, with sizes in units of the alignment. Neighbours in time are neighbours in memory.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "allocator/planner.h"

namespace tandem::planning {

using Units = int64_t;               // Bytes / alignment.
using BufferIndex = int32_t;         // Into Problem::buffers.
using Offsets = std::vector<Units>;  // Parallel to Problem::buffers; see Problem::chunk.
using Order = std::vector<BufferIndex>;

inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Buffer {
  Position begin = 0;  // begin < end.
  Position end = 0;
  Units size = 0;  // Above zero.
};

struct Problem {
  std::vector<Buffer> buffers;  // By begin, then as given.
  Order deaths;                 // All buffers, by end.
  Units lower_bound = 0;        // Largest sum of sizes live at once.

  // Nothing may straddle a multiple of this. Offsets count through all chunks: an offset o lies
  // in chunk o / chunk. kUnlimited if the largest buffer can not matter.
  Units chunk = kUnlimited;
};

// Fills `deaths` and `lower_bound` from `buffers`.
void Complete(Problem* problem);

// Sum of the heights of all chunks.
Units Height(const Problem& problem, const Offsets& offsets);

// The least offset, at or above `offset`, at which `size` units do not straddle chunks.
inline Units OutOfStraddle(Units offset, Units size, Units chunk) {
  if (chunk == kUnlimited) return offset;
  const Units within = offset % chunk;
  return within + size <= chunk ? offset : offset - within + chunk;
}

}  // namespace tandem::planning
