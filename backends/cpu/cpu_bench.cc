// The op sequence of SmolLM2-135M (30 layers, Q4_1 weights, Q8_0 output) through a real stream,
// with random weights: tokens a second for decoding and for prompts, and how the time divides
// over the ops.
//
//   cpu_bench [--isa=NAME] [--threads=1,2] [--context=64,512] [--prompt=512] [--exact] [--ops]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>

#include "backends/cpu/cpu.h"
#include "graph/ops.h"

namespace tandem {
namespace {

constexpr int64_t kLayers = 30, kWidth = 576, kHeads = 9, kGroups = 3, kHead = 64, kFeed = 1536,
                  kVocabulary = 49152;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void Die(const Error& error) {
  fmt::print(stderr, "{}\n", error.message);
  std::exit(1);
}
template <class T>
T Must(Result<T> result) {
  if (!result) Die(result.error());
  return std::move(*result);
}
void Must(Result<void> result) {
  if (!result) Die(result.error());
}

struct Tensor {
  Layout layout;
  Buffer* buffer = nullptr;
  bool constant = false;
  WeightLayout packed;
  std::vector<std::byte> plain;  // Of a constant, until it is packed.
};

// Calls, and everything that they point to.
class Sequence {
 public:
  Sequence(Device& device, int64_t tokens, int64_t context, bool exact)
      : device_(device), tokens_(tokens), context_(context), exact_(exact ? 1.0 : 0.0) {
    Build();
    scratch_ = Must(device_.memory().Allocate(std::max<int64_t>(scratch_bytes_, 64)));
    for (KernelCall& call : calls_) {
      call.scratch = scratch_.get();
      call.scratch_bytes = scratch_bytes_;
    }
  }
  std::vector<KernelCall> Only(std::string_view op) const {
    std::vector<KernelCall> some;
    for (const KernelCall& call : calls_)
      if (op.empty() || call.op->name == op) some.push_back(call);
    return some;
  }
  const std::vector<KernelCall>& calls() const { return calls_; }

 private:
  Tensor* Make(Type type, std::vector<int64_t> dims) {
    Tensor& t = tensors_.emplace_back();
    t.layout = Contiguous(type, dims);
    buffers_.push_back(Must(device_.memory().Allocate(t.layout.PackedBytes())));
    t.buffer = buffers_.back().get();
    std::memset(t.buffer->host(), 0, static_cast<size_t>(t.buffer->bytes()));
    return &t;
  }
  Tensor* Values(std::vector<int64_t> dims) {
    Tensor* t = Make(Type::kF32, std::move(dims));
    std::normal_distribution<float> normal;
    float* data = reinterpret_cast<float*>(t->buffer->host());
    for (int64_t i = 0; i < t->layout.Elements(); ++i) data[i] = normal(random_);
    return t;
  }
  Tensor* Weight(Type type, std::vector<int64_t> dims) {
    Tensor& t = tensors_.emplace_back();
    t.layout = Contiguous(type, dims);
    t.constant = true;
    t.plain.resize(static_cast<size_t>(t.layout.PackedBytes()));
    const TypeInfo& info = Info(type);
    for (size_t i = 0; i + 4 <= t.plain.size(); i += 4) {
      const uint32_t bits = random_();
      std::memcpy(&t.plain[i], &bits, 4);
    }
    for (size_t i = 0; i < t.plain.size(); i += static_cast<size_t>(info.block_bytes)) {
      const uint16_t d = FloatToHalf(type == Type::kQ8_0 ? 0.001f : 0.01f);
      const uint16_t m = FloatToHalf(-0.075f);
      std::memcpy(&t.plain[i], &d, 2);
      if (type == Type::kQ4_1) std::memcpy(&t.plain[i + 2], &m, 2);
    }
    return &t;
  }
  Tensor* Same(Tensor* t, std::vector<int64_t> dims) {  // The same bytes under other dimensions.
    Tensor& view = tensors_.emplace_back();
    view.layout = Contiguous(t->layout.type, dims);
    view.buffer = t->buffer;
    return &view;
  }

