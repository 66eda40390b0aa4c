#include "models/llama.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "graph/op.h"
#include "models/tiny_llama.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

std::shared_ptr<const GgufFile> OpenWriter(const GgufWriter& writer) {
  const TemporaryFile bytes(writer.Bytes());
  const auto file = GgufFile::Open(bytes.path());
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return *file;
}

// Runs a graph node by node with the reference kernels. States stay between runs.
class ReferenceMachine {
 public:
  explicit ReferenceMachine(const LlamaGraph& llama) : llama_(llama) {}

  struct Outputs {
    std::vector<float> logits;
    std::vector<int32_t> next;
  };
  Outputs Run(const std::vector<int32_t>& tokens, int32_t first_position,
              const std::vector<int32_t>& rows) {
    const Graph& graph = *llama_.graph;
    symbols_.assign(graph.symbols().size(), 0);
    symbols_[llama_.tokens_symbol] = static_cast<int64_t>(tokens.size());
    symbols_[llama_.kv_symbol] = first_position + static_cast<int64_t>(tokens.size());
    symbols_[llama_.outputs_symbol] = static_cast<int64_t>(rows.size());
    values_.clear();
    std::vector<int32_t> positions(tokens.size());
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = first_position + static_cast<int>(i);
    Set(llama_.tokens, tokens), Set(llama_.positions, positions), Set(llama_.rows, rows);

    for (const Node& node : graph.nodes()) {
      std::vector<HostTensor> inputs;
      for (const TensorId id : node.inputs) {
        inputs.push_back(id == kNone ? HostTensor{} : At(id));
      }
      inputs.resize(node.op->required_inputs + node.op->optional_inputs);
      const auto done = node.op->reference(inputs, At(node.output), node.attributes);
      EXPECT_TRUE(done.has_value()) << node.name << ": " << done.error().message;
    }
    Outputs outputs;
    Get(llama_.logits, &outputs.logits);
    Get(llama_.next, &outputs.next);
    return outputs;
  }

 private:
  HostTensor At(TensorId id) {
    const Graph& graph = *llama_.graph;
    const TensorId root = graph.tensor(id).root;
    const Tensor& owner = graph.tensor(root);
    const Layout base = RootLayout(graph, root, symbols_);
    std::byte* data = nullptr;
    if (owner.state != nullptr) {
      auto& bytes = states_[{owner.state.get(), owner.slice}];
      bytes.resize(owner.state->SliceBytes());
      data = bytes.data();
    } else if (owner.kind == TensorKind::kConstant) {
      data = const_cast<std::byte*>(owner.constant->data);
    } else {
      auto& bytes = values_[root];
      bytes.resize(base.SpanBytes() + 1);  // A place for tensors without elements too.
      data = bytes.data();
    }
    const Placed placed = PlaceWithin(graph, id, root, base, symbols_);
    return {placed.layout, data + placed.offset};
  }
  template <class T>
  void Set(TensorId id, const std::vector<T>& values) {
    const HostTensor tensor = At(id);
    ASSERT_EQ(tensor.layout.PackedBytes(), static_cast<int64_t>(values.size() * sizeof(T)));
    std::ranges::copy(std::as_bytes(std::span(values)), tensor.data);
  }
  template <class T>
  void Get(TensorId id, std::vector<T>* values) {
    const HostTensor tensor = At(id);
    values->resize(tensor.layout.Elements());
    std::copy_n(tensor.data, tensor.layout.PackedBytes(),
                std::as_writable_bytes(std::span(*values)).data());
  }

  const LlamaGraph& llama_;
  std::vector<int64_t> symbols_;
  std::map<TensorId, std::vector<std::byte>> values_;
  std::map<std::pair<const State*, int>, std::vector<std::byte>> states_;
};

// The same model written down again, in double, token by token with everything recomputed.
class PlainLlama {
 public:
  PlainLlama(const TinyLlama& model, const GgufFile& file) : m_(model), file_(file) {}

