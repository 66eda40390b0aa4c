#include "models/llama.h"

#include <cmath>
#include <initializer_list>
#include <string>
#include <unordered_set>

#include "graph/builder.h"
#include "graph/ops.h"
#include "models/mapped_file.h"

namespace tandem {
namespace {

constexpr std::string_view kArchitecture = "llama";
// Sizes from a file fit 31 bits, so that the product of two never overflows.
constexpr int64_t kLargestSize = INT32_MAX;

std::string LayerName(int64_t layer, std::string_view part) {
  return fmt::format("blk.{}.{}", layer, part);
}

// --- The numbers ------------------------------------------------------------------------------

class KeyReader {
 public:
  explicit KeyReader(const GgufFile& file) : file_(file) {}

  // "llama." + name, from 1 to kLargestSize; `fallback` where the key is absent, 0 for "needed".
  Result<int64_t> Size(std::string_view name, int64_t fallback = 0) const {
    const std::string key = Key(name);
    if (fallback > 0 && !file_.Has(key)) return fallback;
    TANDEM_ASSIGN(const int64_t value, file_.Integer(key));
    if (value < 1 || value > kLargestSize) {
      return Wrong(ErrorCode::kInvalid, key, "{} is not from 1 to {}", value, kLargestSize);
    }
    return value;
  }

  // A finite number, more than `above`.
  Result<double> Real(std::string_view name, double fallback, double above) const {
    const std::string key = Key(name);
    if (!std::isnan(fallback) && !file_.Has(key)) return fallback;
    TANDEM_ASSIGN(const double value, file_.Real(key));
    if (!std::isfinite(value) || value <= above) {
      return Wrong(ErrorCode::kInvalid, key, "{} is not a finite number above {}", value, above);
    }
    return value;
  }

  static std::string Key(std::string_view name) {
    return fmt::format("{}.{}", kArchitecture, name);
  }
  bool Has(std::string_view name) const { return file_.Has(Key(name)); }

