// Frequencies of a rotary embedding, kept between calls.
//
// They depend on the base and the number of dimensions alone, every layer asks for the same, and
// pow() is what a call for one token would spend its time on. Used by one stream's leader only.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace tandem::cpu {

class RopeTable {
 public:
  // base^(-2i/dims) for each pair i; empty if there are too many pairs to keep.
  std::span<const double> Frequencies(double base, int64_t dims) {
    const int64_t pairs = dims / 2;
    if (pairs > kMaxPairs) return {};
    if (base != base_ || dims != dims_) {
      for (int64_t i = 0; i < pairs; ++i) frequencies_[static_cast<size_t>(i)] = Of(base, dims, i);
      base_ = base;
      dims_ = dims;
    }
    return {frequencies_.data(), static_cast<size_t>(pairs)};
  }
  static double Of(double base, int64_t dims, int64_t pair) {
    return std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
  }

 private:
  static constexpr int64_t kMaxPairs = 512;
  double base_ = 0;
  int64_t dims_ = 0;
  std::array<double, kMaxPairs> frequencies_;
};

}  // namespace tandem::cpu
