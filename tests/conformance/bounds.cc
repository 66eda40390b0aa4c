#include "tests/conformance/bounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "graph/ops.h"

namespace tandem::conformance {
namespace {

constexpr double kU = 0x1p-24;
constexpr double kTiny = 1e-37;
constexpr int64_t kBlock = 32;

std::span<const int64_t> DimsOf(const Layout& layout) {
  return {layout.dims.data(), static_cast<size_t>(layout.rank)};
}

int64_t Columns(const Layout& layout) {
  return layout.rank == 0 ? 1 : layout.dims[layout.rank - 1];
}

// The largest magnitude of each group of `group` columns, in place of each of its elements.
std::vector<double> LargestOfGroup(const std::vector<double>& values, int64_t columns,
                                   int64_t group) {
  std::vector<double> largest(values.size());
  const auto count = static_cast<int64_t>(values.size());
  for (int64_t row = 0; row < count; row += std::max<int64_t>(columns, 1))
    for (int64_t begin = row; begin < row + columns; begin += group) {
      const int64_t end = std::min(begin + group, row + columns);
      double most = 0;
      for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(values[i]));
      std::fill(largest.begin() + begin, largest.begin() + end, most);
    }
  return largest;
}

// The op's own sums over other numbers: x and w of the same sizes as the matmul's, as F32.
std::vector<double> SumsOver(const Layout& x, const std::vector<double>& x_values, const Layout& w,
                             const std::vector<double>& w_values, const Layout& output) {
  const auto packed = [](Layout layout, const std::vector<double>& values) {
    const auto columns = static_cast<int64_t>(values.size());
    // Fewer values than elements: one column in place of all.
    if (columns != layout.Elements()) layout.dims[layout.rank - 1] = 1;
    Arranged arranged;
    arranged.layout = Contiguous(Type::kF32, DimsOf(layout));
    arranged.bytes.resize(static_cast<size_t>(arranged.layout.PackedBytes()));
    Encode(values, arranged.host());
    return arranged;
  };
  Arranged sums;
  sums.layout = Contiguous(Type::kF32, DimsOf(output));
  sums.bytes.resize(static_cast<size_t>(sums.layout.PackedBytes()));
  Arranged left = packed(x, x_values), right = packed(w, w_values);
  const std::array<HostTensor, 2> inputs{left.host(), right.host()};
  const std::array<double, 1> attributes{1};
  if (!ops::kMatmul.reference(inputs, sums.host(), attributes)) return {};
  return Decode(sums.host());
}

template <class F>
std::vector<double> Map(std::vector<double> values, const F& f) {
  for (double& v : values) v = f(v);
  return values;
}

// Euclidean norm of each row.
std::vector<double> RowNorms(const std::vector<double>& values, int64_t columns) {
  std::vector<double> norms;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(columns)) {
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += values[row + i] * values[row + i];
    norms.push_back(std::sqrt(sum));
  }
  return norms;
}

std::vector<double> MatmulBounds(const Case& c, std::span<const HostTensor> inputs,
                                 const HostTensor& want) {
  const Layout &x_layout = inputs[0].layout, &w_layout = inputs[1].layout;
  const std::vector<double> x = Decode(inputs[0]), w = Decode(inputs[1]);
  const int64_t k = Columns(x_layout);
  if (want.layout.Elements() == 0 || k == 0)
    return std::vector<double>(static_cast<size_t>(want.layout.Elements()));
  const bool is_block = Info(w_layout.type).is_block;
  const auto magnitude = [](double v) { return std::fabs(v); };
  const auto square = [](double v) { return v * v; };
  const auto sums = [&](const std::vector<double>& a, const std::vector<double>& b) {
    return SumsOver(x_layout, a, w_layout, b, want.layout);
  };
  const std::vector<double> x_size = Map(x, magnitude), w_size = Map(w, magnitude);
  const std::vector<double> w_terms =
      is_block ? Map(LargestOfGroup(w, k, kBlock), [](double v) { return 3 * v; }) : w_size;
  std::vector<double> bound = sums(x_size, w_terms);
  for (double& b : bound) b *= kU * (8 + 2 * std::sqrt(static_cast<double>(k)));
  if (c.attributes[ops::kMatmulExact] != 0) return bound;

  if (is_block) {
    const std::vector<double> step =
        Map(LargestOfGroup(x, k, kBlock), [](double v) { return v / 127; });
    const std::vector<double> worst = sums(step, w_size);  // Half a step each is the worst case.
    const std::vector<double> variance = sums(Map(step, square), Map(w, square));
    // The scale of a block may be kept as F16.
    const std::vector<double> terms = sums(x_size, w_size);
    for (size_t i = 0; i < bound.size(); ++i)
      bound[i] += std::min(0.52 * worst[i], 6 * std::sqrt(variance[i] / 12)) + 0x1p-11 * terms[i];
    return bound;
  }
  const std::vector<double> variance = sums(Map(x, square), Map(w, square));
  const std::vector<double> norms = sums(RowNorms(x, k), RowNorms(w, k));
  const std::vector<double> terms = sums(x_size, w_size);
  for (size_t i = 0; i < bound.size(); ++i)
    bound[i] +=
        std::min(0x1p-8 * terms[i], 6 * 0x1p-9 * std::sqrt(variance[i])) + 1.2e-4 * norms[i];
  return bound;
}

