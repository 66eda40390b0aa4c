#include <cmath>

#include "graph/element_rows.h"
#include "graph/ops.h"
#include "graph/reference.h"

namespace tandem::reference {
namespace {

template <class F>
Result<void> Unary(const HostTensor& x, const HostTensor& output, F&& f) {
  if (output.layout.Elements() == 0) return {};
  std::vector<double> row;
  for (RowCounter counter(output.layout); !counter.AtEnd(); counter.Next()) {
    ReadRow(x, OffsetAt(x.layout, counter.index()), row);
    for (double& value : row) value = f(value);
    WriteRow(output, OffsetAt(output.layout, counter.index()), row);
  }
  return {};
}

// b broadcasts to a: its dimensions are aligned at the end, and single ones repeat.
template <class F>
Result<void> Binary(const HostTensor& a, const HostTensor& b, const HostTensor& output, F&& f) {
  if (output.layout.Elements() == 0) return {};
  const int missing = a.layout.rank - b.layout.rank;
  std::vector<double> left, right;
  for (RowCounter counter(output.layout); !counter.AtEnd(); counter.Next()) {
    const auto index = counter.index();
    ReadRow(a, OffsetAt(a.layout, index), left);
    int64_t b_offset = 0;
    for (int i = 0; i + 1 < b.layout.rank; ++i)
      if (b.layout.dims[i] != 1)
        b_offset += index[static_cast<size_t>(i + missing)] * b.layout.strides[i];
    ReadRow(b, b_offset, right);
    const bool single = right.size() == 1;
    for (size_t i = 0; i < left.size(); ++i) left[i] = f(left[i], right[single ? 0 : i]);
    WriteRow(output, OffsetAt(output.layout, index), left);
  }
  return {};
}

double SiluOf(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

Result<void> Silu(Inputs inputs, const HostTensor& output, Attributes) {
  return Unary(inputs[0], output, SiluOf);
}

Result<void> Swiglu(Inputs inputs, const HostTensor& output, Attributes) {
  return Binary(inputs[0], inputs[1], output,
                [](double gate, double up) { return SiluOf(gate) * up; });
}

Result<void> Add(Inputs inputs, const HostTensor& output, Attributes) {
  return Binary(inputs[0], inputs[1], output, [](double a, double b) { return a + b; });
}

Result<void> Mul(Inputs inputs, const HostTensor& output, Attributes) {
  return Binary(inputs[0], inputs[1], output, [](double a, double b) { return a * b; });
}

Result<void> Scale(Inputs inputs, const HostTensor& output, Attributes attributes) {
  return Unary(inputs[0], output, [&](double x) {
    return x * attributes[ops::kScaleFactor] + attributes[ops::kScaleBias];
  });
}

}  // namespace tandem::reference