  void Add(const OpDefinition& op, std::vector<Tensor*> inputs, Tensor* output,
           std::vector<double> attributes = {}) {
    for (size_t i = attributes.size(); i < op.attributes.size(); ++i)
      attributes.push_back(op.attributes[i].value);
    KernelQuery query;
    query.op = &op;
    query.attributes = attributes_.emplace_back(std::move(attributes));
    std::vector<Layout> layouts;
    auto present = std::make_unique<bool[]>(inputs.size());
    auto constant = std::make_unique<bool[]>(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      layouts.push_back(inputs[i]->layout);
      present[i] = true;
      constant[i] = inputs[i]->constant;
    }
    query.inputs = layouts;
    query.present = {present.get(), inputs.size()};
    query.constant = {constant.get(), inputs.size()};
    query.output = output->layout;
    const KernelChoice choice = Must(device_.FindKernel(query));
    scratch_bytes_ = std::max(scratch_bytes_, choice.scratch_bytes);
    std::vector<TensorArg>& args = args_.emplace_back();
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor& t = *inputs[i];
      if (t.constant && t.buffer == nullptr) {
        t.packed = choice.weights[i];
        buffers_.push_back(Must(device_.memory().Allocate(t.packed.bytes)));
        t.buffer = buffers_.back().get();
        Must(device_.Pack(t.packed, t.layout.type,
                          std::span(t.layout.dims).first(static_cast<size_t>(t.layout.rank)),
                          t.plain.data(), t.buffer->host()));
        t.plain = {};
      }
      args.push_back({t.layout, t.buffer, 0, t.constant ? &t.packed : nullptr});
    }
    KernelCall call;
    call.kernel = choice.kernel;
    call.op = &op;
    call.attributes = attributes_.back();
    call.inputs = args;
    call.output = {output->layout, output->buffer, 0, nullptr};
    call.name = op.name;
    calls_.push_back(call);
  }

  Tensor* MatMul(Tensor* x, Type type, int64_t rows) {
    const int64_t tokens = x->layout.dims[0], k = x->layout.dims[1];
    Tensor*& out = outputs_[{tokens, rows, k, ++turn_ % 3}];
    if (out == nullptr) out = Make(Type::kF32, {tokens, rows});
    Add(ops::kMatmul, {x, Weight(type, {rows, k})}, out, {exact_});
    return out;
  }

  void Build() {
    const int64_t first = context_ - tokens_;
    Tensor* ids = Make(Type::kI32, {tokens_});
    Tensor* positions = Make(Type::kI32, {tokens_});
    for (int64_t i = 0; i < tokens_; ++i) {
      const int32_t id = static_cast<int32_t>(i * 37 % 1024), at = static_cast<int32_t>(first + i);
      std::memcpy(ids->buffer->host() + 4 * i, &id, 4);
      std::memcpy(positions->buffer->host() + 4 * i, &at, 4);
    }
    const Type cache = exact_ != 0 ? Type::kF32 : Type::kF16;
    Tensor* x = Values({tokens_, kWidth});
    Tensor* other = Make(Type::kF32, {tokens_, kWidth});
    Tensor* norm = Make(Type::kF32, {tokens_, kWidth});
    Tensor* mixed = Make(Type::kF32, {tokens_, kHeads, kHead});
    Tensor* hidden = Make(Type::kF32, {tokens_, kFeed});
    Add(ops::kRows, {Weight(Type::kQ8_0, {1024, kWidth}), ids}, x);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      Add(ops::kRmsNorm, {x, Values({kWidth})}, norm);
      Tensor* q = MatMul(norm, Type::kQ4_1, kWidth);
      Tensor* k = MatMul(norm, Type::kQ4_1, kGroups * kHead);
      Tensor* v = MatMul(norm, Type::kQ4_1, kGroups * kHead);
      Tensor* q3 = Same(q, {tokens_, kHeads, kHead});
      Tensor* k3 = Same(k, {tokens_, kGroups, kHead});
      Add(ops::kRope, {q3, positions}, q3);
      Add(ops::kRope, {k3, positions}, k3);
      Tensor* keys = Make(cache, {context_, kGroups * kHead});
      Tensor* values = Make(cache, {context_, kGroups * kHead});
      Add(ops::kUpdateRows, {keys, k, positions}, keys);
      Add(ops::kUpdateRows, {values, v, positions}, values);
      Add(ops::kAttention,
          {q3, Same(keys, {context_, kGroups, kHead}), Same(values, {context_, kGroups, kHead}),
           positions},
          mixed);
      Tensor* o = MatMul(Same(mixed, {tokens_, kWidth}), Type::kQ4_1, kWidth);
      Add(ops::kAdd, {x, o}, other);
      Add(ops::kRmsNorm, {other, Values({kWidth})}, norm);
      Tensor* gate = MatMul(norm, Type::kQ4_1, kFeed);
      Tensor* up = MatMul(norm, Type::kQ4_1, kFeed);
      Add(ops::kSwiglu, {gate, up}, hidden);
      Tensor* down = MatMul(hidden, Type::kQ4_1, kWidth);
      Add(ops::kAdd, {other, down}, x);
    }
    Add(ops::kRmsNorm, {x, Values({kWidth})}, norm);
    Tensor* last = Same(norm, {1, kWidth});
    Tensor* logits = MatMul(last, Type::kQ8_0, kVocabulary);
    Add(ops::kArgmax, {logits}, Make(Type::kI32, {1}));
  }

