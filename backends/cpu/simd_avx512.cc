// AVX-512 with VNNI (Zen 4, Ice Lake and later).
#if defined(__AVX512F__) && defined(__AVX512VNNI__)

#include "backends/cpu/attend_kernel.h"
#include "backends/cpu/float_kernels.h"
#include "backends/cpu/quantize_kernel.h"

namespace tandem::cpu {
namespace {

TANDEM_INLINE __m512 Halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TANDEM_INLINE __m512i Broadcast(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
TANDEM_INLINE __m512i LoadBytes(const std::byte* p) { return _mm512_loadu_si512(p); }

TANDEM_INLINE QuantizedBlock QuantizeBlock(const float* x, int8_t* q) {
  QuantizedBlock block;
  for (int h = 0; h < 2; ++h) {
    const __m512 v = _mm512_loadu_ps(x + h * 16);
    const float largest = _mm512_reduce_max_ps(_mm512_abs_ps(v));
    // Below that, 127 / largest is no float.
    const __m512 inverse = _mm512_set1_ps(largest > 1e-35f ? 127.0f / largest : 0.0f);
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(v, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + h * 16), _mm512_cvtepi32_epi8(rounded));
    block.scale[h] = largest / 127.0f;
    block.sum[h] = _mm512_reduce_add_epi32(rounded);
  }
  return block;
}

// ---- One token --------------------------------------------------------------------------------
// One forward walk over the tiles: the hardware prefetcher keeps up with that better than software
// prefetch, and better than several tiles side by side. What it can not see is the jump to the
// next piece, so the last tile asks for the head of `next`.

TANDEM_INLINE void PrefetchHead(const std::byte* next, int64_t b) {
  for (int i = 0; i < 5; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(next + (b * 5 + i) * 64), _MM_HINT_T0);
}

// Sum of nibbles times activations over half a block, from `start`; w and q begin with the half.
TANDEM_INLINE __m512i NibbleSums(const std::byte* w, const int8_t* q, __m512i start) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i low = start, high = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const __m512i wv = LoadBytes(w + v * 64);
    low = _mm512_dpbusd_epi32(low, _mm512_and_si512(wv, mask), Broadcast(q + v * 8));
    high = _mm512_dpbusd_epi32(high, _mm512_and_si512(_mm512_srli_epi16(wv, 4), mask),
                               Broadcast(q + v * 8 + 4));
  }
  return _mm512_add_epi32(low, high);
}

void GemvQ41(const std::byte* w, int64_t tiles, int64_t blocks, const QuantizedVector& x, float* y,
             const std::byte* next) {
  for (int64_t t = 0; t < tiles; ++t) {
    __m512 sum = _mm512_setzero_ps(), minimums = sum;
    for (int64_t b = 0; b < blocks; ++b, w += kQ41Bytes) {
      const __m512 d = Halves(w + 256);
#pragma GCC unroll 2
      for (int64_t h = 0; h < 2; ++h) {
        const __m512i dots = NibbleSums(w + h * 128, x.q + b * 32 + h * 16, _mm512_setzero_si512());
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                              _mm512_mul_ps(d, _mm512_set1_ps(x.scale[2 * b + h])), sum);
      }
      minimums = _mm512_fmadd_ps(Halves(w + 288), _mm512_set1_ps(x.scaled_sum[b]), minimums);
      if (t + 1 == tiles) PrefetchHead(next, b);
    }
    _mm512_storeu_ps(y + t * 16, _mm512_add_ps(sum, minimums));
  }
}

void GemvQ40(const std::byte* w, int64_t tiles, int64_t blocks, const QuantizedVector& x, float* y,
             const std::byte* next) {
  const int64_t tile_bytes = TileBytes(TileFormat::kQ4_0, blocks * kBlock);
  for (int64_t t = 0; t < tiles; ++t, w += tile_bytes) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* pair = w + b / 2 * kQ40PairBytes;
      const __m512 d = Halves(pair + 512 + b % 2 * 32);
#pragma GCC unroll 2
      for (int64_t h = 0; h < 2; ++h) {
        const __m512i dots = NibbleSums(pair + b % 2 * 256 + h * 128, x.q + b * 32 + h * 16,
                                        _mm512_set1_epi32(-8 * x.sum[2 * b + h]));
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                              _mm512_mul_ps(d, _mm512_set1_ps(x.scale[2 * b + h])), sum);
      }
      if (t + 1 == tiles) PrefetchHead(next, b);
    }
    _mm512_storeu_ps(y + t * 16, sum);
  }
}

