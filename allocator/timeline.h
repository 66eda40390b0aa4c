// Lifetimes in sections: the instants at which a birth is followed by a death. The live set of
// any other instant is a subset of one of theirs, so what is valid in the sections is valid.
#pragma once

#include <vector>

#include "allocator/problem.h"

namespace tandem::planning {

using Section = int32_t;

struct Span {
  Section first = 0, last = 0;  // Inclusive.
};

struct Timeline {
  std::vector<Span> spans;  // Parallel to the buffers.
  std::vector<Units> live;  // By section: sum of sizes.

  Section sections() const { return static_cast<Section>(live.size()); }
};

Timeline BuildTimeline(const Problem& problem);

}  // namespace tandem::planning
