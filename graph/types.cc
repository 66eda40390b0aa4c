#include "graph/types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tandem {
namespace {

constexpr int kBlock = 32;  // Elements of each quantised block.

template <class T>
T Load(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}
template <class T>
void Store(T value, std::byte* target) {
  std::memcpy(target, &value, sizeof value);
}

// Plain types: one element a block, stored as T.
template <class T, double (*ToDouble)(T), T (*FromDouble)(double)>
void DecodePlain(const std::byte* source, int64_t blocks, double* out) {
  for (int64_t i = 0; i < blocks; ++i) out[i] = ToDouble(Load<T>(source + i * sizeof(T)));
}
template <class T, double (*ToDouble)(T), T (*FromDouble)(double)>
void EncodePlain(const double* source, int64_t blocks, std::byte* out) {
  for (int64_t i = 0; i < blocks; ++i) Store<T>(FromDouble(source[i]), out + i * sizeof(T));
}

template <class T>
double Widen(T value) {
  return static_cast<double>(value);
}
float NarrowFloat(double value) { return static_cast<float>(value); }
template <class T>
T NarrowInteger(double value) {
  // Saturates: a conversion out of range is undefined in C++.
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kHigh = -kLow;
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  if (rounded <= kLow) return std::numeric_limits<T>::min();
  if (rounded >= kHigh) return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}
double WidenHalf(uint16_t bits) { return HalfToFloat(bits); }
double WidenBFloat16(uint16_t bits) { return BFloat16ToFloat(bits); }

// Rounds a double to `digits` bits of fraction at exponents from `lowest` on, to nearest even, so
// that what follows (a narrowing to float) is exact and nothing is rounded twice.
double RoundTo(double value, int digits, int lowest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), lowest);
  return std::ldexp(std::nearbyint(std::ldexp(value, digits - exponent)), exponent - digits);
}
uint16_t NarrowHalf(double value) {
  return FloatToHalf(static_cast<float>(RoundTo(value, 10, -14)));
}
uint16_t NarrowBFloat16(double value) {
  return FloatToBFloat16(static_cast<float>(RoundTo(value, 7, -126)));
}

// The nearest code, held to the range; values that have none (not a number, or a scale beyond the
// range of half precision) get the code 0, for converting them is undefined in C++.
int NearestCode(double value, int least, int most) {
  if (!std::isfinite(value)) return 0;
  return static_cast<int>(
      std::clamp(std::nearbyint(value), static_cast<double>(least), static_cast<double>(most)));
}

void DecodeQ4(const std::byte* quants, double scale, double offset, double* out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const auto byte = static_cast<uint8_t>(quants[i]);
    out[i] = scale * (byte & 15) + offset;
    out[i + kBlock / 2] = scale * (byte >> 4) + offset;
  }
}
// Codes 0 to 15 of (value - offset) / scale.
void EncodeQ4(const double* source, double scale, double offset, std::byte* quants) {
  const auto code = [&](double value) {
    return scale == 0 ? 0 : NearestCode((value - offset) / scale, 0, 15);
  };
  for (int i = 0; i < kBlock / 2; ++i)
    quants[i] = static_cast<std::byte>(code(source[i]) | code(source[i + kBlock / 2]) << 4);
}

// The element with the largest magnitude.
double Extreme(const double* source) {
  return *std::max_element(source, source + kBlock,
                           [](double a, double b) { return std::abs(a) < std::abs(b); });
}

constexpr int64_t kQ40Bytes = 18, kQ41Bytes = 20, kQ80Bytes = 34;

void DecodeQ40(const std::byte* source, int64_t blocks, double* out) {
  for (; blocks > 0; --blocks, source += kQ40Bytes, out += kBlock) {
    const double d = WidenHalf(Load<uint16_t>(source));
    DecodeQ4(source + 2, d, -8 * d, out);
  }
}
void EncodeQ40(const double* source, int64_t blocks, std::byte* out) {
  for (; blocks > 0; --blocks, source += kBlock, out += kQ40Bytes) {
    const uint16_t bits = NarrowHalf(Extreme(source) / -8);
    Store(bits, out);
    const double d = WidenHalf(bits);
    EncodeQ4(source, d, -8 * d, out + 2);
  }
}

