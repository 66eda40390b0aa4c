#include "models/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tandem {
namespace {

// SplitMix64: fills the generator's state from a seed of 64 bits (Vigna 2015).
uint64_t NextSeed(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// xoshiro256** (Blackman and Vigna 2018).
uint64_t NextRandom(uint64_t (&s)[4]) {
  const uint64_t result = std::rotl(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

// Likely first; equal ones by token, so that the order is one.
bool Before(const std::pair<float, Token>& a, const std::pair<float, Token>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// In proportion to the probability, 1 for the largest logit. Infinite logits are well-defined.
double Weight(float logit, float largest, double temperature) {
  if (logit == largest) return 1;
  return std::exp((static_cast<double>(logit) - largest) / temperature);
}

}  // namespace

Result<Sampler> Sampler::Create(const SamplerOptions& options) {
  if (!std::isfinite(options.temperature)) {
    return Fail(ErrorCode::kInvalid, "sampler: temperature {} is no finite number",
                options.temperature);
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return Fail(ErrorCode::kInvalid, "sampler: top-p {} is not in (0, 1]", options.top_p);
  }
  return Sampler(options);
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  uint64_t seed = options.seed;
  for (uint64_t& word : state_) word = NextSeed(&seed);
}

Result<Token> Sampler::Pick(std::span<const float> logits) {
  candidates_.clear();
  const bool greedy = options_.temperature <= 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    const std::pair<float, Token> candidate(logits[i], static_cast<Token>(i));
    if (!greedy || candidates_.empty()) {
      candidates_.push_back(candidate);
    } else if (Before(candidate, candidates_.front())) {
      candidates_.front() = candidate;
    }
  }
  if (candidates_.empty()) {
    return Fail(ErrorCode::kInvalid, "sampler: none of the {} logits is a number", logits.size());
  }
  if (greedy) return candidates_.front().second;

  const size_t all = candidates_.size();
  const size_t kept = options_.top_k > 0 ? std::min(all, static_cast<size_t>(options_.top_k)) : all;
  std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(), Before);
  candidates_.resize(kept);
  const float largest = candidates_.front().first;

  if (options_.top_p < 1) {
    double total = 0;
    for (const auto& [logit, token] : candidates_) total += Weight(logit, largest, 1);
    double sum = 0;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || sum < options_.top_p * total)) {
      sum += Weight(candidates_[count++].first, largest, 1);
    }
    candidates_.resize(count);
  }

  double total = 0;
  for (const auto& [logit, token] : candidates_) {
    total += Weight(logit, largest, options_.temperature);
  }
  const double draw = static_cast<double>(NextRandom(state_) >> 11) * 0x1p-53 * total;
  double sum = 0;
  Token picked = candidates_.front().second;
  for (const auto& [logit, token] : candidates_) {
    const double weight = Weight(logit, largest, options_.temperature);
    if (weight > 0) picked = token;  // What stays if rounding kept the draw at the very end.
    sum += weight;
    if (draw < sum) break;
  }
  return picked;
}

}  // namespace tandem