  // Logits of every token.
  std::vector<std::vector<double>> Run(const std::vector<int32_t>& tokens) {
    std::vector<std::vector<double>> x;
    const std::vector<double> embedding = Values("token_embd.weight");
    for (const int32_t token : tokens) {
      x.emplace_back(embedding.begin() + token * m_.width,
                     embedding.begin() + (token + 1) * m_.width);
    }
    for (int64_t layer = 0; layer < m_.layers; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      std::vector<std::vector<double>> q, k, v;
      for (size_t t = 0; t < x.size(); ++t) {
        const auto h = Norm(x[t], prefix + "attn_norm");
        q.push_back(Rope(Linear(h, prefix + "attn_q"), m_.heads, t));
        k.push_back(Rope(Linear(h, prefix + "attn_k"), m_.kv_heads, t));
        v.push_back(Linear(h, prefix + "attn_v"));
      }
      for (size_t t = 0; t < x.size(); ++t) {
        AddTo(Linear(Attend(q[t], k, v, t), prefix + "attn_output"), &x[t]);
        const auto h = Norm(x[t], prefix + "ffn_norm");
        auto inner = Linear(h, prefix + "ffn_gate");
        const auto up = Linear(h, prefix + "ffn_up");
        for (size_t i = 0; i < inner.size(); ++i) inner[i] *= up[i] / (1 + std::exp(-inner[i]));
        AddTo(Linear(inner, prefix + "ffn_down"), &x[t]);
      }
    }
    std::vector<std::vector<double>> logits;
    for (const auto& row : x) {
      logits.push_back(Linear(Norm(row, "output_norm"), m_.tied ? "token_embd" : "output"));
    }
    return logits;
  }

 private:
  std::vector<double> Values(const std::string& name) {
    auto& values = values_[name];
    const auto tensor = file_.Tensor(name);
    if (values.empty() && tensor != nullptr) {
      const TypeInfo& info = Info(tensor->type);
      const int64_t blocks = tensor->Bytes() / info.block_bytes;
      values.resize(blocks * info.block_elements);
      info.decode(tensor->data, blocks, values.data());
    }
    return values;
  }
  std::vector<double> Norm(const std::vector<double>& x, const std::string& name) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale =
        1 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<float>(m_.norm_epsilon));
    std::vector<double> y = Values(name + ".weight");
    for (size_t i = 0; i < y.size(); ++i) y[i] *= x[i] * scale;
    return y;
  }
  std::vector<double> Linear(const std::vector<double>& x, const std::string& name) {
    const std::vector<double> w = Values(name + ".weight"), bias = Values(name + ".bias");
    std::vector<double> y(w.size() / x.size());
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = bias.empty() ? 0 : bias[i];
      for (size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
    }
    return y;
  }
  std::vector<double> Rope(std::vector<double> x, int64_t heads, size_t position) {
    const std::vector<double> factors = Values("rope_freqs.weight");
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < m_.rope_dims / 2; ++i) {
        double angle = static_cast<double>(position) / m_.rope_factor *
                       std::pow(m_.rope_base,
                                -2.0 * static_cast<double>(i) / static_cast<double>(m_.rope_dims));
        if (!factors.empty()) angle /= factors[i];
        double& a = x[head * m_.head_width + 2 * i];
        double& b = x[head * m_.head_width + 2 * i + 1];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
    return x;
  }
  std::vector<double> Attend(const std::vector<double>& q,
                             const std::vector<std::vector<double>>& k,
                             const std::vector<std::vector<double>>& v, size_t last) {
    std::vector<double> out(m_.heads * m_.value_width);
    for (int64_t head = 0; head < m_.heads; ++head) {
      const int64_t group = head / (m_.heads / m_.kv_heads);
      std::vector<double> weights(last + 1);
      double total = 0;
      for (size_t s = 0; s <= last; ++s) {
        double dot = 0;
        for (int64_t i = 0; i < m_.head_width; ++i) {
          dot += q[head * m_.head_width + i] * k[s][group * m_.head_width + i];
        }
        total += weights[s] = std::exp(dot / std::sqrt(static_cast<double>(m_.head_width)));
      }
      for (size_t s = 0; s <= last; ++s) {
        for (int64_t i = 0; i < m_.value_width; ++i) {
          out[head * m_.value_width + i] += weights[s] / total * v[s][group * m_.value_width + i];
        }
      }
    }
    return out;
  }
  static void AddTo(const std::vector<double>& y, std::vector<double>* x) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }

  const TinyLlama m_;
  const GgufFile& file_;
  std::map<std::string, std::vector<double>> values_;
};

struct Variant {
  std::string name;
  TinyLlama model;
};

