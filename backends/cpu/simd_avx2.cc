// AVX2 with FMA and F16C.
//
// VPMADDUBSW gives sums of two u8 * s8 in int16. Nibbles are 0..15, so the 4 groups of half a block
// fit one int16 sum (8 * 15 * 127 = 15240) and are widened once a half. For Q8_0 the weight gives
// its magnitude and the activation takes its sign: the activation is at least -127, so that its
// negative is a byte too, and 2 * 128 * 127 fits.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "backends/cpu/attend_kernel.h"
#include "backends/cpu/float_kernels.h"
#include "backends/cpu/quantize_kernel.h"

namespace tandem::cpu {
namespace {

TANDEM_INLINE __m256 Halves(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TANDEM_INLINE __m256i LoadBytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
TANDEM_INLINE void StoreBytes(std::byte* p, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
TANDEM_INLINE __m256i Broadcast(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

TANDEM_INLINE QuantizedBlock QuantizeBlock(const float* x, int8_t* q) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  QuantizedBlock block;
  __m256i r[4];
  for (int h = 0; h < 2; ++h) {
    const __m256 a = _mm256_loadu_ps(x + h * 16), b = _mm256_loadu_ps(x + h * 16 + 8);
    const float largest =
        Largest((Floats)_mm256_max_ps(_mm256_and_ps(a, magnitude), _mm256_and_ps(b, magnitude)));
    // Below that, 127 / largest is no float.
    const __m256 inverse = _mm256_set1_ps(largest > 1e-35f ? 127.0f / largest : 0.0f);
    r[2 * h] = _mm256_cvtps_epi32(_mm256_mul_ps(a, inverse));
    r[2 * h + 1] = _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse));
    const __m256i sums = _mm256_add_epi32(r[2 * h], r[2 * h + 1]);
    int32_t s[8], sum = 0;
    std::memcpy(s, &sums, sizeof s);
    for (int i = 0; i < 8; ++i) sum += s[i];
    block.scale[h] = largest / 127.0f;
    block.sum[h] = sum;
  }
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(bytes, order));
  return block;
}

// ---- One token --------------------------------------------------------------------------------

TANDEM_INLINE void PrefetchHead(const std::byte* next, int64_t b) {  // See simd_avx512.cc.
  for (int i = 0; i < 5; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(next + (b * 5 + i) * 64), _MM_HINT_T0);
}

// Sums over half a block for rows 0-7 and 8-15; w and q begin with the half.
struct RowSums {
  __m256i half[2];
};

TANDEM_INLINE RowSums NibbleSums(const std::byte* w, const int8_t* q) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i s[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const __m256i x0 = Broadcast(q + v * 8), x1 = Broadcast(q + v * 8 + 4);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i wv = LoadBytes(w + v * 64 + h * 32);
      const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(wv, mask), x0);
      const __m256i high =
          _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(wv, 4), mask), x1);
      s[h] = _mm256_add_epi16(s[h], _mm256_add_epi16(low, high));
    }
  }
  return {{_mm256_madd_epi16(s[0], ones), _mm256_madd_epi16(s[1], ones)}};
}

TANDEM_INLINE RowSums ByteSums(const std::byte* w, const int8_t* q) {
  const __m256i ones = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(static_cast<char>(0x80));
  RowSums s = {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __m256i x = Broadcast(q + g * 4);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i wv = _mm256_xor_si256(LoadBytes(w + g * 64 + h * 32), flip);
      const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(wv), _mm256_sign_epi8(x, wv));
      s.half[h] = _mm256_add_epi32(s.half[h], _mm256_madd_epi16(products, ones));
    }
  }
  return s;
}

