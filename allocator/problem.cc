#include "allocator/problem.h"

#include <algorithm>

#include "allocator/time_order.h"

namespace tandem::planning {

void Complete(Problem* problem) {
  const std::vector<Buffer>& buffers = problem->buffers;
  std::vector<Position> ends;
  ends.reserve(buffers.size());
  for (const Buffer& buffer : buffers) ends.push_back(buffer.end);
  problem->deaths = TimeOrder(ends);

  Units live = 0;
  problem->lower_bound = 0;
  size_t dead = 0;
  for (const Buffer& buffer : buffers) {
    // Half-open: what ends here is gone. Every buffer of `deaths` up to there was born before.
    while (buffers[problem->deaths[dead]].end <= buffer.begin)
      live -= buffers[problem->deaths[dead++]].size;
    live += buffer.size;
    problem->lower_bound = std::max(problem->lower_bound, live);
  }
}

Units Height(const Problem& problem, const Offsets& offsets) {
  std::vector<Units> tops(1, 0);
  for (size_t i = 0; i < offsets.size(); ++i) {
    size_t chunk = 0;
    Units top = offsets[i] + problem.buffers[i].size;
    if (problem.chunk != kUnlimited) {
      chunk = static_cast<size_t>(offsets[i] / problem.chunk);
      top -= static_cast<Units>(chunk) * problem.chunk;
      if (chunk >= tops.size()) tops.resize(chunk + 1, 0);
    }
    tops[chunk] = std::max(tops[chunk], top);
  }
  Units height = 0;
  for (const Units top : tops) height += top;
  return height;
}

}  // namespace tandem::planning