std::vector<Variant> Variants() {
  return {
      {"plain", {}},
      {"one_head",
       {.heads = 1, .kv_heads = 1, .head_width = 64, .value_width = 64, .rope_dims = 64}},
      {"three_layers_untied", {.layers = 3, .tied = false, .seed = 2}},
      {"no_groups", {.kv_heads = 4}},
      {"biases", {.biases = true, .seed = 3}},
      {"widths_of_their_own", {.head_width = 24, .value_width = 8, .rope_dims = 10}},
      {"linear_rope", {.rope_base = 100000, .rope_factor = 4}},
      {"rope_factors", {.rope_factors = true}},
      {"q4_0", {.matrices = Type::kQ4_0, .embedding = Type::kQ4_0}},
      {"q4_1", {.matrices = Type::kQ4_1, .embedding = Type::kQ8_0}},
      {"q8_0", {.matrices = Type::kQ8_0, .embedding = Type::kF16}},
      {"bf16", {.matrices = Type::kBF16, .embedding = Type::kBF16, .tied = false}},
      {"large_epsilon", {.norm_epsilon = 0.5}},
  };
}

class LlamaNumbersTest : public testing::TestWithParam<Variant> {};

TEST_P(LlamaNumbersTest, EqualsThePlainModel) {
  const TinyLlama& model = GetParam().model;
  const auto file = OpenWriter(WriteTinyLlama(model));
  const std::vector<int32_t> tokens{7, 250, 7, 0, 287, 100, 41, 3, 99};
  const auto expected = PlainLlama(model, *file).Run(tokens);
  for (const bool exact : {true, false}) {
    const auto llama =
        BuildLlama(*file, {.context = 16, .max_tokens = 6, .max_outputs = 6, .exact = exact});
    ASSERT_TRUE(llama.has_value()) << llama.error().message;
    const double tolerance = exact ? 2e-5 : 2e-2;  // Caches in F32, in F16.
    const auto check = [&](const ReferenceMachine::Outputs& outputs,
                           const std::vector<size_t>& positions) {
      ASSERT_EQ(outputs.next.size(), positions.size());
      ASSERT_EQ(outputs.logits.size(), positions.size() * kTinyVocabulary);
      for (size_t row = 0; row < positions.size(); ++row) {
        const float* logits = outputs.logits.data() + row * kTinyVocabulary;
        for (int64_t i = 0; i < kTinyVocabulary; ++i) {
          ASSERT_NEAR(logits[i], expected[positions[row]][i], tolerance)
              << "position " << positions[row] << ", logit " << i;
        }
        EXPECT_EQ(outputs.next[row], std::max_element(logits, logits + kTinyVocabulary) - logits);
      }
    };
    const auto part = [&](size_t begin, size_t end) {
      return std::vector<int32_t>(tokens.begin() + begin, tokens.begin() + end);
    };
    ReferenceMachine machine(*llama);
    check(machine.Run(part(0, 5), 0, {4, 0, 2}), {4, 0, 2});
    check(machine.Run(part(5, 6), 5, {0}), {5});
    check(machine.Run(part(6, 8), 6, {}), {});
    check(machine.Run(part(8, 9), 8, {0}), {8});
    // Going back and on again from there.
    check(machine.Run(part(3, 9), 3, {0, 1, 2, 3, 4, 5}), {3, 4, 5, 6, 7, 8});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LlamaNumbersTest, testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

TEST(LlamaTest, NodesAreNamedAfterTensors) {
  const auto file = OpenWriter(WriteTinyLlama({.biases = true}));
  const auto llama = BuildLlama(*file, {.context = 8, .max_tokens = 4});
  ASSERT_TRUE(llama.has_value()) << llama.error().message;
  const Graph& graph = *llama->graph;
  std::map<std::string, int> layers;
  ASSERT_EQ(llama->layer_of_node.size(), graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    EXPECT_TRUE(layers.emplace(graph.nodes()[i].name, llama->layer_of_node[i]).second)
        << graph.nodes()[i].name;
  }
  EXPECT_EQ(layers.at("token_embd"), -1);
  for (const std::string name : {"attn_norm", "attn_q", "attn_q_bias", "attn_q_rope", "attn_k",
                                 "attn_k_rope", "attn_k_store", "attn_v", "attn_v_store", "attn",
                                 "attn_output", "attn_output_bias", "attn_residual", "ffn_norm",
                                 "ffn_gate", "ffn_up", "ffn_swiglu", "ffn_down", "ffn_residual"}) {
    EXPECT_EQ(layers.at("blk.0." + name), 0) << name;
    EXPECT_EQ(layers.at("blk.1." + name), 1) << name;
  }
  EXPECT_FALSE(layers.contains("blk.0.attn_wanted"));
  EXPECT_EQ(layers.at("blk.1.attn_wanted"), 1);
  for (const std::string name : {"output_norm", "output", "next"}) EXPECT_EQ(layers.at(name), 2);

  EXPECT_EQ(graph.FindSymbol("tokens"), llama->tokens_symbol);
  EXPECT_EQ(graph.FindSymbol("kv"), llama->kv_symbol);
  EXPECT_EQ(graph.FindSymbol("outputs"), llama->outputs_symbol);
  EXPECT_EQ(graph.symbols()[llama->kv_symbol].upper, 8);
  EXPECT_EQ(graph.symbols()[llama->tokens_symbol].upper, 4);
  EXPECT_EQ(graph.symbols()[llama->outputs_symbol].upper, 1);
  EXPECT_EQ(graph.inputs().size(), 3u);
  EXPECT_EQ(graph.outputs().size(), 2u);
}

TEST(LlamaTest, TiedWeightsAreOneConstant) {
  const auto file = OpenWriter(WriteTinyLlama({}));
  const auto llama = BuildLlama(*file, {.context = 8, .max_tokens = 4});
  ASSERT_TRUE(llama.has_value()) << llama.error().message;
  int embeddings = 0;
  std::set<const Constant*> constants;
  for (const Tensor& tensor : llama->graph->tensors()) {
    if (tensor.kind != TensorKind::kConstant) continue;
    EXPECT_TRUE(constants.insert(tensor.constant.get()).second) << tensor.name;
    embeddings += tensor.constant->name == "token_embd.weight";
  }
  EXPECT_EQ(embeddings, 1);
  EXPECT_EQ(constants.size(), file->tensors().size());
}

TEST(LlamaTest, ExactKeepsF32) {
  const auto file = OpenWriter(WriteTinyLlama({}));
  for (const bool exact : {false, true}) {
    const auto llama = BuildLlama(*file, {.context = 8, .max_tokens = 4, .exact = exact});
    ASSERT_TRUE(llama.has_value()) << llama.error().message;
    EXPECT_EQ(llama->keys->type, exact ? Type::kF32 : Type::kF16);
    EXPECT_EQ(llama->values->type, llama->keys->type);
    for (const Node& node : llama->graph->nodes()) {
      if (node.op->name == "matmul") {
        EXPECT_EQ(node.attributes.at(0), exact ? 1 : 0);
      }
    }
  }
}

TEST(LlamaTest, RealFile) {
  const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "no model: set TANDEM_MODELS (tools/fetch_models.sh)";
  const auto file = GgufFile::Open(*path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto llama = BuildLlama(**file, {.context = 1024, .max_tokens = 512});
  ASSERT_TRUE(llama.has_value()) << llama.error().message;
  const LlamaParameters& p = llama->parameters;
  EXPECT_EQ(p.layers, 30);
  EXPECT_EQ(p.width, 576);
  EXPECT_EQ(p.heads, 9);
  EXPECT_EQ(p.kv_heads, 3);
  EXPECT_EQ(p.head_width, 64);
  EXPECT_EQ(p.value_width, 64);
  EXPECT_EQ(p.feed_forward, 1536);
  EXPECT_EQ(p.vocabulary, 49152);
  EXPECT_EQ(p.trained_context, 8192);
  EXPECT_EQ(p.rope_dims, 64);
  EXPECT_EQ(p.rope_base, 100000);
  EXPECT_EQ(p.rope_scale, 1);
  EXPECT_NEAR(p.norm_epsilon, 1e-5, 1e-12);
  EXPECT_EQ(llama->keys->dims, (std::vector<int64_t>{1024, 192}));
  EXPECT_EQ(llama->values->dims, (std::vector<int64_t>{1024, 192}));
  EXPECT_EQ(llama->keys->slices, 30);
  // 17 in each layer, two that select rows in the last, and token_embd, output_norm, output, next.
  EXPECT_EQ(llama->graph->nodes().size(), 30u * 17 + 2 + 4);
  EXPECT_TRUE(llama->graph->Find("blk.3.attn_q").has_value());
  EXPECT_TRUE(llama->graph->Find("blk.29.ffn_down").has_value());
}

// The largest logits of a prompt and of the tokens behind it, against a reference in double.
TEST(LlamaTest, RealFileEqualsTheReference) {
  const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
  const auto reference = testing_data::SharedData("references/ref_smollm2.json");
  if (!path || !reference) GTEST_SKIP() << "no model or no references";
  const auto file = GgufFile::Open(*path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto llama = BuildLlama(**file, {.context = 16, .max_tokens = 8, .exact = true});
  ASSERT_TRUE(llama.has_value()) << llama.error().message;
  std::ifstream in(*reference);
  const nlohmann::json truth = nlohmann::json::parse(in).at("runs").at(0);
  ASSERT_EQ(truth.at("config"), "truth_f64");
  const nlohmann::json& prompt = truth.at("prompts").at(0);
  const auto generated = prompt.at("gen_ids").get<std::vector<int32_t>>();

  ReferenceMachine machine(*llama);
  auto tokens = prompt.at("prompt_ids").get<std::vector<int32_t>>();
  int32_t position = 0;
  for (int step = 0; step < 3; ++step) {
    const auto outputs = machine.Run(tokens, position, {static_cast<int32_t>(tokens.size()) - 1});
    for (const auto& top : prompt.at("top5_first4").at(step)) {
      EXPECT_NEAR(outputs.logits.at(top.at(0).get<size_t>()), top.at(1).get<double>(), 1e-3);
    }
    ASSERT_EQ(outputs.next, (std::vector<int32_t>{generated.at(step)}));
    position += static_cast<int32_t>(tokens.size());
    tokens = outputs.next;
  }
}

TEST(LlamaTest, OptionsThatAreWrong) {
  const auto file = OpenWriter(WriteTinyLlama({}));
  const LlamaOptions wrong[] = {{.context = 0},
                                {.context = -1},
                                {.context = int64_t{1} << 31},
                                {.context = INT64_MAX},
                                {.context = 8, .max_tokens = 0},
                                {.context = 8, .max_tokens = 9},
                                {.context = 8, .max_tokens = 4, .max_outputs = 0},
                                {.context = 8, .max_tokens = 4, .max_outputs = 5}};
  for (const LlamaOptions& options : wrong) {
    const auto llama = BuildLlama(*file, options);
    ASSERT_FALSE(llama.has_value());
    EXPECT_EQ(llama.error().code, ErrorCode::kInvalid) << llama.error().message;
  }
}

// One thing wrong in a file that is right otherwise.
struct WrongModel {
  std::string message;
  std::function<void(GgufWriter*)> add = [](GgufWriter*) {};
  TinyLlama model = {};
  ErrorCode code = ErrorCode::kUnsupported;
};

TEST(LlamaTest, ModelsThatAreNotSupported) {
  const auto vector = [](std::string_view name, int64_t size) {
    return [=](GgufWriter* w) {
      w->Tensor(name, Type::kF32, {size}, std::string(static_cast<size_t>(4 * size), '\0'));
    };
  };
  const WrongModel models[] = {
      {"key 'llama.expert_count': 8 experts",
       [](GgufWriter* w) { w->U32("llama.expert_count", 8); }},
      {"key 'llama.attention.sliding_window': 4096",
       [](GgufWriter* w) { w->U32("llama.attention.sliding_window", 4096); }},
      {"key 'llama.attention.causal'",
       [](GgufWriter* w) { w->Bool("llama.attention.causal", false); }},
      {"key 'llama.rope.scaling.type': rope scaling 'yarn' is not supported",
       [](GgufWriter* w) { w->String("llama.rope.scaling.type", "yarn"); }},
      {"rope scaling 'longrope' is not supported",
       [](GgufWriter* w) { w->String("llama.rope.scaling.type", "longrope"); }},
      {"key 'llama.rope.scaling.factor': -2 is not a finite number above 0",
       [](GgufWriter* w) { w->F32("llama.rope.scaling.factor", -2); },
       {},
       ErrorCode::kInvalid},
      {"tensor 'blk.0.attn_q_norm.weight' is no part", vector("blk.0.attn_q_norm.weight", 16)},
      {"tensor 'blk.2.attn_norm.weight' is no part", vector("blk.2.attn_norm.weight", 64)},
      {"tensor 'rope_freqs.weight' has shape [9]; the model needs [8]",
       vector("rope_freqs.weight", 9),
       {},
       ErrorCode::kInvalid},
      {"tensor 'blk.1.attn_k.bias' has shape [64]; the model needs [32]",
       vector("blk.1.attn_k.bias", 64),
       {},
       ErrorCode::kInvalid},
      {"key 'llama.embedding_length': 64 is no multiple of the 3 heads",
       {},
       {.heads = 3, .kv_heads = 3, .head_width = 21, .value_width = 21},
       ErrorCode::kInvalid},
      {"key 'llama.attention.head_count': 4 heads are no multiple of the 3",
       {},
       {.kv_heads = 3},
       ErrorCode::kInvalid},
      {"key 'llama.rope.dimension_count': 18 is not even or more than the 16",
       {},
       {.rope_dims = 18},
       ErrorCode::kInvalid},
      {"key 'llama.rope.dimension_count': 7", {}, {.rope_dims = 7}, ErrorCode::kInvalid},
      {"key 'llama.attention.layer_norm_rms_epsilon': nan is not a finite",
       {},
       {.norm_epsilon = std::nan("")},
       ErrorCode::kInvalid},
      {"key 'llama.rope.freq_base': 0 is not a finite", {}, {.rope_base = 0}, ErrorCode::kInvalid},
      {"tensor 'token_embd.weight' has type I32", {}, {.embedding = Type::kI32}},
  };
  for (const WrongModel& wrong : models) {
    SCOPED_TRACE(wrong.message);
    GgufWriter writer = WriteTinyLlama(wrong.model);
    if (wrong.add) wrong.add(&writer);
    const auto file = OpenWriter(writer);
    const auto parameters = ReadLlamaParameters(*file);
    ASSERT_FALSE(parameters.has_value());
    EXPECT_NE(parameters.error().message.find(wrong.message), std::string::npos)
        << parameters.error().message;
    EXPECT_EQ(parameters.error().code, wrong.code);
    EXPECT_FALSE(BuildLlama(*file, {.context = 8, .max_tokens = 4}).has_value());
  }
  GgufWriter other;
  other.String("general.architecture", "qwen2");
  const auto parameters = ReadLlamaParameters(*OpenWriter(other));
  ASSERT_FALSE(parameters.has_value());
  EXPECT_EQ(parameters.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(parameters.error().message.find("architecture 'qwen2' is not supported; supported is "
                                            "llama"),
            std::string::npos);
}

// Every key in turn missing, of another type, or with a number that no tensor fits.
TEST(LlamaTest, HostileKeys) {
  const TinyLlama model{.layers = 1, .head_width = 24, .value_width = 8};
  const std::string right = WriteTinyLlama(model).Bytes();
  const char* const names[] = {"block_count",          "context_length",
                               "embedding_length",     "feed_forward_length",
                               "attention.head_count", "attention.head_count_kv",
                               "attention.key_length", "attention.value_length",
                               "rope.dimension_count", "vocab_size"};
  for (const std::string name : names) {
    SCOPED_TRACE(name);
    const std::string entry = GgufWriter::Text("llama." + name) + GgufWriter::Number<uint32_t>(4);
    const size_t at = right.find(entry);
    ASSERT_NE(at, std::string::npos);
    for (const uint32_t value : {0u, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0x10000000u}) {
      std::string bytes = right;
      std::memcpy(bytes.data() + at + entry.size(), &value, 4);
      const TemporaryFile temporary(bytes);
      const auto file = GgufFile::Open(temporary.path());
      ASSERT_TRUE(file.has_value()) << file.error().message;
      const auto llama = BuildLlama(**file, {.context = 8, .max_tokens = 4});
      // The context that it was trained with binds nothing here.
      const bool harmless = name == "context_length" && value > 0 && value <= 0x7fffffff;
      EXPECT_EQ(llama.has_value(), harmless) << value;
    }
    std::string renamed = right;
    renamed[at + 8 + 6] = '#';  // The first letter behind "llama.".
    const bool optional = name == "attention.head_count_kv" || name == "attention.key_length" ||
                          name == "attention.value_length" || name == "rope.dimension_count" ||
                          name == "vocab_size";
    const TemporaryFile temporary(renamed);
    const auto file = GgufFile::Open(temporary.path());
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto llama = BuildLlama(**file, {.context = 8, .max_tokens = 4});
    if (!optional) {
      ASSERT_FALSE(llama.has_value());
      EXPECT_EQ(llama.error().code, ErrorCode::kNotFound);
      EXPECT_NE(llama.error().message.find("llama." + name), std::string::npos);
    }
    std::string retyped = right;
    const uint32_t f32 = 6;
    std::memcpy(retyped.data() + at + entry.size() - 4, &f32, 4);
    const TemporaryFile other(retyped);
    const auto retyped_file = GgufFile::Open(other.path());
    ASSERT_TRUE(retyped_file.has_value());
    const auto typed = ReadLlamaParameters(**retyped_file);
    ASSERT_FALSE(typed.has_value());
    EXPECT_NE(typed.error().message.find("has type f32; an integer is needed"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
