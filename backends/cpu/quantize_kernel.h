// Activations to 8 bits, given how an instruction set does one block of 32. Included only by the
// simd_*.cc files.
#pragma once

#include "backends/cpu/simd.h"
#include "backends/cpu/vector.h"

namespace tandem::cpu {
namespace {

// x = scale * q with q in [-127, 127], to nearest even; sum of q.
struct QuantizedBlock {
  float scale;
  int32_t sum;
};
using BlockQuantizer = QuantizedBlock (*)(const float* x, int8_t* q);

template <BlockQuantizer kQuantize>
void Quantize(const float* x, int64_t blocks, int8_t* q, float* scale, float* scaled_sum,
              int32_t* sum) {
  for (int64_t b = 0; b < blocks; ++b) {
    const QuantizedBlock block = kQuantize(x + b * kBlock, q + b * kBlock);
    scale[b] = block.scale;
    sum[b] = block.sum;
    scaled_sum[b] = block.scale * static_cast<float>(block.sum);
  }
}

template <BlockQuantizer kQuantize>
void QuantizeTile(const float* const* rows, int count, int64_t blocks, std::byte* out) {
  for (int64_t b = 0; b < blocks; ++b, out += kTokenBlockBytes) {
    if (count < kTokens) std::memset(out, 0, kTokenBlockBytes);
    for (int t = 0; t < count; ++t) {
      alignas(32) int8_t q[kBlock];
      const QuantizedBlock block = kQuantize(rows[t] + b * kBlock, q);
      const float scaled_sum = block.scale * static_cast<float>(block.sum);
      for (int g = 0; g < 8; ++g) std::memcpy(out + (g * kTokens + t) * 4, q + g * 4, 4);
      std::memcpy(out + (8 * kTokens + t) * 4, &block.scale, 4);
      std::memcpy(out + (9 * kTokens + t) * 4, &scaled_sum, 4);
      std::memcpy(out + (10 * kTokens + t) * 4, &block.sum, 4);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
