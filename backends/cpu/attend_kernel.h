// One token's attention over consecutive rows of a cache, for the heads of a group at once: each
// key and value is loaded (and widened) once for up to four heads. Included only by simd_*.cc.
#pragma once

#include "backends/cpu/float_kernels.h"

namespace tandem::cpu {
namespace {

template <bool kHalf>
TANDEM_INLINE Floats LoadElement(const std::byte* p, int64_t i) {
  if constexpr (kHalf)
    return LoadHalf(p + i * 2);
  else
    return Load(reinterpret_cast<const float*>(p) + i);
}

// The sums of four vectors. All three give a fixed order.
TANDEM_INLINE void StoreFourSums(Floats a, Floats b, Floats c, Floats d, float scale, float* out) {
#if defined(__AVX512F__)
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b),
                                  _mm512_unpackhi_ps((__m512)a, (__m512)b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d),
                                  _mm512_unpackhi_ps((__m512)c, (__m512)d));
  const __m512d abd = _mm512_castps_pd(ab), cdd = _mm512_castps_pd(cd);
  const __m512 four = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(abd, cdd)),
                                    _mm512_castpd_ps(_mm512_unpackhi_pd(abd, cdd)));
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(four),
                    _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(four), 1)));
#elif defined(__AVX2__)
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b),
                                  _mm256_unpackhi_ps((__m256)a, (__m256)b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps((__m256)c, (__m256)d),
                                  _mm256_unpackhi_ps((__m256)c, (__m256)d));
  const __m256d abd = _mm256_castps_pd(ab), cdd = _mm256_castps_pd(cd);
  const __m256 eight = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(abd, cdd)),
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(abd, cdd)));
#endif
#if defined(__AVX2__) || defined(__AVX512F__)
  const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  _mm_storeu_ps(out, _mm_mul_ps(sums, _mm_set1_ps(scale)));
#else
  out[0] = Sum(a) * scale;
  out[1] = Sum(b) * scale;
  out[2] = Sum(c) * scale;
  out[3] = Sum(d) * scale;
#endif
}

TANDEM_INLINE void PrefetchRow(const std::byte* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(row + i);
}

template <int kHeads, bool kHalf>
TANDEM_INLINE void ScoreHeads(const AttendPart& part, const float* const* queries, float* scores,
                              int64_t rounded) {
  constexpr int64_t kBytes = kHalf ? 2 : 4, kAhead = 16;
  for (int64_t s = 0; s < part.count; s += 4) {
    const std::byte* key[4];
    for (int j = 0; j < 4; ++j) {
      key[j] = part.keys + Smaller(s + j, part.count - 1) * part.key_stride;
      // A group's rows are apart by those of the others, which the hardware does not foresee.
      PrefetchRow(key[j] + kAhead * part.key_stride, part.width * kBytes);
      PrefetchRow(part.values + (s + j) * part.value_stride, part.value_width * kBytes);
    }
    Floats sums[kHeads][4];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[h][j] = Floats{};
    for (int64_t i = 0; i < part.width; i += kLanes) {
      Floats k[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) k[j] = LoadElement<kHalf>(key[j], i);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const Floats q = Load(queries[h] + i);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) sums[h][j] += q * k[j];
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
      StoreFourSums(sums[h][0], sums[h][1], sums[h][2], sums[h][3], part.scale,
                    scores + h * rounded + s);
  }
}

template <int kHeads, bool kHalf>
TANDEM_INLINE void SumValues(const AttendPart& part, const float* scores, int64_t rounded,
                             float* out, int64_t out_stride) {
  constexpr int kVectors = kLanes == 16 ? 4 : 2;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= part.value_width; column += kVectors * kLanes) {
    Floats sums[kHeads][kVectors];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[h][v] = Floats{};
    const std::byte* value = part.values;
    for (int64_t s = 0; s < part.count; ++s, value += part.value_stride) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Floats x = LoadElement<kHalf>(value, column + v * kLanes);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) sums[h][v] += x * scores[h * rounded + s];
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        Store(out + h * out_stride + column + v * kLanes, sums[h][v]);
  }
  for (; column < part.value_width; column += kLanes) {
    Floats sums[kHeads] = {};
    const std::byte* value = part.values;
    for (int64_t s = 0; s < part.count; ++s, value += part.value_stride) {
      const Floats x = LoadElement<kHalf>(value, column);
      for (int h = 0; h < kHeads; ++h) sums[h] += x * scores[h * rounded + s];
    }
    for (int h = 0; h < kHeads; ++h) Store(out + h * out_stride + column, sums[h]);
  }
}

template <int kHeads, bool kHalf>
void AttendHeads(const AttendPart& part, int first) {
  const int64_t rounded = RoundedKeys(part.count), out_stride = part.value_width + 2;
  float* scores = part.scores + first * rounded;
  float* out = part.out + first * out_stride;
  ScoreHeads<kHeads, kHalf>(part, part.queries + first, scores, rounded);
  for (int h = 0; h < kHeads; ++h) {
    const float largest = LargestOf(scores + h * rounded, part.count);
    float* end = out + h * out_stride + part.value_width;
    end[0] = largest;
    end[1] = ExpSum(scores + h * rounded, part.count, largest);
  }
  SumValues<kHeads, kHalf>(part, scores, rounded, out, out_stride);
}

template <bool kHalf>
void AttendAny(const AttendPart& part) {
  int first = 0;
  while (first < part.heads) {
    switch (Smaller(part.heads - first, 4)) {
      case 1:
        AttendHeads<1, kHalf>(part, first);
        break;
      case 2:
        AttendHeads<2, kHalf>(part, first);
        break;
      case 3:
        AttendHeads<3, kHalf>(part, first);
        break;
      default:
        AttendHeads<4, kHalf>(part, first);
    }
    first += Smaller(part.heads - first, 4);
  }
}

void Attend(const AttendPart& part) {
  if (part.half)
    AttendAny<true>(part);
  else
    AttendAny<false>(part);
}

}  // namespace
}  // namespace tandem::cpu
