#include "allocator/valley.h"

#include <algorithm>

namespace tandem::planning {
namespace {

// Sections of equal level; stored at both ends.
struct Stretch {
  Section first = 0, last = 0;
  Units level = 0;
};

// Fills one chunk from `base`, at most `height` high. What does not fit into it is left in
// `left_over`, in order. False if the budget is used up, or at once if something does not fit and
// `left_over` is null.
bool FillChunk(const Problem& problem, const Timeline& timeline, const Order& order,
               SpanIndex* index, Units base, Units height, Offsets* offsets, Order* left_over,
               Budget* budget) {
  const Section sections = timeline.sections();
  index->Reset(order);
  std::vector<bool> left(problem.buffers.size());
  std::vector<Stretch> at(sections);
  const auto store = [&at](const Stretch& s) { at[s.first] = at[s.last] = s; };
  Stretch here{0, sections - 1, 0};
  store(here);
  // Which valley is filled first makes no difference: what fits in a valley fits in no other
  // until its level reaches a bank. So the walk goes downhill from where it is, which keeps
  // accesses local and needs no queue.
  for (size_t decided = 0; decided < order.size();) {
    if (!budget->Spend()) return false;
    const Units before = here.first > 0 ? at[here.first - 1].level : kUnlimited;
    const Units after = here.last + 1 < sections ? at[here.last + 1].level : kUnlimited;
    if (before <= here.level || after <= here.level) {
      const Stretch next = before <= here.level ? at[here.first - 1] : at[here.last + 1];
      if (next.level == here.level) {
        here = {std::min(here.first, next.first), std::max(here.last, next.last), here.level};
        store(here);
      } else {
        here = next;
      }
      continue;
    }
    const int32_t rank = index->Find(here.first, here.last);
    if (rank < 0) {
      here.level = std::min(before, after);
      store(here);
      continue;
    }
    const BufferIndex buffer = order[rank];
    const Units size = problem.buffers[buffer].size;
    index->Remove(buffer);
    ++decided;
    if (size > height - here.level) {  // Levels only rise, so it never will.
      if (left_over == nullptr) return false;
      left[buffer] = true;
      continue;
    }
    (*offsets)[buffer] = base + here.level;
    const Span span = timeline.spans[buffer];
    const Stretch ahead{here.first, span.first - 1, here.level};
    const Stretch behind{span.last + 1, here.last, here.level};
    here = {span.first, span.last, here.level + size};
    store(here);
    if (ahead.first <= ahead.last) store(ahead);
    if (behind.first <= behind.last) store(behind);
  }
  if (left_over == nullptr) return true;
  for (const BufferIndex buffer : order)
    if (left[buffer]) left_over->push_back(buffer);
  return true;
}

}  // namespace

std::optional<Offsets> PlanValleys(const Problem& problem, const Timeline& timeline,
                                   const Order& order, SpanIndex* index, Units ceiling,
                                   Budget* budget) {
  Offsets offsets(problem.buffers.size(), 0);
  const bool chunked = problem.chunk != kUnlimited;
  const Units height = chunked ? problem.chunk : ceiling - 1;
  Order rest;
  if (!FillChunk(problem, timeline, order, index, 0, height, &offsets, chunked ? &rest : nullptr,
                 budget))
    return std::nullopt;
  for (Units base = problem.chunk; !rest.empty(); base += problem.chunk) {
    SpanIndex of_rest(timeline, rest);
    const Order members = std::move(rest);
    rest.clear();
    if (!FillChunk(problem, timeline, members, &of_rest, base, height, &offsets, &rest, budget))
      return std::nullopt;
  }
  if (Height(problem, offsets) >= ceiling) return std::nullopt;
  return offsets;
}

}  // namespace tandem::planning
