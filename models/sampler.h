// Picks the next token from logits: greedy, or temperature, top-k and top-p with a seed.
//
// The order is that of llama.cpp's defaults: top-k, then top-p, then temperature, then a draw.
// The same seed and logits give the same tokens on every machine (own xoshiro256**, sums in
// double in a fixed order). One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/result.h"
#include "models/tokenizer.h"

namespace tandem {

struct SamplerOptions {
  double temperature = 0.8;  // At most 0: greedy, the first of the largest.
  int64_t top_k = 40;        // At most 0: all.
  double top_p = 0.95;       // 1: off.
  uint64_t seed = 0;
};

class Sampler {
 public:
  // Errors: not-a-number options, top_p outside (0, 1].
  static Result<Sampler> Create(const SamplerOptions& options);
  // kInvalid if there are no logits or none of them is a number.
  Result<Token> Pick(std::span<const float> logits);

 private:
  explicit Sampler(const SamplerOptions& options);
  SamplerOptions options_;
  uint64_t state_[4];
  std::vector<std::pair<float, Token>> candidates_;
};

}  // namespace tandem