std::vector<double> AttentionBounds(const Case& c, std::span<const HostTensor> inputs,
                                    const HostTensor& want) {
  const Layout &q_layout = inputs[0].layout, &k_layout = inputs[1].layout,
               &v_layout = inputs[2].layout;
  const std::vector<double> q = Decode(inputs[0]), k = Decode(inputs[1]), v = Decode(inputs[2]);
  const bool has_positions = inputs.size() > 3 && c.inputs[3].present;
  const std::vector<double> positions = has_positions ? Decode(inputs[3]) : std::vector<double>();
  const int64_t tokens = q_layout.dims[0], heads = q_layout.dims[1], d = q_layout.dims[2];
  const int64_t keys = k_layout.dims[0], groups = k_layout.dims[1], e = v_layout.dims[2];
  const bool is_half = k_layout.type != Type::kF32 || v_layout.type != Type::kF32;
  double scale = c.attributes[ops::kAttentionScale];
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<double> bound(static_cast<size_t>(want.layout.Elements()));
  std::vector<double> score(static_cast<size_t>(keys)), weighted(static_cast<size_t>(e));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t group = h / (heads / groups);
      const int64_t seen =
          has_positions ? std::min(keys, static_cast<int64_t>(positions[t]) + 1) : keys;
      double largest = -INFINITY, most_terms = 0;
      for (int64_t s = 0; s < seen; ++s) {
        double sum = 0, terms = 0;
        for (int64_t i = 0; i < d; ++i) {
          const double product = q[(t * heads + h) * d + i] * k[(s * groups + group) * d + i];
          sum += product;
          terms += std::fabs(product);
        }
        score[s] = sum * scale;
        largest = std::max(largest, score[s]);
        most_terms = std::max(most_terms, terms * scale);
      }
      double total = 0;
      std::fill(weighted.begin(), weighted.end(), 0.0);
      for (int64_t s = 0; s < seen; ++s) {
        const double p = std::exp(score[s] - largest);
        total += p;
        for (int64_t i = 0; i < e; ++i)
          weighted[i] += p * std::fabs(v[(s * groups + group) * e + i]);
      }
      const double rounding = is_half ? 0x1p-11 : 0;
      const double of_score =
          most_terms * (kU * (8 + 2 * std::sqrt(static_cast<double>(d))) + rounding);
      const double relative =
          2 * of_score + 32 * kU + kU * std::sqrt(static_cast<double>(keys)) + 2 * rounding;
      for (int64_t i = 0; i < e; ++i)
        bound[(t * heads + h) * e + i] = total == 0 ? 0 : relative * weighted[i] / total;
    }
  return bound;
}

std::vector<double> SoftmaxBounds(const Case& c, std::span<const HostTensor> inputs,
                                  const std::vector<double>& want) {
  const std::vector<double> x = Decode(inputs[0]);
  const int64_t columns = Columns(inputs[0].layout);
  double most_mask = 0;
  if (inputs.size() > 1 && c.inputs[1].present)
    for (const double m : Decode(inputs[1]))
      if (std::isfinite(m)) most_mask = std::max(most_mask, std::fabs(m));
  const std::vector<double> largest = LargestOfGroup(x, columns, std::max<int64_t>(columns, 1));
  std::vector<double> bound(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double argument = std::fabs(c.attributes[ops::kSoftmaxScale]) * largest[i] + most_mask;
    bound[i] = kU * (32 + 4 * argument) * want[i];
  }
  return bound;
}

