#include "tools/generator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tandem {
namespace {

std::vector<SizeBox> Boxes(const LlamaGraph& model, const LlamaOptions& options) {
  const auto box = [&](std::string name, SizeRange tokens, SizeRange outputs) {
    SizeBox made{std::move(name), std::vector<SizeRange>(model.graph->symbols().size())};
    made.ranges[model.tokens_symbol] = tokens;
    made.ranges[model.kv_symbol] = {1, options.context};
    made.ranges[model.outputs_symbol] = outputs;
    return made;
  };
  std::vector<SizeBox> boxes = {box("token", {1, 1}, {0, 1})};
  if (options.max_tokens > 1)
    boxes.push_back(box("prompt", {1, options.max_tokens}, {0, options.max_outputs}));
  return boxes;
}

std::vector<NodePin> LayerPins(const LlamaGraph& model, int64_t offloaded, DeviceIndex offload,
                               DeviceIndex host) {
  // The output layer counts as one, after the others.
  const int64_t layers = model.parameters.layers;
  const int64_t first = layers + 1 - offloaded;
  std::vector<NodePin> pins;
  for (NodeId id = 0; id < static_cast<NodeId>(model.graph->nodes().size()); ++id) {
    const int64_t layer = model.layer_of_node[id];
    const bool is_offloaded = offload != kNone && layer >= 0 && layer >= first;
    NodePin pin;
    pin.node = id;
    pin.device = is_offloaded ? offload : host;
    pin.is_preference = true;
    pin.why = layer < 0         ? "input layer"
              : layer >= layers ? fmt::format("output layer (-ngl {})", offloaded)
                                : fmt::format("layer {} of {} (-ngl {})", layer, layers, offloaded);
    pins.push_back(std::move(pin));
  }
  return pins;
}

}  // namespace

Result<std::unique_ptr<Generator>> Generator::Create(const GgufFile& file,
                                                     const GeneratorOptions& options) {
  auto generator = std::unique_ptr<Generator>(new Generator());
  TANDEM_ASSIGN(generator->model_, BuildLlama(file, options.model));
  const LlamaGraph& model = generator->model_;
  generator->context_ = options.model.context;
  generator->max_tokens_ = options.model.max_tokens;
  generator->max_outputs_ = options.model.max_outputs;
  generator->has_logits_ = options.model.logits;

  // Devices that are used, accelerators first.
  SchedulerOptions scheduler;
  const auto index_of = [&](Device* device) {
    const auto at = std::find(scheduler.devices.begin(), scheduler.devices.end(), device);
    const auto index = static_cast<DeviceIndex>(at - scheduler.devices.begin());
    if (at == scheduler.devices.end()) scheduler.devices.push_back(device);
    return index;
  };
  const int64_t all = model.parameters.layers + 1;
  int64_t offloaded = options.offload == nullptr ? 0 : options.offloaded_layers;
  if (offloaded < 0 || offloaded > all) offloaded = all;
  const DeviceIndex offload = offloaded == 0 ? kNone : index_of(options.offload);
  GraphSpec spec;
  for (const DeviceOverride& override : options.overrides)
    spec.pattern_pins.push_back({override.pattern, index_of(override.device)});
  const DeviceIndex host = index_of(options.host);
  for (const DeviceLimit& limit : options.limits)
    scheduler.plan.budgets.push_back({index_of(limit.device), limit.bytes});
  scheduler.plan.reuse_memory = options.reuse_memory;
  TANDEM_ASSIGN(generator->scheduler_, Scheduler::Create(std::move(scheduler)));

  spec.name = "llama";
  spec.graph = model.graph;
  spec.boxes = Boxes(model, options.model);
  spec.node_pins = LayerPins(model, offloaded, offload, host);
  TANDEM_ASSIGN(generator->handle_, generator->scheduler_->Add(std::move(spec)));
  generator->positions_.resize(static_cast<size_t>(options.model.max_tokens));
  generator->rows_.resize(static_cast<size_t>(options.model.max_outputs));
  generator->history_.reserve(static_cast<size_t>(options.model.context));
  return generator;
}