void DecodeQ41(const std::byte* source, int64_t blocks, double* out) {
  for (; blocks > 0; --blocks, source += kQ41Bytes, out += kBlock)
    DecodeQ4(source + 4, WidenHalf(Load<uint16_t>(source)), WidenHalf(Load<uint16_t>(source + 2)),
             out);
}
void EncodeQ41(const double* source, int64_t blocks, std::byte* out) {
  for (; blocks > 0; --blocks, source += kBlock, out += kQ41Bytes) {
    const auto [low, high] = std::minmax_element(source, source + kBlock);
    const uint16_t d = NarrowHalf((*high - *low) / 15), m = NarrowHalf(*low);
    Store(d, out);
    Store(m, out + 2);
    EncodeQ4(source, WidenHalf(d), WidenHalf(m), out + 4);
  }
}

void DecodeQ80(const std::byte* source, int64_t blocks, double* out) {
  for (; blocks > 0; --blocks, source += kQ80Bytes, out += kBlock) {
    const double d = WidenHalf(Load<uint16_t>(source));
    for (int i = 0; i < kBlock; ++i) out[i] = d * static_cast<int8_t>(source[2 + i]);
  }
}
void EncodeQ80(const double* source, int64_t blocks, std::byte* out) {
  for (; blocks > 0; --blocks, source += kBlock, out += kQ80Bytes) {
    const uint16_t bits = NarrowHalf(std::abs(Extreme(source)) / 127);
    Store(bits, out);
    const double d = WidenHalf(bits);
    for (int i = 0; i < kBlock; ++i) {
      const int code = d == 0 ? 0 : NearestCode(source[i] / d, -127, 127);
      out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(code));
    }
  }
}

template <class T, double (*ToDouble)(T), T (*FromDouble)(double)>
constexpr TypeInfo Plain(Type type, std::string_view name, int32_t gguf_id, bool is_float) {
  return {type,
          name,
          1,
          sizeof(T),
          gguf_id,
          is_float,
          false,
          DecodePlain<T, ToDouble, FromDouble>,
          EncodePlain<T, ToDouble, FromDouble>};
}

// In the order of the enumerators.
constexpr TypeInfo kTypes[kTypeCount] = {
    Plain<float, Widen<float>, NarrowFloat>(Type::kF32, "F32", 0, true),
    Plain<uint16_t, WidenHalf, NarrowHalf>(Type::kF16, "F16", 1, true),
    Plain<uint16_t, WidenBFloat16, NarrowBFloat16>(Type::kBF16, "BF16", 30, true),
    Plain<int32_t, Widen<int32_t>, NarrowInteger<int32_t>>(Type::kI32, "I32", 26, false),
    Plain<int64_t, Widen<int64_t>, NarrowInteger<int64_t>>(Type::kI64, "I64", 27, false),
    {Type::kQ4_0, "Q4_0", kBlock, kQ40Bytes, 2, false, true, DecodeQ40, EncodeQ40},
    {Type::kQ4_1, "Q4_1", kBlock, kQ41Bytes, 3, false, true, DecodeQ41, EncodeQ41},
    {Type::kQ8_0, "Q8_0", kBlock, kQ80Bytes, 8, false, true, DecodeQ80, EncodeQ80},
};

}  // namespace

const TypeInfo& Info(Type type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<Type> TypeFromGguf(int32_t gguf_id) {
  for (const TypeInfo& info : kTypes)
    if (info.gguf_id == gguf_id) return info.type;
  return std::nullopt;
}

std::optional<Type> TypeFromName(std::string_view name) {
  for (const TypeInfo& info : kTypes)
    if (info.name == name) return info.type;
  return std::nullopt;
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F, fraction = bits & 0x3FF;
  if (exponent == 0) {  // Zero or subnormal: fraction * 2^-24.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);   // Not a number.
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // Rounds past 65504.
  if (magnitude < 0x38800000) {  // Subnormal: adding 0.5 aligns the fraction, rounding to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112 << 10)));
}

float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t FloatToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace tandem
