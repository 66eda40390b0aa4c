// No instruction set assumed: vectors of four floats, which every compiler lowers to something.
#include "backends/cpu/attend_kernel.h"
#include "backends/cpu/float_kernels.h"
#include "backends/cpu/quantize_kernel.h"

namespace tandem::cpu {
namespace {

// To the nearest integer, ties to even, for |x| < 2^22.
TANDEM_INLINE int32_t Round(float x) {
  constexpr float kMagic = 12582912.0f;
  const float shifted = x + kMagic;
  int32_t bits;
  std::memcpy(&bits, &shifted, 4);
  return bits - 0x4b400000;
}

QuantizedBlock QuantizeBlock(const float* x, int8_t* q) {
  QuantizedBlock block;
  for (int h = 0; h < 2; ++h, x += 16, q += 16) {
    float largest = 0;
    for (int i = 0; i < 16; ++i) {
      const float magnitude = x[i] < 0 ? -x[i] : x[i];
      largest = magnitude > largest ? magnitude : largest;
    }
    // Below that, 127 / largest is no float.
    const float inverse = largest > 1e-35f ? 127.0f / largest : 0.0f;
    block.scale[h] = largest / 127.0f;
    block.sum[h] = 0;
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<int8_t>(Round(x[i] * inverse));
      block.sum[h] += q[i];
    }
  }
  return block;
}

// One block of a tile with a byte for each quant, as integers in the order of k.
struct BlockOfRows {
  int16_t q[kBlock][kTileRows];
  float d[kTileRows], m[kTileRows];
};

void UnpackBlockOfRows(TileFormat format, const std::byte* tile, int64_t b, BlockOfRows& out) {
  const std::byte *quants, *scales;
  for (float& m : out.m) m = 0;
  if (format == TileFormat::kQ8_0) {
    quants = tile + b / 2 * kQ80PairBytes + b % 2 * 512;
    scales = tile + b / 2 * kQ80PairBytes + 1024 + b % 2 * 32;
    for (int k = 0; k < kBlock; ++k)
      for (int r = 0; r < kTileRows; ++r)
        out.q[k][r] =
            static_cast<int16_t>(static_cast<int>(quants[k / 4 * 64 + r * 4 + k % 4]) - 128);
  } else {
    int offset = 0;
    if (format == TileFormat::kQ4_1) {
      quants = tile + b * kQ41Bytes;
      scales = quants + 256;
      for (int r = 0; r < kTileRows; ++r) out.m[r] = ScalarHalf(quants + 288 + 2 * r);
    } else {
      quants = tile + b / 2 * kQ40PairBytes + b % 2 * 256;
      scales = tile + b / 2 * kQ40PairBytes + 512 + b % 2 * 32;
      offset = 8;
    }
    for (int v = 0; v < 4; ++v)
      for (int c = 0; c < 4; ++c)
        for (int r = 0; r < kTileRows; ++r) {
          const int byte = static_cast<int>(quants[v * 64 + r * 4 + c]);
          out.q[8 * v + c][r] = static_cast<int16_t>((byte & 15) - offset);
          out.q[8 * v + 4 + c][r] = static_cast<int16_t>((byte >> 4) - offset);
        }
  }
  for (int r = 0; r < kTileRows; ++r) out.d[r] = ScalarHalf(scales + 2 * r);
}

// `scales` are those of the halves, `stride` floats apart.
TANDEM_INLINE void AddBlock(const BlockOfRows& w, const int8_t* q, const float* scales,
                            int64_t stride, float scaled_sum, float* sums) {
  for (int h = 0; h < 2; ++h) {
    int32_t dots[kTileRows] = {};
    for (int k = 16 * h; k < 16 * h + 16; ++k)
      for (int r = 0; r < kTileRows; ++r) dots[r] += w.q[k][r] * q[k];
    for (int r = 0; r < kTileRows; ++r)
      sums[r] += static_cast<float>(dots[r]) * (w.d[r] * scales[h * stride]);
  }
  for (int r = 0; r < kTileRows; ++r) sums[r] += w.m[r] * scaled_sum;
}

void Gemv(TileFormat format, const std::byte* w, int64_t tiles, int64_t blocks,
          const QuantizedVector& x, float* y, const std::byte*) {
  const int64_t tile_bytes = TileBytes(format, blocks * kBlock);
  for (int64_t t = 0; t < tiles; ++t, w += tile_bytes, y += kTileRows) {
    for (int r = 0; r < kTileRows; ++r) y[r] = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      BlockOfRows rows;
      UnpackBlockOfRows(format, w, b, rows);
      AddBlock(rows, x.q + b * kBlock, x.scale + 2 * b, 1, x.scaled_sum[b], y);
    }
  }
}

void Gemm(TileFormat format, const std::byte* first, const std::byte* second, int64_t blocks,
          const std::byte* acts, int64_t tokens, float* y, int64_t y_stride, std::byte*) {
  for (int64_t t = 0; t < tokens; ++t)
    std::memset(y + t * y_stride, 0, 2 * kTileRows * sizeof(float));
  for (int half = 0; half < 2; ++half) {
    const std::byte* tile = half == 0 ? first : second;
    if (tile == nullptr) return;
    for (int64_t b = 0; b < blocks; ++b) {
      BlockOfRows rows;
      UnpackBlockOfRows(format, tile, b, rows);
      for (int64_t t = 0; t < tokens; ++t) {
        const std::byte* block = acts + t / kTokens * TokenTileBytes(blocks) + b * kTokenBlockBytes;
        const int64_t i = t % kTokens;
        int8_t q[kBlock];
        for (int g = 0; g < 8; ++g) std::memcpy(q + g * 4, block + (g * kTokens + i) * 4, 4);
        const float* scales = reinterpret_cast<const float*>(block + (8 * kTokens + i) * 4);
        AddBlock(rows, q, scales, kTokens, scales[2 * kTokens],
                 y + t * y_stride + half * kTileRows);
      }
    }
  }
}

constexpr Simd kSimd = {
    .name = "portable",
    .spelling = "portable",
#include "backends/cpu/simd_table.inc"
};

}  // namespace

const Simd* PortableSimd() { return &kSimd; }

}  // namespace tandem::cpu
