#include "allocator/orders.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace tandem::planning {
namespace {

// Range maximum over the live sums.
class SparseMax {
 public:
  explicit SparseMax(const std::vector<Units>& values) : rows_{values} {
    for (size_t width = 1; 2 * width <= values.size(); width *= 2) {
      const std::vector<Units>& previous = rows_.back();
      std::vector<Units> row(previous.size() - width);
      for (size_t i = 0; i < row.size(); ++i) row[i] = std::max(previous[i], previous[i + width]);
      rows_.push_back(std::move(row));
    }
  }

  Units Max(const Span& span) const {
    const int row = std::bit_width(static_cast<uint32_t>(span.last - span.first + 1)) - 1;
    return std::max(rows_[row][span.first], rows_[row][span.last - (1 << row) + 1]);
  }

 private:
  std::vector<std::vector<Units>> rows_;  // Row r: maxima of 2^r values.
};

}  // namespace

Order OrderBy(Key key, const Problem& problem, const Timeline& timeline) {
  const SparseMax breadth(key == Key::kBreadth ? timeline.live : std::vector<Units>());
  // Ties: larger first, and equal sizes as born, which lets a class of equal buffers tile time
  // like the colouring of an interval graph.
  std::vector<std::tuple<double, Units, BufferIndex>> keyed;
  keyed.reserve(problem.buffers.size());
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    const Span& span = timeline.spans[i];
    const auto size = static_cast<double>(buffer.size);
    double rank = 0;
    switch (key) {
      case Key::kBirth:
        rank = -static_cast<double>(buffer.begin);
        break;
      case Key::kSize:
        rank = size;
        break;
      case Key::kDuration:
        rank = span.last - span.first;
        break;
      case Key::kArea:
        rank = size * (static_cast<double>(buffer.end) - static_cast<double>(buffer.begin));
        break;
      case Key::kBreadth:
        rank = static_cast<double>(breadth.Max(span));
        break;
    }
    keyed.emplace_back(-rank, -buffer.size, static_cast<BufferIndex>(i));
  }
  std::sort(keyed.begin(), keyed.end());
  Order order;
  order.reserve(keyed.size());
  for (const auto& entry : keyed) order.push_back(std::get<BufferIndex>(entry));
  return order;
}

}  // namespace tandem::planning
