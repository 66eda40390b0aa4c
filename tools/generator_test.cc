// The generator on small random models, on the CPU, on simulated devices, and split between
// them: no model file is needed.
#include "tools/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "models/tiny_llama.h"

namespace tandem {
namespace {

constexpr int64_t kLayers = 4;
constexpr int64_t kContext = 48;

std::vector<Token> Prompt(int64_t count) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * i * 7 + 3) % 260));
  return tokens;
}

class GeneratorTest : public testing::Test {
 protected:
  explicit GeneratorTest(const TinyLlama& model = {.layers = kLayers, .tied = false}) {
    const TemporaryFile bytes(WriteTinyLlama(model).Bytes());
    auto opened = GgufFile::Open(bytes.path());
    if (!opened) throw std::runtime_error(opened.error().message);
    file_ = *opened;
    cpu_ = MakeCpuBackend({.threads = 1});
    SimOptions packing{.name = "packing"};
    packing.packs_weights = true;
    packing.scratch = 100;
    SimOptions small{.name = "small"};
    small.memory = 10000;
    SimOptions no_rope{.name = "no_rope"};
    no_rope.unsupported = {"rope"};
    sim_ = MakeSimBackend({{.name = "0"}, packing, small, no_rope}, host().memory());
  }

  Device& host() { return *cpu_->devices()[0]; }
  Device& sim(int index) { return *sim_->devices()[index]; }

  GeneratorOptions Options(int64_t layers, Device* offload = nullptr) {
    GeneratorOptions options;
    options.model = {.context = kContext, .max_tokens = 8, .exact = true};
    options.host = &host();
    options.offload = offload == nullptr ? &sim(0) : offload;
    options.offloaded_layers = layers;
    return options;
  }

  std::unique_ptr<Generator> Ready(const GeneratorOptions& options) {
    auto generator = Generator::Create(*file_, options);
    if (!generator) throw std::runtime_error(generator.error().message);
    for (const auto& step : {(*generator)->Reserve(), (*generator)->Load()}) {
      if (!step) throw std::runtime_error(step.error().message);
    }
    return std::move(*generator);
  }

  // Logits behind a prompt and behind a few tokens more.
  static std::vector<float> Logits(Generator& generator, int64_t prompt, int64_t steps = 3) {
    std::vector<float> logits;
    EXPECT_TRUE(generator.Truncate(0).has_value());
    const std::vector<Token> tokens = Prompt(prompt + steps);
    const auto feed = [&](std::span<const Token> part) {
      const Result<void> fed = generator.Feed(part);
      ASSERT_TRUE(fed.has_value()) << fed.error().message;
      logits.insert(logits.end(), generator.logits().begin(), generator.logits().end());
    };
    feed(std::span(tokens).first(static_cast<size_t>(prompt)));
    for (int64_t i = 0; i < steps; ++i) feed({&tokens[static_cast<size_t>(prompt + i)], 1});
    return logits;
  }

  static void ExpectClose(const std::vector<float>& a, const std::vector<float>& b,
                          const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << what << ", logit " << i;
  }

  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<Backend> cpu_, sim_;
};

TEST_F(GeneratorTest, SplitsDoNotChangeTheResult) {
  const auto expected = Logits(*Ready(Options(0)), 20);
  EXPECT_EQ(expected.size(), 4u * kTinyVocabulary);
  for (Device* device : {&sim(0), &sim(1), &sim(3)}) {
    for (int64_t layers = -1; layers <= kLayers + 1; ++layers) {
      ExpectClose(Logits(*Ready(Options(layers, device)), 20), expected,
                  fmt::format("{} with {} layers", device->name(), layers));
    }
  }
}

