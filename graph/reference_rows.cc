// Ops that move or change whole rows: rows, update_rows, copy, argmax, rms_norm, rope.
#include <cmath>
#include <cstring>

#include "graph/element_rows.h"
#include "graph/ops.h"
#include "graph/reference.h"

namespace tandem::reference {

Result<void> Rows(Inputs inputs, const HostTensor& output, Attributes) {
  const HostTensor &table = inputs[0], &ids = inputs[1];
  if (output.layout.Elements() == 0) return {};
  std::vector<double> row;
  for (RowCounter counter(output.layout); !counter.AtEnd(); counter.Next()) {
    const int64_t id = ReadId(ids, OffsetAt(ids.layout, counter.index()));
    if (id < 0 || id >= table.layout.dims[0])
      return Fail(ErrorCode::kInvalid, "rows: id {} is not in a table of {}", id,
                  table.layout.dims[0]);
    ReadRow(table, id * table.layout.strides[0], row);
    WriteRow(output, OffsetAt(output.layout, counter.index()), row);
  }
  return {};
}

Result<void> UpdateRows(Inputs inputs, const HostTensor& output, Attributes) {
  const HostTensor &rows = inputs[1], &ids = inputs[2];
  if (rows.layout.Elements() == 0) return {};
  for (int64_t t = 0; t < rows.layout.dims[0]; ++t) {
    const int64_t id = ReadId(ids, t * ids.layout.strides[0]);
    if (id < 0 || id >= output.layout.dims[0])
      return Fail(ErrorCode::kInvalid, "update_rows: id {} is not in a state of {} rows", id,
                  output.layout.dims[0]);
  }
  std::vector<double> row;
  for (RowCounter counter(rows.layout); !counter.AtEnd(); counter.Next()) {
    const auto index = counter.index();
    std::array<int64_t, kMaxRank> target{};
    std::copy(index.begin(), index.end(), target.begin());
    // A state of one dimension has rows of one element: the counter then stands still.
    if (!index.empty()) target[0] = ReadId(ids, index[0] * ids.layout.strides[0]);
    ReadRow(rows, OffsetAt(rows.layout, index), row);
    if (!index.empty()) {
      WriteRow(output, OffsetAt(output.layout, {target.data(), index.size()}), row);
      continue;
    }
    for (size_t i = 0; i < row.size(); ++i) {
      const int64_t id = ReadId(ids, static_cast<int64_t>(i) * ids.layout.strides[0]);
      Info(output.layout.type).encode(&row[i], 1, output.data + id * output.layout.strides[0]);
    }
  }
  return {};
}

Result<void> Copy(Inputs inputs, const HostTensor& output, Attributes) {
  const HostTensor& x = inputs[0];
  if (output.layout.Elements() == 0) return {};
  std::vector<double> row;
  for (RowCounter counter(output.layout); !counter.AtEnd(); counter.Next()) {
    ReadRow(x, OffsetAt(x.layout, counter.index()), row);
    WriteRow(output, OffsetAt(output.layout, counter.index()), row);
  }
  return {};
}

Result<void> Argmax(Inputs inputs, const HostTensor& output, Attributes) {
  const HostTensor& x = inputs[0];
  if (output.layout.Elements() == 0) return {};
  std::vector<double> row;
  for (RowCounter counter(x.layout); !counter.AtEnd(); counter.Next()) {
    ReadRow(x, OffsetAt(x.layout, counter.index()), row);
    size_t best = 0;
    for (size_t i = 1; i < row.size(); ++i)
      if (row[i] > row[best]) best = i;
    const auto id = static_cast<int32_t>(best);
    std::memcpy(output.data + OffsetAt(output.layout, counter.index()), &id, sizeof id);
  }
  return {};
}

Result<void> RmsNorm(Inputs inputs, const HostTensor& output, Attributes attributes) {
  const HostTensor& x = inputs[0];
  if (output.layout.Elements() == 0) return {};
  std::vector<double> row, weight(static_cast<size_t>(x.layout.dims[x.layout.rank - 1]), 1.0);
  if (inputs.size() > 1 && inputs[1].data != nullptr) ReadRow(inputs[1], 0, weight);
  for (RowCounter counter(x.layout); !counter.AtEnd(); counter.Next()) {
    ReadRow(x, OffsetAt(x.layout, counter.index()), row);
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(row.size()) + attributes[ops::kRmsNormEpsilon]);
    for (size_t i = 0; i < row.size(); ++i) row[i] *= factor * weight[i];
    WriteRow(output, OffsetAt(output.layout, counter.index()), row);
  }
  return {};
}

// Source: Su et al., "RoFormer", 2021; pairs are adjacent or half the rotated width apart.
Result<void> Rope(Inputs inputs, const HostTensor& output, Attributes attributes) {
  const HostTensor &x = inputs[0], &positions = inputs[1];
  if (output.layout.Elements() == 0) return {};
  const bool has_factors = inputs.size() > 2 && inputs[2].data != nullptr;
  const double given = attributes[ops::kRopeDims];
  const auto dims = given == 0 ? x.layout.dims[2] : static_cast<int64_t>(given);
  const int64_t pairs = dims / 2;
  const bool halves = attributes[ops::kRopeHalves] != 0;
  std::vector<double> row, factors(static_cast<size_t>(pairs), 1.0);
  if (has_factors) ReadRow(inputs[2], 0, factors);
  for (RowCounter counter(x.layout); !counter.AtEnd(); counter.Next()) {
    const auto index = counter.index();
    const auto position =
        static_cast<double>(ReadId(positions, index[0] * positions.layout.strides[0]));
    ReadRow(x, OffsetAt(x.layout, index), row);
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = position * attributes[ops::kRopeScale] *
                           std::pow(attributes[ops::kRopeBase],
                                    -2.0 * static_cast<double>(i) / static_cast<double>(dims)) /
                           factors[static_cast<size_t>(i)];
      double& a = row[static_cast<size_t>(halves ? i : 2 * i)];
      double& b = row[static_cast<size_t>(halves ? i + pairs : 2 * i + 1)];
      const double c = std::cos(angle), s = std::sin(angle), first = a, second = b;
      a = first * c - second * s;
      b = first * s + second * c;
    }
    WriteRow(output, OffsetAt(output.layout, index), row);
  }
  return {};
}

}  // namespace tandem::reference
