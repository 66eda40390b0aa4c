#include "graph/shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

Shape::Shape(std::initializer_list<Dim> list) {
  for (const Dim& dim : list) {
    if (rank < kMaxRank) dims[rank] = dim;
    ++rank;  // A rank beyond kMaxRank is refused by the builder.
  }
}

bool Shape::IsConstant() const {
  return std::all_of(dims.begin(), dims.begin() + std::min(rank, kMaxRank),
                     [](const Dim& dim) { return dim.IsConstant(); });
}

bool Shape::operator==(const Shape& other) const {
  return rank == other.rank &&
         std::equal(dims.begin(), dims.begin() + std::min(rank, kMaxRank), other.dims.begin());
}

std::string ToString(const Shape& shape, std::span<const std::string> names) {
  std::string text = "[";
  for (int i = 0; i < std::min(shape.rank, kMaxRank); ++i) {
    if (i > 0) text += ", ";
    const Dim dim = shape[i];
    const auto symbol = static_cast<size_t>(dim.symbol);
    if (dim.IsConstant()) {
      text += fmt::format("{}", dim.factor);
    } else {
      const std::string name =
          symbol < names.size() ? names[symbol] : fmt::format("symbol {}", dim.symbol);
      text += dim.factor == 1 ? name : fmt::format("{}*{}", dim.factor, name);
    }
  }
  return text + "]";
}

int64_t Layout::Elements() const {
  int64_t elements = 1;
  for (int i = 0; i < rank; ++i) elements *= dims[i];
  return elements;
}

int64_t Layout::SpanBytes() const {
  const TypeInfo& info = Info(type);
  int64_t last = 0;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] == 0) return 0;
    const int64_t steps = i == rank - 1 ? dims[i] / info.block_elements : dims[i];
    last += (steps - 1) * strides[i];
  }
  return last + info.block_bytes;
}

bool Layout::IsContiguous() const {
  const TypeInfo& info = Info(type);
  int64_t step = info.block_bytes;
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t count = i == rank - 1 ? dims[i] / info.block_elements : dims[i];
    if (dims[i] == 0) return true;
    if (count != 1 && strides[i] != step) {
      // A zero further out makes any strides contiguous.
      return std::find(dims.begin(), dims.begin() + i, 0) != dims.begin() + i;
    }
    step *= count;
  }
  return true;
}

bool Layout::operator==(const Layout& other) const {
  return type == other.type && rank == other.rank &&
         std::equal(dims.begin(), dims.begin() + rank, other.dims.begin()) &&
         std::equal(strides.begin(), strides.begin() + rank, other.strides.begin());
}

Layout Contiguous(Type type, std::span<const int64_t> dims) {
  const TypeInfo& info = Info(type);
  Layout layout;
  layout.type = type;
  layout.rank = static_cast<int>(dims.size());
  int64_t step = info.block_bytes;
  for (int i = layout.rank - 1; i >= 0; --i) {
    layout.dims[i] = dims[i];
    layout.strides[i] = step;
    step *= i == layout.rank - 1 ? dims[i] / info.block_elements : dims[i];
  }
  return layout;
}

Layout Bind(Type type, const Shape& shape, std::span<const int64_t> symbols) {
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 0; i < shape.rank; ++i) dims[i] = shape[i].At(symbols);
  return Contiguous(type, {dims.data(), static_cast<size_t>(shape.rank)});
}

std::string ToString(const Layout& layout) {
  return fmt::format("{} [{}]", Info(layout.type).name,
                     fmt::join(layout.dims.begin(), layout.dims.begin() + layout.rank, ", "));
}

}  // namespace tandem
