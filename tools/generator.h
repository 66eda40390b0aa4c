// Text generation with one llama graph in one scheduler: prompts in batches, then tokens.
//
// Two size boxes share one plan set and one reservation: "token" (a batch of one) and "prompt".
// Layers are placed by `offloaded_layers`, which means what -ngl means in llama.cpp: the last N
// layers, the output layer counted first; the embedding stays on the host.
//
//   auto generator = *Generator::Create(file, options);   // Plans; allocates nothing.
//   TANDEM_CHECK(generator->Reserve());
//   TANDEM_CHECK(generator->Load(progress));
//   TANDEM_CHECK(generator->Feed(prompt));
//   while (...) { token = sampler.Pick(generator->logits()); TANDEM_CHECK(generator->Feed({&token,
//   1})); }
//
// One thread at a time, but for Cancel().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/gguf.h"
#include "models/llama.h"
#include "models/tokenizer.h"
#include "scheduler/scheduler.h"

namespace tandem {

struct DeviceOverride {
  std::string pattern;  // A regular expression on names of weights and nodes.
  Device* device = nullptr;
};
struct DeviceLimit {
  Device* device = nullptr;
  int64_t bytes = 0;
};

struct GeneratorOptions {
  LlamaOptions model;
  Device* host = nullptr;        // A CPU.
  Device* offload = nullptr;     // Where offloaded layers go; null: nowhere.
  int64_t offloaded_layers = 0;  // Negative, or more than there are: all.
  std::vector<DeviceOverride> overrides;
  std::vector<DeviceLimit> limits;
  bool reuse_memory = true;
};

class Generator {
 public:
  static Result<std::unique_ptr<Generator>> Create(const GgufFile& file,
                                                   const GeneratorOptions& options);

  Result<std::vector<MemoryUse>> Measure() { return scheduler_->Measure(); }
  Result<void> Reserve();
  Result<void> Load(const std::function<void(int64_t done, int64_t total)>& progress = {});

  // Appends tokens to the context, in batches. Afterwards logits() and next() are those of the last
  // token, or of the last max_outputs tokens of the last batch. kOutOfMemory if the context is
  // full: nothing was appended. Stopped or failed: the context is as it was before the call.
  Result<void> Feed(std::span<const Token> tokens);
  // Rows of the vocabulary's size, one for each output; valid until the next call. Empty where the
  // model's options leave logits out.
  std::span<const float> logits() const { return logits_; }
  // The largest of the last row.
  Token next() const { return next_; }

  // Forgets all but the first `length` tokens.
  Result<void> Truncate(int64_t length);
  int64_t length() const { return length_; }
  int64_t context() const { return context_; }

  void Cancel() { scheduler_->Cancel(); }
  Scheduler& scheduler() { return *scheduler_; }
  const LlamaGraph& model() const { return model_; }
  GraphHandle handle() const { return handle_; }

 private:
  Generator() = default;
  Result<void> FeedBatch(std::span<const Token> tokens, bool wants_output);

  LlamaGraph model_;
  int64_t context_ = 0, max_tokens_ = 0, max_outputs_ = 1;
  bool has_logits_ = true;
  std::unique_ptr<Scheduler> scheduler_;
  GraphHandle handle_ = kNone;
  int64_t length_ = 0;
  bool needs_reset_ = false;    // A failed run left the caches undefined.
  std::vector<Token> history_;  // To fill the caches again after a failure.
  std::vector<int32_t> positions_, rows_;
  std::span<const float> logits_;
  Token next_ = kNoToken;
};

}  // namespace tandem
