// Tokens per second of the op sequence of a small llama (SmolLM2-135M's sizes: 30 layers, width
// 576, 9 heads of 64, 3 of keys and values, feed-forward 1536, vocabulary 49152) on the first
// OpenCL device: decoding behind a context, and a prompt. Weights are random; nothing is checked.
//
//   opencl_bench [prompt tokens] [context] [seconds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/opencl/fake_host.h"
#include "backends/opencl/opencl.h"
#include "graph/ops.h"

namespace tandem {
namespace {

constexpr int64_t kLayers = 30, kWidth = 576, kHeads = 9, kGroups = 3, kHead = 64, kInner = 1536,
                  kVocabulary = 49152, kContext = 2048;

template <class T>
T Must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void Must(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

struct Tensor {
  std::shared_ptr<Buffer> buffer;
  Layout layout;
};

class Model {
 public:
  Model(Device& device, Memory& host) : device_(device), host_(host) {
    stream_ = Must(device.CreateStream());
    embedding_ = Weights(Type::kQ8_0, {kVocabulary, kWidth});
    final_norm_ = Weights(Type::kF32, {kWidth});
    for (int64_t i = 0; i < kLayers; ++i) {
      Layer& layer = layers_.emplace_back();
      layer.q = Weights(Type::kQ4_1, {kWidth, kWidth});
      layer.k = Weights(Type::kQ4_1, {kGroups * kHead, kWidth});
      layer.v = Weights(Type::kQ4_1, {kGroups * kHead, kWidth});
      layer.o = Weights(Type::kQ4_1, {kWidth, kWidth});
      layer.gate = Weights(Type::kQ4_1, {kInner, kWidth});
      layer.up = Weights(Type::kQ4_1, {kInner, kWidth});
      layer.down = Weights(Type::kQ4_1, {kWidth, kInner});
      layer.norm = Weights(Type::kF32, {kWidth});
      layer.inner_norm = Weights(Type::kF32, {kWidth});
      layer.keys = Make(Type::kF16, {kContext, kGroups * kHead});
      layer.values = Make(Type::kF16, {kContext, kGroups * kHead});
      for (const Tensor& cache : {layer.keys, layer.values}) Must(stream_->Fill(*cache.buffer, 0));
    }
    Must(stream_->Synchronize(stream_->Record()));
  }

  // Seconds of one run of `tokens` tokens behind `context` earlier ones, as the host waits for it;
  // with `op`, of that op's calls alone.
  double Run(int64_t tokens, int64_t context, std::string_view op = {}) {
    Prepare(tokens, context);
    std::vector<KernelCall> calls;
    for (const KernelCall& call : calls_)
      if (op.empty() || call.op->name == op) calls.push_back(call);
    const auto start = std::chrono::steady_clock::now();
    Must(stream_->Run(calls));
    Must(stream_->Synchronize(stream_->Record()));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  struct Layer {
    Tensor q, k, v, o, gate, up, down, norm, inner_norm, keys, values;
  };

  Tensor Make(Type type, std::vector<int64_t> dims) {
    Tensor tensor{nullptr, Contiguous(type, dims)};
    tensor.buffer = Must(device_.memory().Allocate(tensor.layout.PackedBytes()));
    return tensor;
  }
  Tensor Upload(Type type, std::vector<int64_t> dims, const std::vector<std::byte>& bytes) {
    Tensor tensor = Make(type, std::move(dims));
    auto staging = Must(host_.Allocate(tensor.layout.PackedBytes()));
    std::copy(bytes.begin(), bytes.end(), staging->host());
    Must(stream_->Copy({.source = staging.get(),
                        .target = tensor.buffer.get(),
                        .row_bytes = tensor.layout.PackedBytes()}));
    Must(stream_->Synchronize(stream_->Record()));
    return tensor;
  }
  // Random codes with scales that keep activations finite.
  Tensor Weights(Type type, std::vector<int64_t> dims) {
    const TypeInfo& info = Info(type);
    std::vector<double> block(static_cast<size_t>(info.block_elements));
    std::uniform_real_distribution<double> uniform(-0.05, 0.05);
    int64_t blocks = 1;
    for (const int64_t size : dims) blocks *= size;
    blocks /= info.block_elements;
    std::vector<std::byte> bytes(static_cast<size_t>(blocks * info.block_bytes));
    for (int64_t i = 0; i < blocks; ++i) {
      for (double& v : block) v = uniform(random_);
      info.encode(block.data(), 1, bytes.data() + i * info.block_bytes);
    }
    return Upload(type, std::move(dims), bytes);
  }
  Tensor Integers(const std::vector<int32_t>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return Upload(Type::kI32, {static_cast<int64_t>(values.size())},
                  {bytes, bytes + values.size() * sizeof(int32_t)});
  }
  static Tensor View(const Tensor& tensor, std::vector<int64_t> dims) {
    return {tensor.buffer, Contiguous(tensor.layout.type, dims)};
  }

  void Add(const OpDefinition& op, const std::vector<Tensor>& inputs, const Tensor& output,
           std::vector<double> attributes = {}) {
    for (size_t i = attributes.size(); i < op.attributes.size(); ++i)
      attributes.push_back(op.attributes[i].value);
    Call& call = storage_.emplace_back();
    call.attributes = std::move(attributes);
    std::vector<Layout> layouts;
    const auto present = std::make_unique<bool[]>(inputs.size());
    const auto constant = std::make_unique<bool[]>(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      call.inputs.push_back({.layout = inputs[i].layout, .buffer = inputs[i].buffer.get()});
      call.owners.push_back(inputs[i].buffer);
      layouts.push_back(inputs[i].layout);
      present[i] = true;
    }
    call.owners.push_back(output.buffer);
    const KernelChoice choice =
        Must(device_.FindKernel({.op = &op,
                                 .attributes = call.attributes,
                                 .inputs = layouts,
                                 .present = {present.get(), inputs.size()},
                                 .constant = {constant.get(), inputs.size()},
                                 .output = output.layout}));
    calls_.push_back({.kernel = choice.kernel,
                      .op = &op,
                      .attributes = call.attributes,
                      .inputs = call.inputs,
                      .output = {.layout = output.layout, .buffer = output.buffer.get()},
                      .name = op.name});
  }

  void Prepare(int64_t tokens, int64_t context) {
    if (tokens == tokens_ && context == context_) return;
    tokens_ = tokens;
    context_ = context;
    calls_.clear();
    storage_.clear();
    std::vector<int32_t> numbers, places;
    for (int64_t t = 0; t < tokens; ++t) {
      numbers.push_back(static_cast<int32_t>(t * 977 % kVocabulary));
      places.push_back(static_cast<int32_t>(context + t));
    }
    const Tensor ids = Integers(numbers), positions = Integers(places);
    const auto floats = [&](int64_t columns) { return Make(Type::kF32, {tokens, columns}); };
    Tensor x = floats(kWidth), h = floats(kWidth), attended = floats(kWidth);
    const Tensor q = floats(kWidth), k = floats(kGroups * kHead), v = floats(kGroups * kHead);
    const Tensor gate = floats(kInner), up = floats(kInner);
    const Tensor q_heads = View(q, {tokens, kHeads, kHead}),
                 k_heads = View(k, {tokens, kGroups, kHead});
    Add(ops::kRows, {embedding_, ids}, x);
    for (const Layer& layer : layers_) {
      Add(ops::kRmsNorm, {x, layer.norm}, h);
      Add(ops::kMatmul, {h, layer.q}, q);
      Add(ops::kMatmul, {h, layer.k}, k);
      Add(ops::kMatmul, {h, layer.v}, v);
      Add(ops::kRope, {q_heads, positions}, q_heads);
      Add(ops::kRope, {k_heads, positions}, k_heads);
      Add(ops::kUpdateRows, {layer.keys, k, positions}, layer.keys);
      Add(ops::kUpdateRows, {layer.values, v, positions}, layer.values);
      const std::vector<int64_t> used{context + tokens, kGroups, kHead};
      Add(ops::kAttention, {q_heads, View(layer.keys, used), View(layer.values, used), positions},
          View(attended, {tokens, kHeads, kHead}));
      Add(ops::kMatmul, {attended, layer.o}, h);
      Add(ops::kAdd, {h, x}, x);
      Add(ops::kRmsNorm, {x, layer.inner_norm}, h);
      Add(ops::kMatmul, {h, layer.gate}, gate);
      Add(ops::kMatmul, {h, layer.up}, up);
      Add(ops::kSwiglu, {gate, up}, gate);
      Add(ops::kMatmul, {gate, layer.down}, h);
      Add(ops::kAdd, {h, x}, x);
    }
    // Logits of the last token alone.
    const Tensor last = View(x, {1, kWidth}), normed = Make(Type::kF32, {1, kWidth});
    const Tensor logits = Make(Type::kF32, {1, kVocabulary}), next = Make(Type::kI32, {1});
    Add(ops::kRmsNorm, {last, final_norm_}, normed);
    Add(ops::kMatmul, {normed, embedding_}, logits);
    Add(ops::kArgmax, {logits}, next);
  }

  struct Call {
    std::vector<double> attributes;
    std::vector<TensorArg> inputs;
    std::vector<std::shared_ptr<Buffer>> owners;
  };

  Device& device_;
  Memory& host_;
  std::unique_ptr<Stream> stream_;
  std::mt19937_64 random_{1};
  Tensor embedding_, final_norm_;
  std::vector<Layer> layers_;
  int64_t tokens_ = 0, context_ = 0;
  std::deque<Call> storage_;
  std::vector<KernelCall> calls_;
};

double BestOf(Model& model, int64_t tokens, int64_t context, std::string_view op, int count) {
  double best = model.Run(tokens, context, op);
  for (int i = 1; i < count; ++i) best = std::min(best, model.Run(tokens, context, op));
  return best;
}

int Main(int argc, char** argv) {
  const int64_t prompt = argc > 1 ? std::atoll(argv[1]) : 128;
  const int64_t context = argc > 2 ? std::atoll(argv[2]) : 128;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 3;
  opencl::FakeHost host;
  const auto backend = MakeOpenClBackend(host);
  if (backend->devices().empty()) {
    std::printf("no device: %s\n", std::string(backend->unavailable()).c_str());
    return 0;
  }
  Device& device = *backend->devices().front();
  std::printf("%s: %s\n", std::string(device.name()).c_str(),
              device.properties().description.c_str());
  Model model(device, host);
  for (const auto& [what, tokens, behind] :
       {std::tuple{"decode", int64_t{1}, context}, std::tuple{"prompt", prompt, int64_t{0}}}) {
    std::vector<double> times;
    model.Run(tokens, behind);  // The first launches may compile.
    for (double spent = 0; spent < seconds;) {
      times.push_back(model.Run(tokens, behind));
      spent += times.back();
    }
    std::sort(times.begin(), times.end());
    std::printf("%s of %lld behind %lld: best %.1f tokens/s (%.2f ms), median %.1f\n", what,
                static_cast<long long>(tokens), static_cast<long long>(behind),
                static_cast<double>(tokens) / times.front(), 1e3 * times.front(),
                static_cast<double>(tokens) / times[times.size() / 2]);
    for (const OpDefinition* op :
         {&ops::kMatmul, &ops::kAttention, &ops::kRows, &ops::kRmsNorm, &ops::kRope,
          &ops::kUpdateRows, &ops::kSwiglu, &ops::kAdd, &ops::kArgmax})
      std::printf("  %-12s %8.2f ms\n", std::string(op->name).c_str(),
                  1e3 * BestOf(model, tokens, behind, op->name, 10));
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
