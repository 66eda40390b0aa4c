// Small llama models with random weights, as the bytes of a GGUF file, for tests: every part of
// a real file (tokenizer, chat template, block weights), nothing to fetch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/types.h"
#include "models/gguf_writer.h"

namespace tandem {

struct TinyLlama {
  int64_t layers = 2, width = 64, heads = 4, kv_heads = 2, feed_forward = 96;
  int64_t head_width = 16, value_width = 16;
  int64_t trained_context = 128;
  Type matrices = Type::kF32;
  Type embedding = Type::kF32;
  bool tied = true;           // No output.weight.
  bool biases = false;        // On the linear parts of attention.
  bool rope_factors = false;  // rope_freqs.weight.
  double rope_base = 10000, rope_factor = 1;
  int64_t rope_dims = 16;
  double norm_epsilon = 1e-5;
  uint64_t seed = 1;
};

// The vocabulary: the 256 bytes, then what two merges make ("th", "the"), then <|im_start|>,
// <|im_end|>, and unused tokens up to this number.
inline constexpr int64_t kTinyVocabulary = 288;

std::vector<std::string> TinyTokens();

// Keys and tensors; callers may add more, wrong ones too.
GgufWriter WriteTinyLlama(const TinyLlama& model);
// Only the keys of the tokenizer.
void WriteTinyTokenizer(GgufWriter* writer, const std::string& pre = "smollm");

}  // namespace tandem
