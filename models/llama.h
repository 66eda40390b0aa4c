// The llama family as graphs: grouped-query attention, RMS norm, rope, SwiGLU, tied or separate
// output weights.
//
// Nodes are named after the tensors of the file ("blk.3.attn_q", "blk.3.ffn_down", "output"), so
// that the patterns of --override-tensor mean what people know.
#pragma once

#include <memory>
#include <vector>

#include "graph/graph.h"
#include "graph/result.h"
#include "models/gguf.h"

namespace tandem {

struct LlamaParameters {
  int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_width = 0, value_width = 0;
  int64_t feed_forward = 0, vocabulary = 0, trained_context = 0;
  int64_t rope_dims = 0;
  double rope_base = 10000, rope_scale = 1;  // Positions are multiplied by rope_scale.
  bool rope_halves = false;                  // "llama" files rotate adjacent pairs.
  double norm_epsilon = 1e-5;
};

// Checks the architecture and each number (positive, heads divisible by kv_heads, ...) and that
// each tensor is there with the shape that these numbers need. Errors name the key or tensor.
Result<LlamaParameters> ReadLlamaParameters(const GgufFile& file);

struct LlamaOptions {
  int64_t context = 4096;    // Rows of the cache.
  int64_t max_tokens = 512;  // Largest batch.
  int64_t max_outputs = 1;   // Rows of logits at once.
  bool logits = true;        // False: they stay on their device, only `next` is an output.
  bool exact = false;        // Activations and caches in F32, nothing quantised on the way.
};

struct LlamaGraph {
  LlamaParameters parameters;
  std::shared_ptr<const Graph> graph;
  // Inputs: tokens I32 [tokens]; positions I32 [tokens], which are also the rows of the cache
  // that are written; rows I32 [outputs], which of the batch's tokens get logits.
  TensorId tokens = kNone, positions = kNone, rows = kNone;
  // Outputs: logits F32 [outputs, vocabulary] (unless options say no); next I32 [outputs], the
  // largest of each row.
  TensorId logits = kNone, next = kNone;
  // Symbols: tokens in a batch; rows of the cache that attention reads (the position of the last
  // token plus one); rows of logits.
  SymbolIndex tokens_symbol = kNoSymbol, kv_symbol = kNoSymbol, outputs_symbol = kNoSymbol;
  // One slice for each layer: [context, kv_heads * width of a head], F16, or F32 if exact.
  std::shared_ptr<const State> keys, values;
  // Parallel to the graph's nodes: its layer; -1 for the embedding, `layers` for what follows
  // the last layer (norm, output, argmax).
  std::vector<int32_t> layer_of_node;
};

Result<LlamaGraph> BuildLlama(const GgufFile& file, const LlamaOptions& options);

}  // namespace tandem
