#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/element_rows.h"
#include "graph/ops.h"
#include "graph/reference.h"

namespace tandem::reference {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// In place; a row in which everything is hidden becomes zeros. One value that is not a number makes
// all of the row so: what was never written must not look like a result.
void SoftmaxRow(std::vector<double>& row) {
  double most = kHidden, sum = 0;
  for (const double value : row)
    if (value > most || std::isnan(value)) most = value;
  if (most == kHidden) {
    std::fill(row.begin(), row.end(), 0);
    return;
  }
  for (double& value : row) sum += value = std::exp(value - most);
  for (double& value : row) value /= sum;
}

}  // namespace

Result<void> Softmax(Inputs inputs, const HostTensor& output, Attributes attributes) {
  const HostTensor& x = inputs[0];
  const bool masked = inputs.size() > 1 && inputs[1].data != nullptr;
  if (output.layout.Elements() == 0) return {};
  std::vector<double> row, mask;
  for (RowCounter counter(x.layout); !counter.AtEnd(); counter.Next()) {
    const auto index = counter.index();
    ReadRow(x, OffsetAt(x.layout, index), row);
    if (masked) ReadRow(inputs[1], index.back() * inputs[1].layout.strides[0], mask);
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = row[i] * attributes[ops::kSoftmaxScale] + (masked ? mask[i] : 0);
    SoftmaxRow(row);
    WriteRow(output, OffsetAt(output.layout, index), row);
  }
  return {};
}

Result<void> Attention(Inputs inputs, const HostTensor& output, Attributes attributes) {
  const HostTensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
  if (output.layout.Elements() == 0) return {};
  const bool causal = inputs.size() > 3 && inputs[3].data != nullptr;
  const int64_t heads = q.layout.dims[1], groups = k.layout.dims[1], keys = k.layout.dims[0];
  const double given = attributes[ops::kAttentionScale];
  // Without a width all scores are zero, whatever the scale.
  const auto width = static_cast<double>(std::max<int64_t>(q.layout.dims[2], 1));
  const double scale = given == 0 ? 1 / std::sqrt(width) : given;
  std::vector<double> query, row, scores(static_cast<size_t>(keys)), sum;
  for (int64_t t = 0; t < q.layout.dims[0]; ++t) {
    const int64_t last = causal ? ReadId(inputs[3], t * inputs[3].layout.strides[0]) : keys - 1;
    const int64_t seen = std::clamp<int64_t>(last + 1, 0, keys);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h / (heads / groups);
      ReadRow(q, t * q.layout.strides[0] + h * q.layout.strides[1], query);
      scores.resize(static_cast<size_t>(seen));
      for (int64_t s = 0; s < seen; ++s) {
        ReadRow(k, s * k.layout.strides[0] + g * k.layout.strides[1], row);
        double dot = 0;
        for (size_t i = 0; i < row.size(); ++i) dot += query[i] * row[i];
        scores[static_cast<size_t>(s)] = dot * scale;
      }
      SoftmaxRow(scores);
      sum.assign(static_cast<size_t>(v.layout.dims[2]), 0);
      for (int64_t s = 0; s < seen; ++s) {
        ReadRow(v, s * v.layout.strides[0] + g * v.layout.strides[1], row);
        for (size_t i = 0; i < row.size(); ++i) sum[i] += scores[static_cast<size_t>(s)] * row[i];
      }
      WriteRow(output, t * output.layout.strides[0] + h * output.layout.strides[1], sum);
    }
  }
  return {};
}

}  // namespace tandem::reference