TEST_F(GeneratorTest, LayersAreCountedFromTheEndAndTheOutputFirst) {
  for (const int64_t layers : {0L, 1L, 2L, kLayers, kLayers + 1, kLayers + 7, -1L}) {
    const auto generator = Generator::Create(*file_, Options(layers));
    ASSERT_TRUE(generator.has_value()) << generator.error().message;
    ASSERT_TRUE((*generator)->Measure().has_value());
    const Plan& plan = (*generator)->scheduler().plan((*generator)->handle(), 0);
    const Machine& machine = (*generator)->scheduler().machine();
    const int64_t offloaded = layers < 0 ? kLayers + 1 : std::min(layers, kLayers + 1);
    for (size_t node = 0; node < plan.placement.size(); ++node) {
      const int64_t layer = (*generator)->model().layer_of_node[node];
      const bool away = layer >= 0 && layer >= kLayers + 1 - offloaded;
      EXPECT_EQ(machine.devices[plan.placement[node].device], away ? &sim(0) : &host())
          << plan.graph->nodes()[node].name << " with " << layers;
      EXPECT_FALSE(plan.placement[node].reason.empty());
    }
  }
}

TEST_F(GeneratorTest, PatternsGoBeforeLayers) {
  GeneratorOptions options = Options(-1);
  options.overrides = {{"blk\\.[13]\\.ffn", &host()}, {"blk\\.0\\.", &sim(1)}};
  const auto generator = Ready(options);
  ExpectClose(Logits(*generator, 20), Logits(*Ready(Options(0)), 20), "overrides");
  const Plan& plan = generator->scheduler().plan(generator->handle(), 0);
  for (size_t node = 0; node < plan.placement.size(); ++node) {
    const std::string& name = plan.graph->nodes()[node].name;
    Device* device = generator->scheduler().machine().devices[plan.placement[node].device];
    if (name == "blk.3.ffn_down") {
      EXPECT_EQ(device, &host());
    }
    if (name == "blk.2.ffn_down") {
      EXPECT_EQ(device, &sim(0));
    }
    if (name == "blk.0.attn_q") {
      EXPECT_EQ(device, &sim(1));
    }
  }
  options.overrides = {{"blk[", &host()}};
  const auto wrong = Generator::Create(*file_, options);
  const bool refused = !wrong.has_value() || !(*wrong)->Measure().has_value();
  EXPECT_TRUE(refused) << "a pattern that is no regular expression";
}

TEST_F(GeneratorTest, BatchesDoNotChangeTheResult) {
  GeneratorOptions options = Options(2);
  const auto expected = Logits(*Ready(options), 20);
  for (const int64_t batch : {1L, 3L, 20L, kContext}) {
    options.model.max_tokens = batch;
    ExpectClose(Logits(*Ready(options), 20), expected, fmt::format("batches of {}", batch));
  }
}

TEST_F(GeneratorTest, EveryTokensLogits) {
  GeneratorOptions options = Options(2);
  options.model.max_tokens = options.model.max_outputs = 16;
  const auto generator = Ready(options);
  const std::vector<Token> tokens = Prompt(16);
  ASSERT_TRUE(generator->Feed(tokens).has_value());
  const std::vector<float> all(generator->logits().begin(), generator->logits().end());
  ASSERT_EQ(all.size(), 16u * kTinyVocabulary);
  const auto single = Ready(Options(2));
  for (size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_TRUE(single->Feed({&tokens[i], 1}).has_value());
    ExpectClose({single->logits().begin(), single->logits().end()},
                {all.begin() + static_cast<int64_t>(i) * kTinyVocabulary,
                 all.begin() + static_cast<int64_t>(i + 1) * kTinyVocabulary},
                fmt::format("token {}", i));
    EXPECT_EQ(single->next(),
              std::ranges::max_element(single->logits()) - single->logits().begin());
  }
}

TEST_F(GeneratorTest, RunningAgainPlansAndAllocatesNothing) {
  const auto generator = Ready(Options(2));
  const auto first = Logits(*generator, 20);
  const SchedulerCounters before = generator->scheduler().counters();
  const int64_t allocations = sim(0).memory().counters().allocations;
  EXPECT_EQ(before.plans, 2);
  for (const int64_t prompt : {1, 7, 8, 9, 40}) (void)Logits(*generator, prompt);
  EXPECT_EQ(Logits(*generator, 20), first);  // To the bit.
  EXPECT_EQ(generator->scheduler().counters().plans, before.plans);
  EXPECT_EQ(generator->scheduler().counters().allocations, before.allocations);
  EXPECT_EQ(sim(0).memory().counters().allocations, allocations);
}