  template <class... Args>
  tl::unexpected<Error> Wrong(ErrorCode code, std::string_view key,
                              fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(code, "{}: key '{}': {}", Printable(file_.path()), key,
                fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const GgufFile& file_;
};

constexpr double kNeeded = std::numeric_limits<double>::quiet_NaN();

// Keys that change what the model computes in ways that the graph here does not.
Result<void> RefuseOtherModels(const GgufFile& file, const KeyReader& keys) {
  for (const std::string_view name : {"expert_count", "attention.sliding_window"}) {
    if (!keys.Has(name)) continue;
    TANDEM_ASSIGN(const int64_t value, file.Integer(KeyReader::Key(name)));
    if (value == 0) continue;
    return keys.Wrong(ErrorCode::kUnsupported, KeyReader::Key(name), "{} {} not supported", value,
                      name == "expert_count" ? "experts (mixture-of-experts models) are"
                                             : "(attention over a sliding window) is");
  }
  for (const std::string_view name :
       {"attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale", "logit_scale",
        "embedding_scale", "residual_scale", "rope.scaling.attn_factor"}) {
    if (!keys.Has(name)) continue;
    TANDEM_ASSIGN(const double value, file.Real(KeyReader::Key(name)));
    const double neutral = name == "attention.clamp_kqv" || name == "attention.max_alibi_bias" ||
                                   name == "attention.scale"
                               ? 0
                               : 1;
    if (value == neutral) continue;
    return keys.Wrong(ErrorCode::kUnsupported, KeyReader::Key(name), "{} is not supported", value);
  }
  if (keys.Has("attention.causal")) {
    TANDEM_ASSIGN(const bool causal, file.Boolean(KeyReader::Key("attention.causal")));
    if (!causal) {
      return keys.Wrong(ErrorCode::kUnsupported, KeyReader::Key("attention.causal"),
                        "attention that is not causal is not supported");
    }
  }
  return {};
}

// Linear scaling; what Llama 3 does comes as factors, in the tensor rope_freqs.weight.
Result<double> RopeScale(const GgufFile& file, const KeyReader& keys) {
  const std::string type_key = KeyReader::Key("rope.scaling.type");
  std::string_view type = "linear";  // What a factor without a type means.
  if (file.Has(type_key)) {
    TANDEM_ASSIGN(type, file.String(type_key));
  }
  if (type == "none") return 1.0;
  if (type != "linear") {
    return keys.Wrong(ErrorCode::kUnsupported, type_key,
                      "rope scaling '{}' is not supported; supported are linear scaling and the "
                      "factors of rope_freqs.weight",
                      Printable(type));
  }
  // scale_linear is the older name of the factor; a factor of 0 means none.
  for (const std::string_view name : {"rope.scaling.factor", "rope.scale_linear"}) {
    if (!keys.Has(name)) continue;
    TANDEM_ASSIGN(const double given, file.Real(KeyReader::Key(name)));
    if (given == 0) continue;
    TANDEM_ASSIGN(const double factor, keys.Real(name, kNeeded, 0));
    return 1 / factor;
  }
  return 1.0;
}

// --- The tensors ------------------------------------------------------------------------------

enum class Role : uint8_t {
  kMatrix,  // Any real or block type.
  kVector,  // F32.
};

// Checks the file's tensors off against what the graph reads.
class TensorList {
 public:
  explicit TensorList(const GgufFile& file) : file_(file) {}

  Result<void> Need(const std::string& name, Role role, std::vector<int64_t> dims) {
    if (file_.Tensor(name) == nullptr) {
      return Fail(ErrorCode::kNotFound, "{}: tensor '{}' is missing", Printable(file_.path()),
                  name);
    }
    return Allow(name, role, std::move(dims));
  }

  Result<void> Allow(const std::string& name, Role role, std::vector<int64_t> dims) {
    const std::shared_ptr<const Constant> tensor = file_.Tensor(name);
    if (tensor == nullptr) return {};
    seen_.insert(name);
    if (tensor->dims != dims) {
      return Fail(ErrorCode::kInvalid, "{}: tensor '{}' has shape [{}]; the model needs [{}]",
                  Printable(file_.path()), name, fmt::join(tensor->dims, ", "),
                  fmt::join(dims, ", "));
    }
    const TypeInfo& type = Info(tensor->type);
    const bool fits =
        role == Role::kMatrix ? type.is_float || type.is_block : type.type == Type::kF32;
    if (!fits) {
      return Fail(ErrorCode::kUnsupported, "{}: tensor '{}' has type {}; {} is needed",
                  Printable(file_.path()), name, type.name,
                  role == Role::kMatrix ? "a real or block type" : "F32");
    }
    return {};
  }

  Result<void> NothingElse() const {
    for (const std::shared_ptr<const Constant>& tensor : file_.tensors()) {
      if (seen_.contains(tensor->name)) continue;
      return Fail(ErrorCode::kUnsupported,
                  "{}: tensor '{}' is no part of the llama models that are supported",
                  Printable(file_.path()), Printable(tensor->name));
    }
    return {};
  }

 private:
  const GgufFile& file_;
  std::unordered_set<std::string> seen_;
};

Result<void> CheckTensors(const GgufFile& file, const LlamaParameters& p) {
  TensorList tensors(file);
  TANDEM_CHECK(tensors.Need("token_embd.weight", Role::kMatrix, {p.vocabulary, p.width}));
  TANDEM_CHECK(tensors.Need("output_norm.weight", Role::kVector, {p.width}));
  TANDEM_CHECK(tensors.Allow("output.weight", Role::kMatrix, {p.vocabulary, p.width}));
  TANDEM_CHECK(tensors.Allow("rope_freqs.weight", Role::kVector, {p.rope_dims / 2}));
  for (int64_t layer = 0; layer < p.layers; ++layer) {
    const auto linear = [&](std::string_view part, int64_t out, int64_t in) -> Result<void> {
      const std::string name = LayerName(layer, part);
      TANDEM_CHECK(tensors.Need(name + ".weight", Role::kMatrix, {out, in}));
      return tensors.Allow(name + ".bias", Role::kVector, {out});
    };
    const auto norm = [&](std::string_view part) {
      return tensors.Need(LayerName(layer, part) + ".weight", Role::kVector, {p.width});
    };
    TANDEM_CHECK(norm("attn_norm"));
    TANDEM_CHECK(linear("attn_q", p.heads * p.head_width, p.width));
    TANDEM_CHECK(linear("attn_k", p.kv_heads * p.head_width, p.width));
    TANDEM_CHECK(linear("attn_v", p.kv_heads * p.value_width, p.width));
    TANDEM_CHECK(linear("attn_output", p.width, p.heads * p.value_width));
    TANDEM_CHECK(norm("ffn_norm"));
    TANDEM_CHECK(linear("ffn_gate", p.feed_forward, p.width));
    TANDEM_CHECK(linear("ffn_up", p.feed_forward, p.width));
    TANDEM_CHECK(linear("ffn_down", p.width, p.feed_forward));
  }
  return tensors.NothingElse();
}

// --- The graph --------------------------------------------------------------------------------

class LlamaBuilder {
 public:
  LlamaBuilder(const GgufFile& file, const LlamaParameters& parameters, const LlamaOptions& options)
      : file_(file), p_(parameters), options_(options) {}

  Result<LlamaGraph> Build();

 private:
  // Errors stay in the builder until Build(), so that these give kNone and nothing else.
  TensorId Add(const OpDefinition& op, std::initializer_list<TensorId> inputs,
               std::initializer_list<Attribute> attributes, const std::string& name) {
    const TensorId id = builder_.Add(op, inputs, attributes, name).value_or(kNone);
    if (id != kNone) {
      const size_t node = builder_.tensor(id).producer;
      if (layer_of_node_.size() <= node) layer_of_node_.resize(node + 1, layer_);
      layer_of_node_[node] = layer_;
    }
    return id;
  }
  TensorId Reshape(TensorId x, const Shape& shape, const std::string& name) {
    return builder_.Reshape(x, shape, name).value_or(kNone);
  }
  TensorId Weight(const std::string& name) { return builder_.Use(file_.Tensor(name)); }

  // x * w^T + bias, if there is one.
  TensorId Linear(TensorId x, const std::string& name, const std::string& weight) {
    TensorId y = Add(ops::kMatmul, {x, Weight(weight + ".weight")},
                     {{ops::kMatmulExact, options_.exact ? 1.0 : 0.0}}, name);
    if (file_.Tensor(weight + ".bias") != nullptr) {
      y = Add(ops::kAdd, {y, Weight(weight + ".bias")}, {}, name + "_bias");
    }
    return y;
  }
  TensorId Linear(TensorId x, const std::string& name) { return Linear(x, name, name); }

  TensorId Norm(TensorId x, const std::string& name) {
    return Add(ops::kRmsNorm, {x, Weight(name + ".weight")},
               {{ops::kRmsNormEpsilon, p_.norm_epsilon}}, name);
  }

  TensorId Rope(TensorId x, int64_t heads, const std::string& name) {
    const TensorId by_head = Reshape(x, {tokens_, heads, p_.head_width}, name + "_heads");
    return Add(ops::kRope, {by_head, positions_, rope_factors_},
               {{ops::kRopeDims, static_cast<double>(p_.rope_dims)},
                {ops::kRopeBase, p_.rope_base},
                {ops::kRopeScale, p_.rope_scale},
                {ops::kRopeHalves, p_.rope_halves ? 1.0 : 0.0}},
               name + "_rope");
  }

  // Writes the batch's rows into the cache; gives the rows that attention reads.
  TensorId Store(const std::shared_ptr<const State>& state, TensorId rows, int64_t head_width,
                 const std::string& name) {
    const TensorId flat = Reshape(rows, {tokens_, p_.kv_heads * head_width}, name + "_rows");
    const TensorId cache = builder_.Use(state, static_cast<int>(layer_)).value_or(kNone);
    const TensorId updated = Add(ops::kUpdateRows, {cache, flat, positions_}, {}, name + "_store");
    const TensorId used = builder_.Slice(updated, 0, 0, kv_, name + "_used").value_or(kNone);
    return Reshape(used, {kv_, p_.kv_heads, head_width}, name + "_cache");
  }

  TensorId Attention(TensorId x);
  TensorId Layer(TensorId x, TensorId rows);

  const GgufFile& file_;
  const LlamaParameters& p_;
  const LlamaOptions& options_;
  GraphBuilder builder_;
  Dim tokens_, kv_, outputs_;
  TensorId positions_ = kNone, rope_factors_ = kNone;
  std::shared_ptr<const State> keys_, values_;
  int32_t layer_ = -1;
  std::vector<int32_t> layer_of_node_;
};

// From the normed input of a layer to [tokens, heads * width of a value].
TensorId LlamaBuilder::Attention(TensorId x) {
  const auto name = [&](std::string_view part) { return LayerName(layer_, part); };
  const TensorId q = Rope(Linear(x, name("attn_q")), p_.heads, name("attn_q"));
  const TensorId k = Rope(Linear(x, name("attn_k")), p_.kv_heads, name("attn_k"));
  const TensorId v = Linear(x, name("attn_v"));
  const TensorId keys = Store(keys_, k, p_.head_width, name("attn_k"));
  const TensorId values = Store(values_, v, p_.value_width, name("attn_v"));
  const TensorId heads = Add(ops::kAttention, {q, keys, values, positions_}, {}, name("attn"));
  return Reshape(heads, {tokens_, p_.heads * p_.value_width}, name("attn_flat"));
}

// `rows`: in the last layer, the tokens whose logits are wanted; the others end here, behind the
// last attention that they can have a part in.
TensorId LlamaBuilder::Layer(TensorId x, TensorId rows) {
  const auto name = [&](std::string_view part) { return LayerName(layer_, part); };
  TensorId attended = Attention(Norm(x, name("attn_norm")));
  if (rows != kNone) {
    attended = Add(ops::kRows, {attended, rows}, {}, name("attn_wanted"));
    x = Add(ops::kRows, {x, rows}, {}, name("input_wanted"));
  }
  x = Add(ops::kAdd, {Linear(attended, name("attn_output")), x}, {}, name("attn_residual"));
  const TensorId h = Norm(x, name("ffn_norm"));
  const TensorId gate = Linear(h, name("ffn_gate"));
  const TensorId up = Linear(h, name("ffn_up"));
  const TensorId inner = Add(ops::kSwiglu, {gate, up}, {}, name("ffn_swiglu"));
  return Add(ops::kAdd, {Linear(inner, name("ffn_down")), x}, {}, name("ffn_residual"));
}

Result<LlamaGraph> LlamaBuilder::Build() {
  tokens_ = builder_.Symbol("tokens", options_.max_tokens);
  kv_ = builder_.Symbol("kv", options_.context);
  outputs_ = builder_.Symbol("outputs", options_.max_outputs);
  LlamaGraph llama;
  llama.parameters = p_;
  TANDEM_ASSIGN(llama.tokens, builder_.Input("tokens", Type::kI32, {tokens_}));
  TANDEM_ASSIGN(llama.positions, builder_.Input("positions", Type::kI32, {tokens_}));
  TANDEM_ASSIGN(llama.rows, builder_.Input("rows", Type::kI32, {outputs_}));
  positions_ = llama.positions;
  if (file_.Tensor("rope_freqs.weight") != nullptr) rope_factors_ = Weight("rope_freqs.weight");

  const auto cache = [&](std::string_view name, int64_t head_width) {
    return std::make_shared<const State>(State{.name = std::string(name),
                                               .type = options_.exact ? Type::kF32 : Type::kF16,
                                               .dims = {options_.context, p_.kv_heads * head_width},
                                               .slices = static_cast<int>(p_.layers)});
  };
  llama.keys = keys_ = cache("keys", p_.head_width);
  llama.values = values_ = cache("values", p_.value_width);

  TensorId x = Add(ops::kRows, {Weight("token_embd.weight"), llama.tokens}, {}, "token_embd");
  for (layer_ = 0; layer_ < p_.layers; ++layer_) {
    x = Layer(x, layer_ + 1 == p_.layers ? llama.rows : kNone);
  }
  x = Norm(x, "output_norm");
  const bool tied = file_.Tensor("output.weight") == nullptr;
  llama.logits = Linear(x, "output", tied ? "token_embd" : "output");
  llama.next = Add(ops::kArgmax, {llama.logits}, {}, "next");
  if (options_.logits) TANDEM_CHECK(builder_.Output(llama.logits));
  TANDEM_CHECK(builder_.Output(llama.next));
  llama.tokens_symbol = tokens_.symbol;
  llama.kv_symbol = kv_.symbol;
  llama.outputs_symbol = outputs_.symbol;
  TANDEM_ASSIGN(llama.graph, std::move(builder_).Build());
  llama.layer_of_node = std::move(layer_of_node_);
  return llama;
}

Result<void> CheckOptions(const LlamaParameters& p, const LlamaOptions& options) {
  if (options.context < 1 || options.context > kLargestSize) {
    return Fail(ErrorCode::kInvalid, "context of {} tokens: it must be from 1 to {}",
                options.context, kLargestSize);
  }
  if (options.max_tokens < 1 || options.max_tokens > options.context) {
    return Fail(ErrorCode::kInvalid, "batches of {} tokens: they must be from 1 to the context, {}",
                options.max_tokens, options.context);
  }
  if (options.max_outputs < 1 || options.max_outputs > options.max_tokens) {
    return Fail(ErrorCode::kInvalid, "{} rows of logits: they must be from 1 to the batch, {}",
                options.max_outputs, options.max_tokens);
  }
  int64_t elements = 0;
  const int64_t row = p.kv_heads * std::max(p.head_width, p.value_width);
  if (__builtin_mul_overflow(row, options.context, &elements) || elements > INT64_MAX / 8) {
    return Fail(ErrorCode::kInvalid, "context of {} tokens: the size of its cache overflows",
                options.context);
  }
  return {};
}

}  // namespace

Result<LlamaParameters> ReadLlamaParameters(const GgufFile& file) {
  TANDEM_ASSIGN(const std::string_view architecture, file.String("general.architecture"));
  const KeyReader keys(file);
  if (architecture != kArchitecture) {
    return keys.Wrong(ErrorCode::kUnsupported, "general.architecture",
                      "architecture '{}' is not supported; supported is {}",
                      Printable(architecture), kArchitecture);
  }
  TANDEM_CHECK(RefuseOtherModels(file, keys));

  LlamaParameters p;
  TANDEM_ASSIGN(p.layers, keys.Size("block_count"));
  TANDEM_ASSIGN(p.width, keys.Size("embedding_length"));
  TANDEM_ASSIGN(p.feed_forward, keys.Size("feed_forward_length"));
  TANDEM_ASSIGN(p.trained_context, keys.Size("context_length"));
  TANDEM_ASSIGN(p.heads, keys.Size("attention.head_count"));
  TANDEM_ASSIGN(p.kv_heads, keys.Size("attention.head_count_kv", p.heads));
  if (p.heads % p.kv_heads != 0) {
    return keys.Wrong(ErrorCode::kInvalid, KeyReader::Key("attention.head_count"),
                      "{} heads are no multiple of the {} of keys and values", p.heads, p.kv_heads);
  }
  const bool has_width = keys.Has("attention.key_length") && keys.Has("attention.value_length");
  if (!has_width && p.width % p.heads != 0) {
    return keys.Wrong(ErrorCode::kInvalid, KeyReader::Key("embedding_length"),
                      "{} is no multiple of the {} heads", p.width, p.heads);
  }
  TANDEM_ASSIGN(p.head_width,
                keys.Size("attention.key_length", std::max<int64_t>(p.width / p.heads, 1)));
  TANDEM_ASSIGN(p.value_width,
                keys.Size("attention.value_length", std::max<int64_t>(p.width / p.heads, 1)));
  TANDEM_ASSIGN(p.norm_epsilon, keys.Real("attention.layer_norm_rms_epsilon", kNeeded, 0));

  TANDEM_ASSIGN(p.rope_dims, keys.Size("rope.dimension_count", p.head_width));
  if (p.rope_dims > p.head_width || p.rope_dims % 2 != 0) {
    return keys.Wrong(ErrorCode::kInvalid, KeyReader::Key("rope.dimension_count"),
                      "{} is not even or more than the {} of a head", p.rope_dims, p.head_width);
  }
  TANDEM_ASSIGN(p.rope_base, keys.Real("rope.freq_base", 10000, 0));
  TANDEM_ASSIGN(p.rope_scale, RopeScale(file, keys));

  const std::shared_ptr<const Constant> embedding = file.Tensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2 || embedding->dims[0] < 1 ||
      embedding->dims[0] > kLargestSize) {
    return Fail(ErrorCode::kInvalid,
                "{}: tensor 'token_embd.weight' is missing, or has no rows of a vocabulary",
                Printable(file.path()));
  }
  p.vocabulary = embedding->dims[0];
  TANDEM_ASSIGN(const int64_t vocabulary, keys.Size("vocab_size", p.vocabulary));
  if (vocabulary != p.vocabulary) {
    return keys.Wrong(ErrorCode::kInvalid, KeyReader::Key("vocab_size"),
                      "{}, but tensor 'token_embd.weight' has {} rows", vocabulary, p.vocabulary);
  }
  TANDEM_CHECK(CheckTensors(file, p));
  return p;
}

Result<LlamaGraph> BuildLlama(const GgufFile& file, const LlamaOptions& options) {
  TANDEM_ASSIGN(const LlamaParameters parameters, ReadLlamaParameters(file));
  TANDEM_CHECK(CheckOptions(parameters, options));
  return LlamaBuilder(file, parameters, options).Build();
}

}  // namespace tandem