template <TileFormat kFormat>
void GemvOf(const std::byte* w, int64_t tiles, int64_t blocks, const QuantizedVector& x, float* y,
            const std::byte* next) {
  const int64_t tile_bytes = TileBytes(kFormat, blocks * kBlock);
  for (int64_t t = 0; t < tiles; ++t, w += tile_bytes) {
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, minimums[2] = {sum[0], sum[0]};
    for (int64_t b = 0; b < blocks; ++b) {
      if (t + 1 == tiles) PrefetchHead(next, b);
      const std::byte *quants, *scales;
      if constexpr (kFormat == TileFormat::kQ4_1) {
        const std::byte* block = w + b * kQ41Bytes;
        quants = block;
        scales = block + 256;
        const __m256 scaled_sum = _mm256_set1_ps(x.scaled_sum[b]);
        for (int h = 0; h < 2; ++h)
          minimums[h] = _mm256_fmadd_ps(Halves(block + 288 + h * 16), scaled_sum, minimums[h]);
      } else if constexpr (kFormat == TileFormat::kQ4_0) {
        const std::byte* pair = w + b / 2 * kQ40PairBytes;
        quants = pair + b % 2 * 256;
        scales = pair + 512 + b % 2 * 32;
      } else {
        const std::byte* pair = w + b / 2 * kQ80PairBytes;
        quants = pair + b % 2 * 512;
        scales = pair + 1024 + b % 2 * 32;
      }
#pragma GCC unroll 2
      for (int64_t half = 0; half < 2; ++half) {
        const int8_t* q = x.q + b * 32 + half * 16;
        RowSums dots;
        if constexpr (kFormat == TileFormat::kQ8_0)
          dots = ByteSums(quants + half * 256, q);
        else
          dots = NibbleSums(quants + half * 128, q);
        if constexpr (kFormat == TileFormat::kQ4_0) {
          const __m256i offset = _mm256_set1_epi32(-8 * x.sum[2 * b + half]);
          for (int h = 0; h < 2; ++h) dots.half[h] = _mm256_add_epi32(dots.half[h], offset);
        }
        const __m256 scale = _mm256_set1_ps(x.scale[2 * b + half]);
        for (int h = 0; h < 2; ++h)
          sum[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots.half[h]),
                                   _mm256_mul_ps(Halves(scales + h * 16), scale), sum[h]);
      }
    }
    for (int h = 0; h < 2; ++h)
      _mm256_storeu_ps(y + t * 16 + h * 8, _mm256_add_ps(sum[h], minimums[h]));
  }
}

void Gemv(TileFormat format, const std::byte* w, int64_t tiles, int64_t blocks,
          const QuantizedVector& x, float* y, const std::byte* next) {
  if (format == TileFormat::kQ4_1) return GemvOf<TileFormat::kQ4_1>(w, tiles, blocks, x, y, next);
  if (format == TileFormat::kQ4_0) return GemvOf<TileFormat::kQ4_0>(w, tiles, blocks, x, y, next);
  GemvOf<TileFormat::kQ8_0>(w, tiles, blocks, x, y, next);
}

// ---- Many tokens ------------------------------------------------------------------------------
// 16 rows x 3 tokens at a time: 6 integer sums and 6 float sums are what 16 registers hold beside
// the operands. The panel is a tile with a byte for each quant (Q8_0: signed), d[16] and m[16].

constexpr int64_t kPanelBlock = 8 * 64 + 128;
constexpr int kPassTokens = 3;

template <TileFormat kFormat>
void UnpackPanel(const std::byte* tile, int64_t blocks, std::byte* out) {
  const __m256i mask = _mm256_set1_epi8(15), flip = _mm256_set1_epi8(static_cast<char>(0x80));
  for (int64_t b = 0; b < blocks; ++b, out += kPanelBlock) {
    const std::byte *quants, *scales;
    if constexpr (kFormat == TileFormat::kQ4_1) {
      quants = tile + b * kQ41Bytes;
      scales = quants + 256;
      for (int h = 0; h < 2; ++h)
        _mm256_storeu_ps(reinterpret_cast<float*>(out + 576 + h * 32),
                         Halves(quants + 288 + h * 16));
    } else if constexpr (kFormat == TileFormat::kQ4_0) {
      quants = tile + b / 2 * kQ40PairBytes + b % 2 * 256;
      scales = tile + b / 2 * kQ40PairBytes + 512 + b % 2 * 32;
    } else {
      quants = tile + b / 2 * kQ80PairBytes + b % 2 * 512;
      scales = tile + b / 2 * kQ80PairBytes + 1024 + b % 2 * 32;
    }
    for (int h = 0; h < 2; ++h)
      _mm256_storeu_ps(reinterpret_cast<float*>(out + 512 + h * 32), Halves(scales + h * 16));
    if constexpr (kFormat == TileFormat::kQ8_0) {
      for (int i = 0; i < 16; ++i)
        StoreBytes(out + i * 32, _mm256_xor_si256(LoadBytes(quants + i * 32), flip));
    } else {
      for (int v = 0; v < 4; ++v)
        for (int h = 0; h < 2; ++h) {
          const __m256i wv = LoadBytes(quants + v * 64 + h * 32);
          StoreBytes(out + v * 128 + h * 32, _mm256_and_si256(wv, mask));
          StoreBytes(out + v * 128 + 64 + h * 32, _mm256_and_si256(_mm256_srli_epi16(wv, 4), mask));
        }
    }
  }
}

template <TileFormat kFormat>
TANDEM_INLINE void MultiplyPanel(const std::byte* w, int64_t blocks, const std::byte* a, float* y,
                                 int64_t y_stride, int64_t tokens) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 f[kPassTokens][2];
