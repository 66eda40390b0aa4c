#include "backends/cpu/element_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tandem::cpu {
namespace {

template <class T>
T ReadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void WriteAs(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

// Rounds to nearest, and to the nearest end of the range.
template <class T>
T ToInteger(double value) {
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
  if (!(value > kLow)) return value <= kLow ? std::numeric_limits<T>::min() : T{0};
  if (value >= kHigh) return std::numeric_limits<T>::max();
  return static_cast<T>(std::nearbyint(value));
}

float ReadFloat(Type type, const std::byte* from) {
  switch (type) {
    case Type::kF32:
      return ReadAs<float>(from);
    case Type::kF16:
      return HalfToFloat(ReadAs<uint16_t>(from));
    case Type::kBF16:
      return BFloat16ToFloat(ReadAs<uint16_t>(from));
    default:
      return static_cast<float>(ReadElement(type, from));
  }
}

}  // namespace

int64_t ElementOffset(const Layout& layout, int64_t element) {
  int64_t offset = 0;
  for (int d = layout.rank - 1; d >= 0; --d) {
    offset += element % layout.dims[d] * layout.strides[d];
    element /= layout.dims[d];
  }
  return offset;
}

int64_t RowOffset(const Layout& layout, int64_t row) {
  int64_t offset = 0;
  for (int d = layout.rank - 2; d >= 0; --d) {
    offset += row % layout.dims[d] * layout.strides[d];
    row /= layout.dims[d];
  }
  return offset;
}

double ReadElement(Type type, const std::byte* from) {
  switch (type) {
    case Type::kI32:
      return ReadAs<int32_t>(from);
    case Type::kI64:
      return static_cast<double>(ReadAs<int64_t>(from));
    default:
      return ReadFloat(type, from);
  }
}

void WriteElement(Type type, double value, std::byte* to) {
  switch (type) {
    case Type::kF32:
      return WriteAs(static_cast<float>(value), to);
    case Type::kF16:
      return WriteAs(FloatToHalf(static_cast<float>(value)), to);
    case Type::kBF16:
      return WriteAs(FloatToBFloat16(static_cast<float>(value)), to);
    case Type::kI32:
      return WriteAs(ToInteger<int32_t>(value), to);
    case Type::kI64:
      return WriteAs(ToInteger<int64_t>(value), to);
    default:
      return;  // Block types are written in blocks.
  }
}

int64_t ReadInteger(Type type, const std::byte* from) {
  return type == Type::kI64 ? ReadAs<int64_t>(from) : ReadAs<int32_t>(from);
}

RowReader::RowReader(const Simd& simd, const Layout& layout, const std::byte* data, int64_t length)
    : simd_(simd),
      type_(layout.type),
      data_(data),
      stride_(LastDim(layout) == 1 && length != 1 ? 0 : LastStride(layout)),
      in_place_(type_ == Type::kF32 && (stride_ == 4 || length == 1)) {}

void RowReader::Convert(const std::byte* row, int64_t begin, int64_t n, float* out) const {
  const TypeInfo& info = Info(type_);
  if (info.is_block) {
    double values[kRowBlock];
    const std::byte* first = row + begin / info.block_elements * stride_;
    const int64_t blocks = n / info.block_elements;
    if (stride_ == info.block_bytes) {
      info.decode(first, blocks, values);
    } else {
      for (int64_t b = 0; b < blocks; ++b)
        info.decode(first + b * stride_, 1, values + b * info.block_elements);
    }
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(values[i]);
    return;
  }
  const std::byte* p = row + begin * stride_;
  if (type_ == Type::kF16 && stride_ == 2) {
    simd_.from_half(reinterpret_cast<const uint16_t*>(p), out, n);
    return;
  }
  if (type_ == Type::kF32) {
    for (int64_t i = 0; i < n; ++i, p += stride_) out[i] = ReadAs<float>(p);
    return;
  }
  for (int64_t i = 0; i < n; ++i, p += stride_) out[i] = ReadFloat(type_, p);
}

RowWriter::RowWriter(const Simd& simd, const Layout& layout, std::byte* data)
    : simd_(simd),
      type_(layout.type),
      data_(data),
      stride_(LastStride(layout)),
      in_place_(HasFloatRows(layout)) {}

void RowWriter::Convert(std::byte* row, int64_t begin, int64_t n, const float* values) const {
  const TypeInfo& info = Info(type_);
  if (info.is_block) {
    double wide[kRowBlock];
    for (int64_t i = 0; i < n; ++i) wide[i] = values[i];
    for (int64_t i = 0; i < n; i += info.block_elements)
      info.encode(wide + i, 1, row + (begin + i) / info.block_elements * stride_);
    return;
  }
  std::byte* p = row + begin * stride_;
  if (type_ == Type::kF16 && stride_ == 2) {
    simd_.to_half(values, reinterpret_cast<uint16_t*>(p), n);
    return;
  }
  for (int64_t i = 0; i < n; ++i, p += stride_) WriteElement(type_, values[i], p);
}

}  // namespace tandem::cpu
