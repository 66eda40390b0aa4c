#include "allocator/time_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace tandem::planning {

std::vector<int32_t> TimeOrder(const std::vector<int64_t>& times) {
  std::vector<int32_t> order(times.size());
  std::iota(order.begin(), order.end(), 0);
  if (std::is_sorted(times.begin(), times.end())) return order;

  const auto [low, high] = std::minmax_element(times.begin(), times.end());
  const auto base = static_cast<uint64_t>(*low);
  const int bits = std::bit_width(static_cast<uint64_t>(*high) - base);
  constexpr int kDigit = 11;
  struct Entry {
    uint64_t key;
    int32_t index;
  };
  std::vector<Entry> from(times.size()), to(times.size());
  for (size_t i = 0; i < times.size(); ++i)
    from[i] = {static_cast<uint64_t>(times[i]) - base, static_cast<int32_t>(i)};
  for (int shift = 0; shift < bits; shift += kDigit) {
    std::array<size_t, size_t{1} << kDigit> start{};
    const auto digit = [shift](const Entry& e) {
      return static_cast<size_t>(e.key >> shift) & ((size_t{1} << kDigit) - 1);
    };
    for (const Entry& entry : from) ++start[digit(entry)];
    std::exclusive_scan(start.begin(), start.end(), start.begin(), size_t{0});
    for (const Entry& entry : from) to[start[digit(entry)]++] = entry;
    from.swap(to);
  }
  for (size_t i = 0; i < from.size(); ++i) order[i] = from[i].index;
  return order;
}

}  // namespace tandem::planning
