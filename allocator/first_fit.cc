#include "allocator/first_fit.h"

#include <algorithm>

namespace tandem::planning {
namespace {

constexpr int64_t kStepsForOne = 10;  // What placing one buffer costs, beyond the ranges looked at.

struct Range {
  Units begin = 0, end = 0;
};

// A set of disjoint address ranges, touching ones joined. Good plans leave few holes, so these
// sets stay short.
class RangeSet {
 public:
  void Insert(Range range) {
    const auto low = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                                      [](const Range& r, Units x) { return r.end < x; });
    auto high = low;
    for (; high != ranges_.end() && high->begin <= range.end; ++high) {
      range.begin = std::min(range.begin, high->begin);
      range.end = std::max(range.end, high->end);
    }
    if (low == high) {
      ranges_.insert(low, range);
    } else {
      *low = range;
      ranges_.erase(low + 1, high);
    }
  }

  // The least offset at or above `offset` with `size` free units from there.
  Units Lift(Units offset, Units size, Budget* budget) const {
    auto it = std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                               [](Units x, const Range& r) { return x < r.end; });
    for (; it != ranges_.end() && it->begin - offset < size; ++it) {
      offset = it->end;
      budget->Spend();
    }
    return offset;
  }

  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<Range> ranges_;
};

// A segment tree over the sections. A range is recorded as "whole" in the nodes that its span
// decomposes into, and as "part" there and in all nodes above; what a span meets is then the
// parts of its own nodes and the wholes of the nodes above these.
class SpaceTime {
 public:
  SpaceTime(Section sections, Units chunk) : chunk_(chunk) {
    while (leaves_ < sections) leaves_ *= 2;
    whole_.resize(2 * static_cast<size_t>(leaves_));
    part_.resize(2 * static_cast<size_t>(leaves_));
  }

  Units LowestFree(const Span& span, Units size, Budget* budget) {
    met_.clear();
    Collect(1, 0, leaves_ - 1, span);
    Units offset = 0;
    // Lifting out of a straddle may land in a range of the same set.
    const size_t settled = chunk_ == kUnlimited ? 1 : 0;
    size_t agreed = 0;
    for (size_t k = 0; agreed < met_.size(); k = k + 1 == met_.size() ? 0 : k + 1) {
      const Units lifted = OutOfStraddle(met_[k]->Lift(offset, size, budget), size, chunk_);
      agreed = lifted == offset ? agreed + 1 : settled;
      offset = lifted;
    }
    return offset;
  }

  void Insert(const Span& span, Range range) { Insert(1, 0, leaves_ - 1, span, range); }

 private:
  void Collect(int32_t node, Section first, Section last, const Span& span) {
    if (span.first <= first && last <= span.last) {
      if (!part_[node].empty()) met_.push_back(&part_[node]);
      return;
    }
    if (part_[node].empty()) return;
    if (!whole_[node].empty()) met_.push_back(&whole_[node]);
    const Section middle = first + (last - first) / 2;
    if (span.first <= middle) Collect(2 * node, first, middle, span);
    if (span.last > middle) Collect(2 * node + 1, middle + 1, last, span);
  }

  void Insert(int32_t node, Section first, Section last, const Span& span, Range range) {
    part_[node].Insert(range);
    if (span.first <= first && last <= span.last) {
      whole_[node].Insert(range);
      return;
    }
    const Section middle = first + (last - first) / 2;
    if (span.first <= middle) Insert(2 * node, first, middle, span, range);
    if (span.last > middle) Insert(2 * node + 1, middle + 1, last, span, range);
  }

  const Units chunk_;
  int32_t leaves_ = 1;
  std::vector<RangeSet> whole_, part_;  // By node, as in a heap.
  std::vector<const RangeSet*> met_;    // Of the last query.
};

}  // namespace

std::optional<Offsets> PlanFirstFit(const Problem& problem, const Timeline& timeline,
                                    const Order& order, Offsets offsets, Units ceiling,
                                    Budget* budget) {
  SpaceTime space(timeline.sections(), problem.chunk);
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] != kNoPlace)
      space.Insert(timeline.spans[i], {offsets[i], offsets[i] + problem.buffers[i].size});
  const bool chunked = problem.chunk != kUnlimited;
  for (const BufferIndex i : order) {
    if (offsets[i] != kNoPlace) continue;
    if (!budget->Spend(kStepsForOne)) return std::nullopt;
    const Units size = problem.buffers[i].size;
    offsets[i] = space.LowestFree(timeline.spans[i], size, budget);
    if (!chunked && offsets[i] + size >= ceiling) return std::nullopt;
    space.Insert(timeline.spans[i], {offsets[i], offsets[i] + size});
  }
  if (Height(problem, offsets) >= ceiling) return std::nullopt;
  return offsets;
}

}  // namespace tandem::planning
