// The inner loops, one table for each instruction set, chosen when the device is made.
//
// Pointers may have any alignment; the packed layouts (tiles.h) and scratch that the callers lay
// out are 64-byte aligned. Each function has one fixed order of summation, so that its results
// depend on its arguments alone. The three tables agree up to rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/cpu/tiles.h"

namespace tandem::cpu {

// One vector of activations in 8 bits: x = scale * q in halves (16) of blocks of 32.
struct QuantizedVector {
  const int8_t* q;
  const float* scale;       // Of each half.
  const float* scaled_sum;  // Of each block: scale * sum(q), both halves.
  const int32_t* sum;       // Of each half.
};

// Heads of one group over consecutive cache rows: a part of attention for one token.
struct AttendPart {
  const float* const* queries;  // `heads` rows of `width`.
  int heads = 0;
  int64_t width = 0, value_width = 0;  // Multiples of kAttendMultiple.
  bool half = false;                   // Keys and values are F16, else F32.
  const std::byte* keys = nullptr;     // Rows `key_stride` bytes apart.
  const std::byte* values = nullptr;
  int64_t key_stride = 0, value_stride = 0;
  int64_t count = 0;        // Rows, at least 1.
  float scale = 1;          // Of the scores.
  float* scores = nullptr;  // heads x RoundedKeys(count), overwritten.
  // Results of each head, heads apart by value_width + 2: unnormalised sum of values, then the
  // largest score and the sum of exp(score - largest).
  float* out = nullptr;
};
inline constexpr int64_t kAttendMultiple = 16;
inline int64_t RoundedKeys(int64_t count) { return (count + 15) / 16 * 16; }

struct Simd {
  std::string_view name;      // As in CpuOptions::isa.
  std::string_view spelling;  // For people: "AVX-512 VNNI".

  // ---- Activations in 8 bits and block weights in tiles.
  void (*quantize)(const float* x, int64_t blocks, int8_t* q, float* scale, float* scaled_sum,
                   int32_t* sum);
  // `count` (1 to kTokens) rows into one token tile; the other rows of the tile become zero.
  void (*quantize_tile)(const float* const* rows, int count, int64_t blocks, std::byte* out);
  // y[16 * tiles] = W x. `next` is what will be read after it: its head is prefetched.
  void (*gemv)(TileFormat format, const std::byte* w, int64_t tiles, int64_t blocks,
               const QuantizedVector& x, float* y, const std::byte* next);
  // y[token][32 rows] for `tokens` tokens in token tiles. `second` is the second tile of 16 rows,
  // null if there is none (its results are then zero). `panel` is PanelBytes(blocks) of scratch.
  // Writes 32 floats for each token.
  void (*gemm)(TileFormat format, const std::byte* first, const std::byte* second, int64_t blocks,
               const std::byte* acts, int64_t tokens, float* y, int64_t y_stride, std::byte* panel);

  // ---- F32 products.
  // Elements [begin, end) of k (multiples of 32 for block formats) of a tile of 16 rows as
  // floats: out[(k - begin) * stride + row].
  void (*unpack)(TileFormat format, const std::byte* tile, int64_t begin, int64_t end, float* out,
                 int64_t stride);
  // sums[16] += panel[k][16] x.
  void (*accumulate)(const float* panel, int64_t k, const float* x, float* sums);
  // c[i][64] (+)= sum over k of a[i][k] * panel[k][64] for i < rows <= kTokens. All kTokens
  // pointers of `a` must be readable.
  void (*multiply)(const float* const* a, const float* panel, int64_t k, float* c, int64_t c_stride,
                   int rows, bool add);
  float (*dot)(const float* a, const float* b, int64_t n);

  // ---- Attention.
  void (*attend)(const AttendPart& part);
  // x[i] = exp(x[i] - shift); the sum.
  float (*exp_sum)(float* x, int64_t n, float shift);
  float (*largest)(const float* x, int64_t n);  // -infinity if n is 0.

  // ---- Rows of floats; out may be an input.
  float (*sum_squares)(const float* x, int64_t n);
  void (*scale)(const float* x, float factor, float bias, float* out, int64_t n);
  void (*scale_weighted)(const float* x, float factor, const float* weight, float* out, int64_t n);
  void (*add)(const float* a, const float* b, float* out, int64_t n);
  void (*mul)(const float* a, const float* b, float* out, int64_t n);
  void (*silu)(const float* x, float* out, int64_t n);
  void (*swiglu)(const float* gate, const float* up, float* out, int64_t n);
  void (*from_half)(const uint16_t* x, float* out, int64_t n);
  void (*to_half)(const float* x, uint16_t* out, int64_t n);  // To nearest even.
  // cos and sin of n angles.
  void (*cos_sin)(const double* angles, int64_t n, float* cosines, float* sines);
  // Rotates n pairs; halves: (x[i], x[i + n]), else (x[2i], x[2i + 1]).
  void (*rotate)(const float* x, const float* cosines, const float* sines, int64_t n, bool halves,
                 float* out);
};

// Null where the compiler or the machine does not have it.
const Simd* Avx512Simd();
const Simd* Avx2Simd();
const Simd* PortableSimd();
// By name, "" for the best that this machine has; null if there is none of that name.
const Simd* FindSimd(std::string_view name);

}  // namespace tandem::cpu
