#include "models/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampler Make(const SamplerOptions& options) { return Sampler::Create(options).value(); }

std::map<Token, int> Draw(Sampler sampler, const std::vector<float>& logits, int count) {
  std::map<Token, int> drawn;
  for (int i = 0; i < count; ++i) ++drawn[sampler.Pick(logits).value()];
  return drawn;
}

std::set<Token> Drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<Token> tokens;
  for (const auto& [token, count] : Draw(Make(options), logits, 5000)) tokens.insert(token);
  return tokens;
}

TEST(SamplerTest, GreedyIsTheFirstOfTheLargest) {
  for (const double temperature : {0.0, -1.0}) {
    Sampler greedy = Make({.temperature = temperature});
    EXPECT_EQ(greedy.Pick(std::vector<float>{1, 3, 2}).value(), 1);
    EXPECT_EQ(greedy.Pick(std::vector<float>{3, 1, 3}).value(), 0);
    EXPECT_EQ(greedy.Pick(std::vector<float>{-5}).value(), 0);
    EXPECT_EQ(greedy.Pick(std::vector<float>{kNan, -kInfinity, kNan}).value(), 1);
    EXPECT_EQ(greedy.Pick(std::vector<float>{1, kInfinity, 2}).value(), 1);
  }
}

TEST(SamplerTest, LogitsThatAreNoNumbersAreAnError) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler = Make({.temperature = temperature});
    EXPECT_EQ(sampler.Pick({}).error().code, ErrorCode::kInvalid);
    EXPECT_EQ(sampler.Pick(std::vector<float>{kNan, kNan}).error().code, ErrorCode::kInvalid);
  }
}

TEST(SamplerTest, InfiniteLogitsAreWellDefined) {
  const SamplerOptions all{.temperature = 1, .top_k = 0, .top_p = 1};
  EXPECT_EQ(Drawn(all, {1, kInfinity, 2, kInfinity}), (std::set<Token>{1, 3}));
  EXPECT_EQ(Drawn(all, {-kInfinity, 0, -kInfinity, kNan}), (std::set<Token>{1}));
  EXPECT_EQ(Drawn(all, {-kInfinity, -kInfinity}), (std::set<Token>{0, 1}));
}

TEST(SamplerTest, OptionsThatAreWrong) {
  const double nan = std::nan(""), infinity = INFINITY;
  for (const double t : {nan, infinity, -infinity}) {
    EXPECT_FALSE(Sampler::Create({.temperature = t}).has_value());
  }
  for (const double p : {nan, 0.0, -0.5, 1.0001, infinity}) {
    EXPECT_FALSE(Sampler::Create({.top_p = p}).has_value()) << p;
  }
}

TEST(SamplerTest, TopKKeepsTheLargest) {
  const std::vector<float> logits{0, 3, 1, 2.5, 2, 3};
  const auto drawn = [&](int64_t k) {
    return Drawn({.temperature = 2, .top_k = k, .top_p = 1}, logits);
  };
  EXPECT_EQ(drawn(1), (std::set<Token>{1}));
  EXPECT_EQ(drawn(2), (std::set<Token>{1, 5}));
  EXPECT_EQ(drawn(3), (std::set<Token>{1, 3, 5}));
  EXPECT_EQ(drawn(0).size(), 6u);
  EXPECT_EQ(drawn(-1).size(), 6u);
  EXPECT_EQ(drawn(INT64_MAX).size(), 6u);
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatIsLikelyEnough) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const float step = std::log(2.0f);
  const std::vector<float> logits{-step, 0, -2 * step, -2 * step};
  const auto drawn = [&](double p, double temperature) {
    return Drawn({.temperature = temperature, .top_k = 0, .top_p = p}, logits);
  };
  for (const double temperature : {1.0, 5.0}) {  // The temperature comes after.
    EXPECT_EQ(drawn(0.01, temperature), (std::set<Token>{1}));
    EXPECT_EQ(drawn(0.49, temperature), (std::set<Token>{1}));
    EXPECT_EQ(drawn(0.6, temperature), (std::set<Token>{0, 1}));
    EXPECT_EQ(drawn(0.8, temperature), (std::set<Token>{0, 1, 2}));
    EXPECT_EQ(drawn(0.9, temperature), (std::set<Token>{0, 1, 2, 3}));
    EXPECT_EQ(drawn(1, temperature), (std::set<Token>{0, 1, 2, 3}));
  }
  // Top-k goes first: of the two that are left, 2/3 and 1/3.
  EXPECT_EQ(Drawn({.temperature = 1, .top_k = 2, .top_p = 0.6}, logits), (std::set<Token>{1}));
}

TEST(SamplerTest, DrawsInProportion) {
  const std::vector<float> logits{0.5f, -1, 2, 0, 1.25f, -3};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    constexpr int kDraws = 100000;
    const auto drawn = Draw(Make({.temperature = temperature, .top_k = 0, .top_p = 1, .seed = 42}),
                            logits, kDraws);
    double chi_squared = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * std::exp(logits[i] / temperature) / total;
      const auto it = drawn.find(static_cast<Token>(i));
      const double difference = (it == drawn.end() ? 0 : it->second) - expected;
      chi_squared += difference * difference / expected;
    }
    EXPECT_LT(chi_squared, 20.5);  // 5 degrees of freedom: one in a thousand is above.
  }
}

TEST(SamplerTest, ASeedIsOneSequence) {
  const std::vector<float> logits(100, 1.0f);
  const auto sequence = [&](uint64_t seed) {
    Sampler sampler = Make({.seed = seed});
    std::vector<Token> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.Pick(logits).value());
    return tokens;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
  EXPECT_NE(sequence(0), sequence(UINT64_MAX));
  // Greedy picks take nothing from the generator, and equal logits keep the first 40 tokens.
  for (const Token token : sequence(3)) EXPECT_LT(token, 40);
}

// The generator is the published one: its first outputs, as positions among 2^16 equal logits,
// computed with an independent implementation.
TEST(SamplerTest, TheGeneratorIsTheSameEverywhere) {
  const std::vector<float> logits(1 << 16, 0.0f);
  Sampler sampler = Make({.temperature = 1, .top_k = 0, .top_p = 1, .seed = 1});
  for (const Token expected : {46066, 34107, 37624, 25646, 45690}) {
    EXPECT_EQ(sampler.Pick(logits).value(), expected);
  }
}

}  // namespace
}  // namespace tandem