Result<void> Generator::Reserve() { return scheduler_->Reserve(); }

Result<void> Generator::Load(const std::function<void(int64_t, int64_t)>& progress) {
  return scheduler_->Load(progress);
}

Result<void> Generator::Feed(std::span<const Token> tokens) {
  if (tokens.empty()) return Fail(ErrorCode::kInvalid, "no tokens to append to the context");
  for (const Token token : tokens)
    if (token < 0 || token >= model_.parameters.vocabulary)
      return Fail(ErrorCode::kInvalid, "token {} is not in the vocabulary of {}", token,
                  model_.parameters.vocabulary);
  if (static_cast<int64_t>(tokens.size()) > context_ - length_)
    return Fail(ErrorCode::kOutOfMemory,
                "the context of {} tokens holds {} and has no room for {} more", context_, length_,
                tokens.size());
  const int64_t before = length_;
  std::vector<Token> replay;
  if (needs_reset_) {
    TANDEM_CHECK(scheduler_->ResetState(*model_.keys));
    TANDEM_CHECK(scheduler_->ResetState(*model_.values));
    needs_reset_ = false;
    // The caches were lost with the failed run: what they held is computed again.
    replay.assign(history_.begin(), history_.end());
    length_ = 0;
    history_.clear();
  }
  Result<void> result;
  const std::span<const Token> parts[] = {replay, tokens};
  for (const std::span<const Token> part : parts)
    for (size_t at = 0; result && at < part.size(); at += static_cast<size_t>(max_tokens_)) {
      const size_t count = std::min(part.size() - at, static_cast<size_t>(max_tokens_));
      const bool is_last = part.data() == tokens.data() && at + count == part.size();
      result = FeedBatch(part.subspan(at, count), is_last);
    }
  if (!result) {
    std::vector<Token> kept = history_;
    if (!replay.empty()) kept = replay;
    kept.resize(static_cast<size_t>(before));
    history_ = std::move(kept);
    length_ = before;
    needs_reset_ = true;
    logits_ = {};
    next_ = kNoToken;
  }
  return result;
}

Result<void> Generator::FeedBatch(std::span<const Token> tokens, bool wants_output) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t outputs = wants_output ? std::min(count, max_outputs_) : 0;
  std::iota(positions_.begin(), positions_.begin() + count, static_cast<int32_t>(length_));
  std::iota(rows_.begin(), rows_.begin() + outputs, static_cast<int32_t>(count - outputs));
  RunArguments run;
  run.symbols.resize(model_.graph->symbols().size());
  run.symbols[model_.tokens_symbol] = count;
  run.symbols[model_.kv_symbol] = length_ + count;
  run.symbols[model_.outputs_symbol] = outputs;
  run.inputs = {
      {model_.tokens, std::as_bytes(tokens)},
      {model_.positions, std::as_bytes(std::span(positions_.data(), tokens.size()))},
      {model_.rows, std::as_bytes(std::span(rows_.data(), static_cast<size_t>(outputs)))}};
  TANDEM_CHECK(scheduler_->Run(handle_, run));
  length_ += count;
  history_.insert(history_.end(), tokens.begin(), tokens.end());
  if (!wants_output) return {};
  TANDEM_ASSIGN(const HostTensor next, scheduler_->Output(handle_, model_.next));
  std::memcpy(&next_, next.data + (outputs - 1) * static_cast<int64_t>(sizeof(Token)),
              sizeof(Token));
  if (!has_logits_) return {};
  TANDEM_ASSIGN(const HostTensor logits, scheduler_->Output(handle_, model_.logits));
  logits_ = {reinterpret_cast<const float*>(logits.data),
             static_cast<size_t>(logits.layout.Elements())};
  return {};
}

Result<void> Generator::Truncate(int64_t length) {
  if (length < 0 || length > length_)
    return Fail(ErrorCode::kInvalid, "can not cut a context of {} tokens to {}", length_, length);
  length_ = length;
  history_.resize(static_cast<size_t>(length));
  return {};
}

}  // namespace tandem
