#include "allocator/timeline.h"

namespace tandem::planning {

Timeline BuildTimeline(const Problem& problem) {
  const std::vector<Buffer>& buffers = problem.buffers;
  Timeline timeline;
  timeline.spans.resize(buffers.size());
  Units live = 0;
  size_t born = 0;
  for (const BufferIndex dying : problem.deaths) {
    // Half-open lifetimes: what is born as another dies does not meet it.
    if (born < buffers.size() && buffers[born].begin < buffers[dying].end) {
      for (; born < buffers.size() && buffers[born].begin < buffers[dying].end; ++born) {
        timeline.spans[born].first = timeline.sections();
        live += buffers[born].size;
      }
      timeline.live.push_back(live);
    }
    timeline.spans[dying].last = timeline.sections() - 1;
    live -= buffers[dying].size;
  }
  return timeline;
}

}  // namespace tandem::planning
