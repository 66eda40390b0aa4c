// A vector of floats as wide as the instruction set that this file is compiled for.
//
// Included only by the simd_*.cc files. Everything has internal linkage and nothing from the
// standard library is used but constants: code that was compiled for a newer instruction set must
// never be what the linker keeps for a function that others use too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace tandem::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef float LooseFloats __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef double Doubles __attribute__((vector_size(kLanes * 4)));
typedef int64_t Longs __attribute__((vector_size(kLanes * 4)));
typedef double LooseDoubles __attribute__((vector_size(kLanes * 4), aligned(8), may_alias));

#define TANDEM_INLINE inline __attribute__((always_inline))

template <class T>
TANDEM_INLINE T Smaller(T a, T b) {
  return b < a ? b : a;
}

TANDEM_INLINE Floats Load(const float* p) {
  return static_cast<Floats>(*reinterpret_cast<const LooseFloats*>(p));
}
TANDEM_INLINE void Store(float* p, Floats v) {
  *reinterpret_cast<LooseFloats*>(p) = static_cast<LooseFloats>(v);
}
TANDEM_INLINE Floats Set(float x) { return Floats{} + x; }
TANDEM_INLINE Floats Max(Floats a, Floats b) { return a > b ? a : b; }
TANDEM_INLINE Floats Min(Floats a, Floats b) { return a < b ? a : b; }

// Loads and stores of the last n < kLanes elements.
TANDEM_INLINE Floats LoadSome(const float* p, int64_t n, float rest) {
  Floats v = Set(rest);
  std::memcpy(&v, p, static_cast<size_t>(n) * 4);
  return v;
}
TANDEM_INLINE void StoreSome(float* p, Floats v, int64_t n) {
  std::memcpy(p, &v, static_cast<size_t>(n) * 4);
}

TANDEM_INLINE float Sum(Floats v) {
  float a[kLanes];
  std::memcpy(a, &v, sizeof a);
  for (int w = kLanes / 2; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  return a[0];
}
TANDEM_INLINE float Largest(Floats v) {
  float a[kLanes];
  std::memcpy(a, &v, sizeof a);
  for (int w = kLanes / 2; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a[i] = a[i + w] > a[i] ? a[i + w] : a[i];
  return a[0];
}

// kLanes halves to floats and back (to nearest even).
#if defined(__AVX512F__)
TANDEM_INLINE Floats LoadHalf(const void* p) {
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
TANDEM_INLINE void StoreHalf(void* p, Floats v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__)
TANDEM_INLINE Floats LoadHalf(const void* p) {
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
TANDEM_INLINE void StoreHalf(void* p, Floats v) {
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
TANDEM_INLINE float HalfBitsToFloat(uint16_t h) {
  // A half's exponent and mantissa, moved into place, are 2^112 times too small as a float;
  // subnormals come out right by the same multiplication.
  uint32_t u = static_cast<uint32_t>(h & 0x7fff) << 13;
  float f;
  std::memcpy(&f, &u, 4);
  f *= 0x1p112f;
  std::memcpy(&u, &f, 4);
  if ((h & 0x7c00) == 0x7c00) u = 0x7f800000u | static_cast<uint32_t>(h & 0x3ff) << 13;
  u |= static_cast<uint32_t>(h & 0x8000) << 16;
  std::memcpy(&f, &u, 4);
  return f;
}
TANDEM_INLINE uint16_t FloatToHalfBits(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  const uint32_t sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (u > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);   // NaN.
  if (u >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // Rounds to infinity.
  if (u < 0x38800000) {  // Subnormal: the addition rounds at 2^-24.
    float f;
    std::memcpy(&f, &u, 4);
    f += 0.5f;
    std::memcpy(&u, &f, 4);
    return static_cast<uint16_t>(sign | (u - 0x3f000000));
  }
  u += 0xfff + (u >> 13 & 1);
  return static_cast<uint16_t>(sign | ((u - 0x38000000) >> 13));
}
TANDEM_INLINE Floats LoadHalf(const void* p) {
  uint16_t h[kLanes];
  std::memcpy(h, p, sizeof h);
  float f[kLanes];
  for (int i = 0; i < kLanes; ++i) f[i] = HalfBitsToFloat(h[i]);
  return Load(f);
}
TANDEM_INLINE void StoreHalf(void* p, Floats v) {
  float f[kLanes];
  Store(f, v);
  uint16_t h[kLanes];
  for (int i = 0; i < kLanes; ++i) h[i] = FloatToHalfBits(f[i]);
  std::memcpy(p, h, sizeof h);
}
#endif

TANDEM_INLINE float ScalarHalf(const void* p) {
#if defined(__AVX2__) || defined(__AVX512F__)
  uint16_t h;
  std::memcpy(&h, p, 2);
  return _cvtsh_ss(h);
#else
  uint16_t h;
  std::memcpy(&h, p, 2);
  return HalfBitsToFloat(h);
#endif
}

// exp, about 1e-7 relative; 0 below -87.3, infinity is not made (clamped at 88.3). A NaN stays.
TANDEM_INLINE Floats Exp(Floats x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer.
  const Floats low = Set(-87.33f);
  const Ints underflow = x < low;
  const Floats y = x > Set(88.37f) ? Set(88.37f) : (x < low ? low : x);
  const Floats shifted = y * 1.44269504f + kMagic;
  const Floats n = shifted - kMagic;
  Floats r = y - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Floats p = Set(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints exponent = __builtin_convertvector(n, Ints) << 23;
  const Floats scaled = (Floats)((Ints)p + exponent);
  const Floats result = underflow ? Floats{} : scaled;
  return x != x ? x : result;
}

}  // namespace
}  // namespace tandem::cpu
