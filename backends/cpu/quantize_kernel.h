// Activations to 8 bits, given how an instruction set does one block of 32. Included only by the
// simd_*.cc files.
#pragma once

#include "backends/cpu/simd.h"
#include "backends/cpu/vector.h"

namespace tandem::cpu {
namespace {

// x = scale * q with q in [-127, 127], to nearest even; sum of q. For each half of the block.
struct QuantizedBlock {
  float scale[2];
  int32_t sum[2];
  float ScaledSum() const {
    return scale[0] * static_cast<float>(sum[0]) + scale[1] * static_cast<float>(sum[1]);
  }
};
using BlockQuantizer = QuantizedBlock (*)(const float* x, int8_t* q);

template <BlockQuantizer kQuantize>
void Quantize(const float* x, int64_t blocks, int8_t* q, float* scale, float* scaled_sum,
              int32_t* sum) {
  for (int64_t b = 0; b < blocks; ++b) {
    const QuantizedBlock block = kQuantize(x + b * kBlock, q + b * kBlock);
    std::memcpy(scale + 2 * b, block.scale, sizeof block.scale);
    std::memcpy(sum + 2 * b, block.sum, sizeof block.sum);
    scaled_sum[b] = block.ScaledSum();
  }
}

template <BlockQuantizer kQuantize>
void QuantizeTile(const float* const* rows, int count, int64_t blocks, std::byte* out) {
  for (int64_t b = 0; b < blocks; ++b, out += kTokenBlockBytes) {
    if (count < kTokens) std::memset(out, 0, kTokenBlockBytes);
    for (int t = 0; t < count; ++t) {
      alignas(32) int8_t q[kBlock];
      const QuantizedBlock block = kQuantize(rows[t] + b * kBlock, q);
      const float scaled_sum = block.ScaledSum();
      for (int g = 0; g < 8; ++g) std::memcpy(out + (g * kTokens + t) * 4, q + g * 4, 4);
      for (int h = 0; h < 2; ++h) {
        std::memcpy(out + ((8 + h) * kTokens + t) * 4, &block.scale[h], 4);
        std::memcpy(out + ((11 + h) * kTokens + t) * 4, &block.sum[h], 4);
      }
      std::memcpy(out + (10 * kTokens + t) * 4, &scaled_sum, 4);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
