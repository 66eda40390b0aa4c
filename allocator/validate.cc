#include "allocator/validate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace tandem {
namespace {

// Wide enough for any sum of 64-bit sizes: wrong input must not make the check itself overflow.
using Wide = __int128;

bool OccupiesBytes(const Lifetime& lifetime) {
  return lifetime.bytes > 0 && lifetime.end > lifetime.begin;
}

Wide RoundUp(Wide bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct Event {
  Position time = 0;
  bool is_begin = false;  // Ends sort before begins: lifetimes are half-open.
  size_t index = 0;

  bool operator<(const Event& other) const {
    return std::tie(time, is_begin, index) < std::tie(other.time, other.is_begin, other.index);
  }
};

std::vector<Event> SortedEvents(std::span<const Lifetime> lifetimes) {
  std::vector<Event> events;
  events.reserve(2 * lifetimes.size());
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (!OccupiesBytes(lifetimes[i])) continue;
    events.push_back({lifetimes[i].begin, true, i});
    events.push_back({lifetimes[i].end, false, i});
  }
  std::sort(events.begin(), events.end());
  return events;
}

Result<void> CheckPlaces(std::span<const Lifetime> lifetimes, const OffsetLimits& limits,
                         const OffsetPlan& plan) {
  const auto chunk_count = static_cast<int64_t>(plan.chunk_bytes.size());
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (!OccupiesBytes(lifetimes[i])) continue;
    const Offset offset = plan.offsets[i];
    const int32_t chunk = plan.chunks[i];
    if (offset < 0) return Fail(ErrorCode::kInternal, "buffer {} has offset {}", i, offset);
    if (offset % limits.alignment != 0)
      return Fail(ErrorCode::kInternal, "buffer {}: offset {} is not aligned to {}", i, offset,
                  limits.alignment);
    if (chunk < 0 || chunk >= chunk_count)
      return Fail(ErrorCode::kInternal, "buffer {} lies in chunk {} of {}", i, chunk, chunk_count);
    if (Wide{offset} + lifetimes[i].bytes > plan.chunk_bytes[chunk])
      return Fail(ErrorCode::kInternal,
                  "buffer {}: {} bytes at offset {} pass the end of chunk {} at {}", i,
                  lifetimes[i].bytes, offset, chunk, plan.chunk_bytes[chunk]);
  }
  return {};
}

Result<void> CheckHeights(std::span<const Lifetime> lifetimes, const OffsetLimits& limits,
                          const OffsetPlan& plan) {
  std::vector<Wide> tops(plan.chunk_bytes.size(), 0);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (!OccupiesBytes(lifetimes[i])) continue;
    Wide& top = tops[plan.chunks[i]];
    top = std::max(top, RoundUp(Wide{plan.offsets[i]} + lifetimes[i].bytes, limits.alignment));
  }
  Wide sum = 0;
  for (size_t c = 0; c < tops.size(); ++c) {
    if (plan.chunk_bytes[c] > limits.largest_buffer)
      return Fail(ErrorCode::kInternal, "chunk {} has {} bytes, more than the largest buffer of {}",
                  c, plan.chunk_bytes[c], limits.largest_buffer);
    if (tops[c] != plan.chunk_bytes[c])
      return Fail(ErrorCode::kInternal, "chunk {} has {} bytes, but what lies in it ends at {}", c,
                  plan.chunk_bytes[c], static_cast<int64_t>(tops[c]));
    sum += plan.chunk_bytes[c];
  }
  if (sum != plan.height)
    return Fail(ErrorCode::kInternal, "the height is {}, but the chunks add up to {}", plan.height,
                static_cast<int64_t>(sum));
  const int64_t bound = LowerBound(lifetimes, limits.alignment);
  if (plan.lower_bound != bound)
    return Fail(ErrorCode::kInternal, "the lower bound is {}, not {}", bound, plan.lower_bound);
  return {};
}

// The live buffers of a chunk are disjoint as long as each newcomer is disjoint from its two
// neighbours by offset, so only these are looked at.
Result<void> CheckDisjoint(std::span<const Lifetime> lifetimes, const OffsetPlan& plan) {
  using Place = std::pair<int32_t, Offset>;
  std::map<Place, size_t> live;
  for (const Event& event : SortedEvents(lifetimes)) {
    const Place place{plan.chunks[event.index], plan.offsets[event.index]};
    if (!event.is_begin) {
      live.erase(place);
      continue;
    }
    const auto ends_above = [&](size_t i, Offset offset) {
      return Wide{plan.offsets[i]} + lifetimes[i].bytes > offset;
    };
    const auto next = live.lower_bound(place);
    size_t clash = event.index;
    if (next != live.end() && next->first.first == place.first &&
        ends_above(event.index, next->first.second))
      clash = next->second;
    if (next != live.begin()) {
      const auto previous = std::prev(next);
      if (previous->first.first == place.first && ends_above(previous->second, place.second))
        clash = previous->second;
    }
    if (clash != event.index)
      return Fail(ErrorCode::kInternal,
                  "buffers {} and {} are live at {} and share bytes of chunk {}", clash,
                  event.index, event.time, place.first);
    live.emplace(place, event.index);
  }
  return {};
}

}  // namespace

int64_t LowerBound(std::span<const Lifetime> lifetimes, int64_t alignment) {
  Wide live = 0, peak = 0;
  for (const Event& event : SortedEvents(lifetimes)) {
    const Wide bytes = RoundUp(lifetimes[event.index].bytes, alignment);
    live += event.is_begin ? bytes : -bytes;
    peak = std::max(peak, live);
  }
  constexpr Wide kMost = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(peak, kMost));
}

Result<void> ValidateOffsets(std::span<const Lifetime> lifetimes, const OffsetLimits& limits,
                             const OffsetPlan& plan) {
  if (limits.alignment <= 0)
    return Fail(ErrorCode::kInternal, "the alignment is {}", limits.alignment);
  if (plan.offsets.size() != lifetimes.size() || plan.chunks.size() != lifetimes.size())
    return Fail(ErrorCode::kInternal, "{} offsets and {} chunks for {} lifetimes",
                plan.offsets.size(), plan.chunks.size(), lifetimes.size());
  TANDEM_CHECK(CheckPlaces(lifetimes, limits, plan));
  TANDEM_CHECK(CheckHeights(lifetimes, limits, plan));
  return CheckDisjoint(lifetimes, plan);
}

}  // namespace tandem