TEST_F(GeneratorTest, GoingBack) {
  const auto generator = Ready(Options(2));
  const std::vector<Token> tokens = Prompt(20);
  ASSERT_TRUE(generator->Feed(tokens).has_value());
  const std::vector<float> expected(generator->logits().begin(), generator->logits().end());
  EXPECT_EQ(generator->length(), 20);
  EXPECT_FALSE(generator->Truncate(21).has_value());
  EXPECT_FALSE(generator->Truncate(-1).has_value());
  for (const int64_t length : {19, 16, 1, 0}) {
    ASSERT_TRUE(generator->Truncate(length).has_value());
    EXPECT_EQ(generator->length(), length);
    ASSERT_TRUE(
        generator->Feed(std::span(tokens).subspan(static_cast<size_t>(length))).has_value());
    ExpectClose({generator->logits().begin(), generator->logits().end()}, expected,
                fmt::format("from {}", length));
  }
}

TEST_F(GeneratorTest, WhatDoesNotFitOrIsNoTokenChangesNothing) {
  const auto generator = Ready(Options(2));
  const std::vector<Token> tokens = Prompt(kContext + 1);
  EXPECT_EQ(generator->Feed(tokens).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(generator->Feed({}).error().code, ErrorCode::kInvalid);
  for (const Token token : {-1, static_cast<Token>(kTinyVocabulary), INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(generator->Feed({&token, 1}).error().code, ErrorCode::kInvalid);
  }
  EXPECT_EQ(generator->length(), 0);
  ASSERT_TRUE(generator->Feed(std::span(tokens).first(kContext)).has_value());
  EXPECT_EQ(generator->length(), kContext);
  EXPECT_EQ(generator->Feed({tokens.data(), 1}).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(generator->length(), kContext);
}

TEST_F(GeneratorTest, ADeviceThatIsTooSmallIsAnErrorBeforeAnythingIsAllocated) {
  const auto generator = Generator::Create(*file_, Options(-1, &sim(2)));
  ASSERT_TRUE(generator.has_value()) << generator.error().message;
  const Result<void> reserved = (*generator)->Reserve();
  ASSERT_FALSE(reserved.has_value());
  EXPECT_EQ(reserved.error().code, ErrorCode::kOutOfMemory) << reserved.error().message;
  EXPECT_NE(reserved.error().message.find("sim:small"), std::string::npos)
      << reserved.error().message;
  EXPECT_EQ(sim(2).memory().counters().allocations, 0);

  GeneratorOptions limited = Options(-1);
  limited.limits = {{&sim(0), 20000}};
  const auto other = Generator::Create(*file_, limited);
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_EQ((*other)->Reserve().error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(sim(0).memory().counters().allocations, 0);
}

// Fail the n-th kernel and the n-th copy, for every n: an error, and then all is as it was.
TEST_F(GeneratorTest, AfterAFailureTheContextIsAsBefore) {
  const auto generator = Ready(Options(3));
  const std::vector<Token> tokens = Prompt(24);
  const std::span<const Token> head = std::span(tokens).first(9),
                               tail = std::span(tokens).subspan(9);
  ASSERT_TRUE(generator->Feed(head).has_value());
  ASSERT_TRUE(generator->Feed(tail).has_value());
  const std::vector<float> expected(generator->logits().begin(), generator->logits().end());
  for (const SimCall call : {SimCall::kRun, SimCall::kCopy}) {
    int failures = 0;
    for (int64_t nth = 1;; nth += call == SimCall::kRun ? 13 : 1) {
      SCOPED_TRACE(fmt::format("call {} of kind {}", nth, static_cast<int>(call)));
      ASSERT_TRUE(generator->Truncate(9).has_value());
      ArmFault(sim(0), {call, nth});
      const Result<void> fed = generator->Feed(tail);
      const bool fired = ClearFaults(sim(0)) == 0;
      ASSERT_EQ(fed.has_value(), !fired);
      if (!fired) break;
      ++failures;
      EXPECT_EQ(fed.error().code, ErrorCode::kDevice) << fed.error().message;
      EXPECT_EQ(generator->length(), 9);
      const Result<void> again = generator->Feed(tail);
      ASSERT_TRUE(again.has_value()) << again.error().message;
      ExpectClose({generator->logits().begin(), generator->logits().end()}, expected, "again");
    }
    EXPECT_GT(failures, 3);
  }
}

}  // namespace
}  // namespace tandem