  Device& device_;
  const int64_t tokens_, context_;
  const double exact_;
  std::mt19937 random_{1};
  std::deque<Tensor> tensors_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::map<std::array<int64_t, 4>, Tensor*> outputs_;
  int64_t turn_ = 0;
  std::deque<std::vector<double>> attributes_;
  std::deque<std::vector<TensorArg>> args_;
  std::vector<KernelCall> calls_;
  int64_t scratch_bytes_ = 0;
  std::unique_ptr<Buffer> scratch_;
};

struct Times {
  double best = 0, median = 0;
};
Times Measure(Stream& stream, std::span<const KernelCall> calls, int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = Now();
    Must(stream.Run(calls));
    Must(stream.Synchronize(stream.Record()));
    times.push_back(Now() - start);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

std::vector<int64_t> Numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    numbers.push_back(std::stoll(std::string(text.substr(at, end - at))));
    at = end + 1;
  }
  return numbers;
}

void Report(Device& device, Stream& stream, const Sequence& sequence, std::string_view what,
            int64_t tokens, int repeats, bool by_op) {
  const Times t = Measure(stream, sequence.calls(), repeats);
  fmt::print("{}: {} tokens/s (best), {} (median); {} nodes; {}\n", what,
             std::lround(tokens / t.best), std::lround(tokens / t.median), sequence.calls().size(),
             device.properties().description);
  if (!by_op) return;
  std::map<std::string_view, int> seen;
  for (const KernelCall& call : sequence.calls()) ++seen[call.op->name];
  for (const auto& [op, count] : seen) {
    const std::vector<KernelCall> some = sequence.Only(op);
    const Times alone = Measure(stream, some, repeats);
    fmt::print("  {:12} {:4} nodes {:9.1f} us, {:7.2f} us each\n", op, count, alone.best * 1e6,
               alone.best * 1e6 / count);
  }
}

int Main(int argc, char** argv) {
  CpuOptions options;
  std::vector<int64_t> threads = {1, 2}, contexts = {64, 512}, prompts = {512};
  bool exact = false, by_op = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&](std::string_view name) -> std::optional<std::string_view> {
      if (!arg.starts_with(name)) return std::nullopt;
      return arg.substr(name.size());
    };
    if (auto v = value("--isa="))
      options.isa = *v;
    else if (auto v = value("--threads="))
      threads = Numbers(*v);
    else if (auto v = value("--context="))
      contexts = Numbers(*v);
    else if (auto v = value("--prompt="))
      prompts = Numbers(*v);
    else if (arg == "--exact")
      exact = true;
    else if (arg == "--ops")
      by_op = true;
    else {
      fmt::print(stderr, "unknown option {}\n", arg);
      return 1;
    }
  }
  options.threads = static_cast<int>(*std::max_element(threads.begin(), threads.end()));
  const std::unique_ptr<Backend> backend = MakeCpuBackend(options);
  if (backend->devices().empty()) {
    fmt::print(stderr, "{}\n", backend->unavailable());
    return 1;
  }
  Device& device = *backend->devices()[0];
  const auto set_threads =
      reinterpret_cast<CpuSetThreads>(backend->Extension("tandem.cpu.set_threads"));
  const std::unique_ptr<Stream> stream = Must(device.CreateStream());
  for (int64_t context : contexts) {
    const Sequence decode(device, 1, context, exact);
    for (int64_t n : threads) {
      Must(set_threads(device, static_cast<int>(n)));
      Report(device, *stream, decode, fmt::format("decode, context {}", context), 1, 100, by_op);
    }
  }
  for (int64_t tokens : prompts) {
    const Sequence prompt(device, tokens, tokens, exact);
    for (int64_t n : threads) {
      Must(set_threads(device, static_cast<int>(n)));
      Report(device, *stream, prompt, fmt::format("prompt of {}", tokens), tokens, 5, by_op);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
