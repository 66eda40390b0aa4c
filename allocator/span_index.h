// Which undecided buffer fits best into a stretch of time?
//
// Spans are points (first, last) of the plane in a balanced k-d tree, each node of which knows
// its bounding box and the lowest rank below. The tree depends on the spans only, so one serves
// many orders. Find costs about log n where the answer is near, Remove at most log n.
#pragma once

#include <vector>

#include "allocator/timeline.h"

namespace tandem::planning {

class SpanIndex {
 public:
  // Over the buffers `members`; `timeline` must outlive this.
  SpanIndex(const Timeline& timeline, Order members);

  // All members become undecided, ranked by their place in `order`, which holds each once.
  void Reset(const Order& order);
  // The rank of the first by rank of the undecided buffers within [first, last], or -1.
  int32_t Find(Section first, Section last) const;
  void Remove(BufferIndex buffer);

 private:
  struct Node {
    Section min_first, max_first, min_last, max_last;
    int32_t best;                              // Lowest rank below.
    int32_t begin = 0, end = 0, full_end = 0;  // Leaves: undecided and all, in members_.
  };

  bool Join(int32_t node);  // Whether that changed it.
  void Tighten(int32_t leaf);
  void Split(int32_t node, int32_t begin, int32_t end, bool by_first);
  void Find(int32_t node, Section first, Section last, int32_t* best) const;

  const std::vector<Span>& spans_;
  Order members_;
  std::vector<int32_t> leaf_of_, rank_;  // By buffer.
  std::vector<Node> nodes_;              // A heap: node k has children 2k and 2k + 1.
  int32_t leaves_ = 1;
};

}  // namespace tandem::planning