std::vector<double> RopeBounds(const Case& c, std::span<const HostTensor> inputs,
                               const std::vector<double>& want) {
  const Layout& layout = inputs[0].layout;
  const int64_t tokens = layout.dims[0], heads = layout.dims[1], d = layout.dims[2];
  const std::vector<double> positions = Decode(inputs[1]);
  const bool has_factors = inputs.size() > 2 && c.inputs[2].present;
  const std::vector<double> factors = has_factors ? Decode(inputs[2]) : std::vector<double>();
  int64_t rotated = static_cast<int64_t>(c.attributes[ops::kRopeDims]);
  if (rotated == 0) rotated = d;
  const bool halves = c.attributes[ops::kRopeHalves] != 0;
  std::vector<double> bound(want.size());  // Elements that are not rotated are copied.
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < rotated / 2; ++i) {
      const double angle = positions[t] * c.attributes[ops::kRopeScale] *
                           std::pow(c.attributes[ops::kRopeBase],
                                    -2.0 * static_cast<double>(i) / static_cast<double>(rotated)) /
                           (has_factors ? factors[i] : 1.0);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t row = (t * heads + h) * d;
        const int64_t a = row + (halves ? i : 2 * i), b = halves ? a + rotated / 2 : a + 1;
        // A rotation keeps the pair's norm, so the output tells as much as the input.
        bound[a] = bound[b] = kU * (16 + 4 * std::fabs(angle)) * 1.5 * std::hypot(want[a], want[b]);
      }
    }
  return bound;
}

}  // namespace

std::vector<double> Bounds(const Case& c, std::span<const HostTensor> inputs,
                           const HostTensor& want) {
  const std::vector<double> wanted = Decode(want);
  const auto relative = [&](double factor) {
    return Map(wanted, [factor](double v) { return factor * std::fabs(v); });
  };
  std::vector<double> bound;
  if (c.op == &ops::kMatmul) {
    bound = MatmulBounds(c, inputs, want);
  } else if (c.op == &ops::kAttention) {
    bound = AttentionBounds(c, inputs, want);
  } else if (c.op == &ops::kSoftmax) {
    bound = SoftmaxBounds(c, inputs, wanted);
  } else if (c.op == &ops::kRope) {
    bound = RopeBounds(c, inputs, wanted);
  } else if (c.op == &ops::kRows && Info(inputs[0].layout.type).is_block) {
    bound = Map(LargestOfGroup(wanted, Columns(want.layout), kBlock),
                [](double v) { return 3 * kU * v; });
  } else if (c.op == &ops::kRows || c.op == &ops::kCopy || c.op == &ops::kUpdateRows ||
             c.op == &ops::kArgmax) {
    return std::vector<double>(wanted.size());
  } else if (c.op == &ops::kAdd || c.op == &ops::kMul) {
    bound = relative(2 * kU);
  } else if (c.op == &ops::kScale) {
    const double factor = c.attributes[ops::kScaleFactor], bias = c.attributes[ops::kScaleBias];
    bound = Map(Decode(inputs[0]),
                [&](double x) { return 4 * kU * (std::fabs(x * factor) + std::fabs(bias)); });
  } else if (c.op == &ops::kRmsNorm) {
    bound = relative(32 * kU);
  } else if (c.op == &ops::kSilu || c.op == &ops::kSwiglu) {
    const std::vector<double> x = Decode(inputs[0]);
    const bool is_gated = c.op == &ops::kSwiglu;
    const std::vector<double> up = is_gated ? Decode(inputs[1]) : std::vector<double>();
    bound.resize(x.size());
    for (size_t i = 0; i < bound.size(); ++i)
      bound[i] = kU * (32 + std::fabs(x[i])) * std::fabs(wanted[i]) +
                 kTiny * std::fabs(x[i]) * (is_gated ? std::fabs(up[i]) : 1.0);
  } else {
    bound = relative(4 * kU);
  }
  for (double& b : bound) b += kTiny;
  return bound;
}

}  // namespace tandem::conformance
