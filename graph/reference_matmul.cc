#include <algorithm>

#include "graph/element_rows.h"
#include "graph/reference.h"

namespace tandem::reference {
namespace {

// Several sums at once, so that an addition need not wait for the one before it.
double Dot(const double* a, const double* b, int64_t size) {
  constexpr int kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums)
    for (int j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  double sum = 0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

Result<void> Matmul(Inputs inputs, const HostTensor& output, Attributes) {
  const HostTensor &x = inputs[0], &w = inputs[1];
  if (output.layout.Elements() == 0) return {};
  const int64_t tokens = x.layout.dims[x.layout.rank - 2];
  const int64_t width = x.layout.dims[x.layout.rank - 1];
  const int64_t rows = w.layout.dims[w.layout.rank - 2];
  const int extra = x.layout.rank - w.layout.rank;  // Batch dimensions that w lacks.
  std::vector<double> activations(static_cast<size_t>(tokens * width)), row;
  for (RowCounter batch(x.layout, 2); !batch.AtEnd(); batch.Next()) {
    const auto index = batch.index();
    const int64_t x_offset = OffsetAt(x.layout, index);
    for (int64_t t = 0; t < tokens; ++t) {
      ReadRow(x, x_offset + t * x.layout.strides[x.layout.rank - 2], row);
      std::copy(row.begin(), row.end(), activations.begin() + t * width);
    }
    // Groups: batch b of x uses b / (size of x / size of w).
    std::array<int64_t, kMaxRank> w_index{};
    const int w_batches = w.layout.rank - 2;
    for (int i = 0; i < w_batches; ++i)
      w_index[i] = index[i + extra] / (x.layout.dims[i + extra] / w.layout.dims[i]);
    const int64_t w_offset = OffsetAt(w.layout, {w_index.data(), static_cast<size_t>(w_batches)});
    const int64_t out_offset = OffsetAt(output.layout, index);
    const int64_t out_row = output.layout.strides[output.layout.rank - 2];
    const int64_t out_element = output.layout.strides[output.layout.rank - 1];
    for (int64_t n = 0; n < rows; ++n) {
      ReadRow(w, w_offset + n * w.layout.strides[w.layout.rank - 2], row);
      for (int64_t t = 0; t < tokens; ++t) {
        const double* a = activations.data() + t * width;
        const double sum = Dot(a, row.data(), width);
        Info(output.layout.type)
            .encode(&sum, 1, output.data + out_offset + t * out_row + n * out_element);
      }
    }
  }
  return {};
}

}  // namespace tandem::reference
