// Elements of a tensor of any type and strides, a row of the last dimension at a time, as floats.
//
// Kernels compute on contiguous floats. A row that is already so is used in place; any other is
// converted in blocks of kRowBlock elements that live on the stack, so that no layout needs
// scratch or a kernel of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/simd.h"
#include "backends/cpu/team.h"
#include "graph/shape.h"

namespace tandem::cpu {

inline constexpr int64_t kRowBlock = 512;  // A multiple of every type's block.

inline int64_t LastDim(const Layout& layout) {
  return layout.rank == 0 ? 1 : layout.dims[layout.rank - 1];
}
// Stride of the last dimension; 0 for a scalar, which then serves any number of elements.
inline int64_t LastStride(const Layout& layout) {
  return layout.rank == 0 ? 0 : layout.strides[layout.rank - 1];
}
inline int64_t RowCount(const Layout& layout) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < layout.rank; ++i) rows *= layout.dims[i];
  return rows;
}
inline bool HasFloatRows(const Layout& layout) {
  return layout.type == Type::kF32 && (LastStride(layout) == 4 || LastDim(layout) == 1);
}
// Byte offset of the element with a row-major number, or of the row with one.
int64_t ElementOffset(const Layout& layout, int64_t element);
int64_t RowOffset(const Layout& layout, int64_t row);

// Single elements of a plain type. Integers are exact up to 2^53.
double ReadElement(Type type, const std::byte* from);
void WriteElement(Type type, double value, std::byte* to);
// Of an I32 or I64 element.
int64_t ReadInteger(Type type, const std::byte* from);

// `length` is the row's length in the tensor that is walked; a last dimension of 1 is repeated.
class RowReader {
 public:
  RowReader(const Simd& simd, const Layout& layout, const std::byte* data, int64_t length);
  bool in_place() const { return in_place_; }
  // Elements [begin, begin + n), n <= kRowBlock and begin a multiple of it unless in_place(), of
  // the row `row` bytes from the first. In place or in `buffer`.
  const float* Read(int64_t row, int64_t begin, int64_t n, float* buffer) const {
    if (in_place_) return reinterpret_cast<const float*>(data_ + row) + begin;
    Convert(data_ + row, begin, n, buffer);
    return buffer;
  }

 private:
  void Convert(const std::byte* row, int64_t begin, int64_t n, float* out) const;

  const Simd& simd_;
  const Type type_;
  const std::byte* const data_;
  const int64_t stride_;
  const bool in_place_;
};

class RowWriter {
 public:
  RowWriter(const Simd& simd, const Layout& layout, std::byte* data);
  bool in_place() const { return in_place_; }
  // Where to put elements [begin, begin + n): in place, or `buffer`, to be given to Write.
  float* Target(int64_t row, int64_t begin, float* buffer) const {
    return in_place_ ? reinterpret_cast<float*>(data_ + row) + begin : buffer;
  }
  void Write(int64_t row, int64_t begin, int64_t n, const float* values) const {
    if (!in_place_) Convert(data_ + row, begin, n, values);
  }

 private:
  void Convert(std::byte* row, int64_t begin, int64_t n, const float* values) const;

  const Simd& simd_;
  const Type type_;
  std::byte* const data_;
  const int64_t stride_;
  const bool in_place_;
};

// Walks the rows of `shape` in row-major order and keeps the byte offset of the row in tensors
// whose dimensions, aligned at the end, are equal to the shape's or 1.
template <int kTensors>
class RowWalk {
 public:
  RowWalk(const Layout& shape, const std::array<const Layout*, kTensors>& tensors, int64_t first)
      : rank_(shape.rank - 1), dims_(shape.dims) {
    for (int d = rank_ - 1; d >= 0; --d) {
      index_[d] = first % dims_[d];
      first /= dims_[d];
    }
    for (int t = 0; t < kTensors; ++t) {
      const Layout& tensor = *tensors[t];
      const int shift = shape.rank - tensor.rank;
      for (int d = 0; d < rank_; ++d) {
        const bool fixed = d < shift || tensor.dims[d - shift] == 1;
        strides_[t][d] = fixed ? 0 : tensor.strides[d - shift];
        offsets_[t] += strides_[t][d] * index_[d];
      }
    }
  }
  int64_t offset(int tensor) const { return offsets_[tensor]; }
  void Next() {
    for (int d = rank_ - 1; d >= 0; --d) {
      const bool wraps = ++index_[d] == dims_[d];
      for (int t = 0; t < kTensors; ++t) offsets_[t] += strides_[t][d] * (wraps ? 1 - dims_[d] : 1);
      if (!wraps) return;
      index_[d] = 0;
    }
  }

 private:
  const int rank_;
  const std::array<int64_t, kMaxRank> dims_;
  std::array<int64_t, kMaxRank> index_{};
  std::array<std::array<int64_t, kMaxRank>, kTensors> strides_{};
  std::array<int64_t, kTensors> offsets_{};
};

// work(first, end) on ranges of `count` things that cost `each` elements' worth of work, in
// chunks of about `chunk` elements.
template <class Work>
void RunRanges(Team& team, int64_t count, int64_t each, int64_t chunk, const Work& work) {
  const int64_t step = each >= chunk ? 1 : chunk / (each < 1 ? 1 : each);
  team.Run((count + step - 1) / step, [&](int, int64_t i) {
    const int64_t first = i * step, end = first + step < count ? first + step : count;
    work(first, end);
  });
}

}  // namespace tandem::cpu