#pragma GCC unroll 3
  for (int t = 0; t < kPassTokens; ++t) f[t][0] = f[t][1] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, w += kPanelBlock, a += kTokenBlockBytes) {
    const float* ws = reinterpret_cast<const float*>(w + 512);
    const float* scales = reinterpret_cast<const float*>(a + 8 * kTokens * 4);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256i s[kPassTokens][2];
#pragma GCC unroll 3
      for (int t = 0; t < kPassTokens; ++t) s[t][0] = s[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
      for (int g = 4 * half; g < 4 * half + 4; ++g) {
        const __m256i w0 = LoadBytes(w + g * 64), w1 = LoadBytes(w + g * 64 + 32);
#pragma GCC unroll 3
        for (int t = 0; t < kPassTokens; ++t) {
          const __m256i x = Broadcast(a + (g * kTokens + t) * 4);
          if constexpr (kFormat == TileFormat::kQ8_0) {
            const auto products = [&](__m256i wv) {
              return _mm256_madd_epi16(
                  _mm256_maddubs_epi16(_mm256_abs_epi8(wv), _mm256_sign_epi8(x, wv)), ones);
            };
            s[t][0] = _mm256_add_epi32(s[t][0], products(w0));
            s[t][1] = _mm256_add_epi32(s[t][1], products(w1));
          } else {
            s[t][0] = _mm256_add_epi16(s[t][0], _mm256_maddubs_epi16(w0, x));
            s[t][1] = _mm256_add_epi16(s[t][1], _mm256_maddubs_epi16(w1, x));
          }
        }
      }
#pragma GCC unroll 3
      for (int t = 0; t < kPassTokens; ++t) {
        const __m256 scale = _mm256_set1_ps(scales[half * kTokens + t]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          __m256i dots = s[t][h];
          if constexpr (kFormat != TileFormat::kQ8_0) dots = _mm256_madd_epi16(dots, ones);
          if constexpr (kFormat == TileFormat::kQ4_0) {
            int32_t sum;
            std::memcpy(&sum, a + ((11 + half) * kTokens + t) * 4, 4);
            dots = _mm256_add_epi32(dots, _mm256_set1_epi32(-8 * sum));
          }
          f[t][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots),
                                    _mm256_mul_ps(_mm256_loadu_ps(ws + h * 8), scale), f[t][h]);
        }
      }
    }
    if constexpr (kFormat == TileFormat::kQ4_1) {
#pragma GCC unroll 3
      for (int t = 0; t < kPassTokens; ++t)
        for (int h = 0; h < 2; ++h)
          f[t][h] = _mm256_fmadd_ps(_mm256_loadu_ps(ws + 16 + h * 8),
                                    _mm256_set1_ps(scales[2 * kTokens + t]), f[t][h]);
    }
  }
#pragma GCC unroll 3
  for (int t = 0; t < kPassTokens; ++t) {
    if (t >= tokens) break;
    _mm256_storeu_ps(y + t * y_stride, f[t][0]);
    _mm256_storeu_ps(y + t * y_stride + 8, f[t][1]);
  }
}

template <TileFormat kFormat>
void GemmOf(const std::byte* first, const std::byte* second, int64_t blocks, const std::byte* acts,
            int64_t tokens, float* y, int64_t y_stride, std::byte* panel) {
  for (int half = 0; half < 2; ++half) {
    const std::byte* tile = half == 0 ? first : second;
    if (tile == nullptr) {
      for (int64_t t = 0; t < tokens; ++t) std::memset(y + t * y_stride + 16, 0, 64);
      return;
    }
    UnpackPanel<kFormat>(tile, blocks, panel);
    for (int64_t t = 0; t < tokens; t += kPassTokens)
      MultiplyPanel<kFormat>(panel, blocks,
                             acts + t / kTokens * TokenTileBytes(blocks) + t % kTokens * 4,
                             y + t * y_stride + half * 16, y_stride, tokens - t);
  }
}

void Gemm(TileFormat format, const std::byte* first, const std::byte* second, int64_t blocks,
          const std::byte* acts, int64_t tokens, float* y, int64_t y_stride, std::byte* panel) {
  if (format == TileFormat::kQ4_1)
    return GemmOf<TileFormat::kQ4_1>(first, second, blocks, acts, tokens, y, y_stride, panel);
  if (format == TileFormat::kQ4_0)
    return GemmOf<TileFormat::kQ4_0>(first, second, blocks, acts, tokens, y, y_stride, panel);
  GemmOf<TileFormat::kQ8_0>(first, second, blocks, acts, tokens, y, y_stride, panel);
}

constexpr Simd kSimd = {
    .name = "avx2",
    .spelling = "AVX2",
#include "backends/cpu/simd_table.inc"
};

}  // namespace

const Simd* Avx2Simd() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("f16c")
             ? &kSimd
             : nullptr;
}

}  // namespace tandem::cpu

#else

#include "backends/cpu/simd.h"

namespace tandem::cpu {
const Simd* Avx2Simd() { return nullptr; }
}  // namespace tandem::cpu

#endif
