#include "allocator/span_index.h"

#include <algorithm>
#include <limits>

namespace tandem::planning {
namespace {

constexpr int32_t kLeaf = 8;
constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

}  // namespace

SpanIndex::SpanIndex(const Timeline& timeline, Order members)
    : spans_(timeline.spans),
      members_(std::move(members)),
      leaf_of_(spans_.size()),
      rank_(spans_.size()) {
  const auto count = static_cast<int32_t>(members_.size());
  while (leaves_ * kLeaf < count) leaves_ *= 2;
  nodes_.resize(2 * static_cast<size_t>(leaves_));
  Split(1, 0, count, true);
}

void SpanIndex::Reset(const Order& order) {
  for (size_t k = 0; k < order.size(); ++k) rank_[order[k]] = static_cast<int32_t>(k);
  for (int32_t node = 2 * leaves_ - 1; node >= leaves_; --node) {
    nodes_[node].end = nodes_[node].full_end;
    Tighten(node);
  }
  for (int32_t node = leaves_ - 1; node >= 1; --node) Join(node);
}

int32_t SpanIndex::Find(Section first, Section last) const {
  int32_t best = kNone;
  Find(1, first, last, &best);
  return best == kNone ? -1 : best;
}

void SpanIndex::Remove(BufferIndex buffer) {
  int32_t node = leaf_of_[buffer];
  Node& leaf = nodes_[node];
  const auto at = std::find(members_.begin() + leaf.begin, members_.begin() + leaf.end, buffer);
  std::iter_swap(at, members_.begin() + --leaf.end);
  Tighten(node);
  for (node /= 2; node >= 1; node /= 2)
    if (!Join(node)) break;
}

bool SpanIndex::Join(int32_t node) {
  const Node& a = nodes_[2 * node];
  const Node& b = nodes_[2 * node + 1];
  Node& x = nodes_[node];
  const Node old = x;
  x.min_first = std::min(a.min_first, b.min_first);
  x.max_first = std::max(a.max_first, b.max_first);
  x.min_last = std::min(a.min_last, b.min_last);
  x.max_last = std::max(a.max_last, b.max_last);
  x.best = std::min(a.best, b.best);
  return x.best != old.best || x.min_first != old.min_first || x.max_first != old.max_first ||
         x.min_last != old.min_last || x.max_last != old.max_last;
}

void SpanIndex::Tighten(int32_t leaf) {
  Node& x = nodes_[leaf];
  x.min_first = x.min_last = x.best = kNone;
  x.max_first = x.max_last = -1;
  for (int32_t k = x.begin; k < x.end; ++k) {
    const Span& span = spans_[members_[k]];
    x.min_first = std::min(x.min_first, span.first);
    x.max_first = std::max(x.max_first, span.first);
    x.min_last = std::min(x.min_last, span.last);
    x.max_last = std::max(x.max_last, span.last);
    x.best = std::min(x.best, rank_[members_[k]]);
  }
}

void SpanIndex::Split(int32_t node, int32_t begin, int32_t end, bool by_first) {
  if (node >= leaves_) {
    nodes_[node].begin = begin;
    nodes_[node].full_end = end;
    for (int32_t k = begin; k < end; ++k) leaf_of_[members_[k]] = node;
    return;
  }
  const int32_t middle = begin + (end - begin) / 2;
  std::nth_element(members_.begin() + begin, members_.begin() + middle, members_.begin() + end,
                   [&](BufferIndex a, BufferIndex b) {
                     return by_first ? spans_[a].first < spans_[b].first
                                     : spans_[a].last < spans_[b].last;
                   });
  Split(2 * node, begin, middle, !by_first);
  Split(2 * node + 1, middle, end, !by_first);
}

void SpanIndex::Find(int32_t node, Section first, Section last, int32_t* best) const {
  const Node& x = nodes_[node];
  if (x.best >= *best || x.max_first < first || x.min_last > last) return;
  if (x.min_first >= first && x.max_last <= last) {
    *best = x.best;
    return;
  }
  if (node >= leaves_) {
    for (int32_t k = x.begin; k < x.end; ++k) {
      const Span& span = spans_[members_[k]];
      if (span.first >= first && span.last <= last) *best = std::min(*best, rank_[members_[k]]);
    }
    return;
  }
  int32_t near = 2 * node, far = near + 1;
  if (nodes_[far].best < nodes_[near].best) std::swap(near, far);
  Find(near, first, last, best);
  Find(far, first, last, best);
}

}  // namespace tandem::planning