void GemvQ80(const std::byte* w, int64_t tiles, int64_t blocks, const QuantizedVector& x, float* y,
             const std::byte* next) {
  const int64_t tile_bytes = TileBytes(TileFormat::kQ8_0, blocks * kBlock);
  for (int64_t t = 0; t < tiles; ++t, w += tile_bytes) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* pair = w + b / 2 * kQ80PairBytes;
      const __m512 d = Halves(pair + 1024 + b % 2 * 32);
#pragma GCC unroll 2
      for (int64_t h = 0; h < 2; ++h) {
        __m512i dots = _mm512_set1_epi32(-128 * x.sum[2 * b + h]);
#pragma GCC unroll 4
        for (int64_t g = 4 * h; g < 4 * h + 4; ++g)
          dots = _mm512_dpbusd_epi32(dots, LoadBytes(pair + (b % 2 * 8 + g) * 64),
                                     Broadcast(x.q + b * 32 + g * 4));
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                              _mm512_mul_ps(d, _mm512_set1_ps(x.scale[2 * b + h])), sum);
      }
      if (t + 1 == tiles) PrefetchHead(next, b);
    }
    _mm512_storeu_ps(y + t * 16, sum);
  }
}

void Gemv(TileFormat format, const std::byte* w, int64_t tiles, int64_t blocks,
          const QuantizedVector& x, float* y, const std::byte* next) {
  if (format == TileFormat::kQ4_1) return GemvQ41(w, tiles, blocks, x, y, next);
  if (format == TileFormat::kQ4_0) return GemvQ40(w, tiles, blocks, x, y, next);
  GemvQ80(w, tiles, blocks, x, y, next);
}

// ---- Many tokens ------------------------------------------------------------------------------
// 32 rows (2 tiles) are unpacked once into the panel: for each 32 k, 8 x 2 x 64 B of bytes, then
// d[2][16] and m[2][16] as floats. The inner kernel holds 32 rows x kTokens tokens: 2 * kTokens
// int32 sums (live for half a block) and 2 * kTokens float sums. 8 loads feed 12 VPDPBUSD.

constexpr int64_t kPanelBlock = 8 * 2 * 64 + 256;

void UnpackPanel(TileFormat format, const std::byte* tile, int half, int64_t blocks,
                 std::byte* out) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (int64_t b = 0; b < blocks; ++b, out += kPanelBlock) {
    const std::byte *quants, *scales;
    if (format == TileFormat::kQ4_1) {
      quants = tile + b * kQ41Bytes;
      scales = quants + 256;
      _mm512_storeu_ps(out + 1152 + half * 64, Halves(quants + 288));
    } else if (format == TileFormat::kQ4_0) {
      quants = tile + b / 2 * kQ40PairBytes + b % 2 * 256;
      scales = tile + b / 2 * kQ40PairBytes + 512 + b % 2 * 32;
    } else {
      quants = tile + b / 2 * kQ80PairBytes + b % 2 * 512;
      scales = tile + b / 2 * kQ80PairBytes + 1024 + b % 2 * 32;
    }
    _mm512_storeu_ps(out + 1024 + half * 64, Halves(scales));
    if (format == TileFormat::kQ8_0) {
      for (int g = 0; g < 8; ++g)
        _mm512_storeu_si512(out + (2 * g + half) * 64, LoadBytes(quants + g * 64));
      continue;
    }
    for (int v = 0; v < 4; ++v) {
      const __m512i wv = LoadBytes(quants + v * 64);
      _mm512_storeu_si512(out + (4 * v + half) * 64, _mm512_and_si512(wv, mask));
      _mm512_storeu_si512(out + (4 * v + 2 + half) * 64,
                          _mm512_and_si512(_mm512_srli_epi16(wv, 4), mask));
    }
  }
}

// kOffset: what was added to each quant; kMinimum: whether there is an m.
template <int kOffset, bool kMinimum>
TANDEM_INLINE void MultiplyPanel(const std::byte* w, int64_t blocks, const std::byte* a, float* y,
                                 int64_t y_stride, int64_t tokens) {
  __m512 f[kTokens][2];
  for (int t = 0; t < kTokens; ++t) f[t][0] = f[t][1] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, w += kPanelBlock, a += kTokenBlockBytes) {
    const float* scales = reinterpret_cast<const float*>(a + 8 * kTokens * 4);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      __m512i s[kTokens][2];
      int32_t sums[kTokens];
      if constexpr (kOffset != 0) std::memcpy(sums, a + (11 + h) * kTokens * 4, sizeof sums);
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t)
        s[t][0] = s[t][1] =
            kOffset != 0 ? _mm512_set1_epi32(-kOffset * sums[t]) : _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int g = 4 * h; g < 4 * h + 4; ++g) {
        const __m512i w0 = LoadBytes(w + g * 128), w1 = LoadBytes(w + g * 128 + 64);
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          const __m512i x = Broadcast(a + (g * kTokens + t) * 4);
          s[t][0] = _mm512_dpbusd_epi32(s[t][0], w0, x);
          s[t][1] = _mm512_dpbusd_epi32(s[t][1], w1, x);
        }
      }
      const __m512 d0 = _mm512_loadu_ps(w + 1024), d1 = _mm512_loadu_ps(w + 1088);
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        const __m512 scale = _mm512_set1_ps(scales[h * kTokens + t]);
        f[t][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[t][0]), _mm512_mul_ps(d0, scale), f[t][0]);
        f[t][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[t][1]), _mm512_mul_ps(d1, scale), f[t][1]);
      }
    }
    if constexpr (kMinimum) {
      const __m512 m0 = _mm512_loadu_ps(w + 1152), m1 = _mm512_loadu_ps(w + 1216);
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        const __m512 scaled_sum = _mm512_set1_ps(scales[2 * kTokens + t]);
        f[t][0] = _mm512_fmadd_ps(m0, scaled_sum, f[t][0]);
        f[t][1] = _mm512_fmadd_ps(m1, scaled_sum, f[t][1]);
      }
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    if (t >= tokens) break;
    _mm512_storeu_ps(y + t * y_stride, f[t][0]);
    _mm512_storeu_ps(y + t * y_stride + 16, f[t][1]);
  }
}

template <int kOffset, bool kMinimum>
void MultiplyPanels(const std::byte* panel, int64_t blocks, const std::byte* acts, int64_t tokens,
                    float* y, int64_t y_stride) {
  for (int64_t t = 0; t < tokens; t += kTokens, acts += TokenTileBytes(blocks))
    MultiplyPanel<kOffset, kMinimum>(panel, blocks, acts, y + t * y_stride, y_stride, tokens - t);
}

void Gemm(TileFormat format, const std::byte* first, const std::byte* second, int64_t blocks,
          const std::byte* acts, int64_t tokens, float* y, int64_t y_stride, std::byte* panel) {
  UnpackPanel(format, first, 0, blocks, panel);
  if (second != nullptr) {
    UnpackPanel(format, second, 1, blocks, panel);
  } else {
    for (int64_t b = 0; b < blocks; ++b)
      for (int i = 0; i < 10; ++i)  // The second half of 8 quants, d and m.
        std::memset(panel + b * kPanelBlock + i * 128 + 64, 0, 64);
  }
  if (format == TileFormat::kQ4_1)
    MultiplyPanels<0, true>(panel, blocks, acts, tokens, y, y_stride);
  else if (format == TileFormat::kQ4_0)
    MultiplyPanels<8, false>(panel, blocks, acts, tokens, y, y_stride);
  else
    MultiplyPanels<128, false>(panel, blocks, acts, tokens, y, y_stride);
}

constexpr Simd kSimd = {
    .name = "avx512",
    .spelling = "AVX-512 VNNI",
#include "backends/cpu/simd_table.inc"
};

}  // namespace

const Simd* Avx512Simd() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vnni")
             ? &kSimd
             : nullptr;
}

}  // namespace tandem::cpu

#else

#include "backends/cpu/simd.h"

namespace tandem::cpu {
const Simd* Avx512Simd() { return nullptr; }
}  // namespace tandem::cpu

#endif
