#include "tests/conformance/case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "graph/ops.h"
#include "tests/conformance/bounds.h"
#include "tests/conformance/random.h"

namespace tandem::conformance {
namespace {

constexpr std::byte kGap{0xFF};  // A NaN in every float type.

std::vector<double> Generate(const Operand& operand, int64_t count, Random& random) {
  std::vector<double> values(static_cast<size_t>(count));
  const auto normals = [&](double outlier) {
    for (double& v : values) v = random.Normal() * (random.Below(64) == 0 ? outlier : 1.0);
  };
  switch (operand.values) {
    case Values::kNormal:
      normals(1000);
      break;
    case Values::kModest:
      normals(10);
      break;
    case Values::kTies:
      for (double& v : values) v = static_cast<double>(random.Below(5)) - 2;
      break;
    case Values::kIds: {
      std::vector<int64_t> ids(static_cast<size_t>(operand.range));
      std::iota(ids.begin(), ids.end(), 0);
      for (size_t i = ids.size(); i > 1; --i)
        std::swap(ids[i - 1], ids[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<double>(ids[i % ids.size()]);
      break;
    }
    case Values::kPositions:
      for (int64_t i = 0; i < count; ++i)
        values[i] = static_cast<double>(std::max<int64_t>(0, operand.range - count + i));
      break;
    case Values::kMask: {
      const int64_t columns = std::max<int64_t>(operand.dims.back(), 1);
      for (double& v : values) {
        const int64_t kind = random.Below(4);
        v = kind == 0 ? -std::numeric_limits<double>::infinity() : kind == 1 ? -1.5 : 0;
      }
      for (int64_t row = 0; row * columns < count; ++row)
        values[row * columns + random.Below(columns)] = 0;
      break;
    }
    case Values::kFactors:
      for (double& v : values) v = 1 + 7 * random.Uniform();
      break;
  }
  return values;
}

// Calls `visit` with the byte offset of each block, row-major.
template <class Visit>
void ForEachBlock(const Layout& layout, const Visit& visit) {
  if (layout.Elements() == 0) return;
  std::array<int64_t, kMaxRank> counts{1, 1, 1, 1}, strides{};
  for (int i = 0; i < layout.rank; ++i) {
    counts[kMaxRank - layout.rank + i] = layout.dims[i];
    strides[kMaxRank - layout.rank + i] = layout.strides[i];
  }
  if (layout.rank > 0) counts[kMaxRank - 1] /= Info(layout.type).block_elements;
  for (int64_t a = 0; a < counts[0]; ++a)
    for (int64_t b = 0; b < counts[1]; ++b)
      for (int64_t c = 0; c < counts[2]; ++c)
        for (int64_t d = 0; d < counts[3]; ++d)
          visit(a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
}

std::string NameOf(Arrangement arrangement) {
  switch (arrangement) {
    case Arrangement::kPacked:
      return "";
    case Arrangement::kSliced:
      return " sliced";
    case Arrangement::kPermuted:
      return " permuted";
    case Arrangement::kTransposed:
      return " transposed";
  }
  return "";
}

std::string NameOf(const std::vector<int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

}  // namespace

std::string Case::Name() const {
  std::string name(op->name);
  const char* separator = " ";
  for (const Operand& operand : inputs) {
    name += separator;
    separator = ", ";
    if (!operand.present) {
      name += "none";
      continue;
    }
    name += fmt::format("{}{}{}{}", Info(operand.type).name, NameOf(operand.dims),
                        NameOf(operand.arrangement), operand.constant ? " constant" : "");
    if (!operand.largest.empty()) name += fmt::format(" of {}", NameOf(operand.largest));
  }
  separator = "; ";
  for (size_t i = 0; i < attributes.size(); ++i) {
    name += fmt::format("{}{}={}", separator, op->attributes[i].name, attributes[i]);
    separator = " ";
  }
  if (in_place) name += "; in place";
  return name;
}

Arranged Arrange(Type type, const std::vector<int64_t>& dims, Arrangement arrangement) {
  const int rank = static_cast<int>(dims.size());
  const int64_t block = Info(type).block_elements;
  std::vector<int64_t> parent = dims;
  int first = 0, second = 0;  // Exchanged dimensions.
  int64_t start = 0;          // Of the slice, in blocks.
  if (arrangement == Arrangement::kSliced) {
    start = block == 1 ? 3 : 1;
    parent[rank - 1] += block == 1 ? 5 : 2 * block;
  } else if (arrangement == Arrangement::kPermuted) {
    second = 1;
  } else if (arrangement == Arrangement::kTransposed) {
    first = rank - 2;
    second = rank - 1;
  }
  if (first != second) std::swap(parent[first], parent[second]);
  Arranged arranged;
  arranged.layout = Contiguous(type, parent);
  arranged.bytes.assign(static_cast<size_t>(arranged.layout.PackedBytes()), kGap);
  std::swap(arranged.layout.strides[first], arranged.layout.strides[second]);
  for (int i = 0; i < rank; ++i) arranged.layout.dims[i] = dims[i];
  if (arranged.layout.Elements() > 0) arranged.offset = start * Info(type).block_bytes;
  return arranged;
}

std::vector<double> Decode(const HostTensor& tensor) {
  const TypeInfo& info = Info(tensor.layout.type);
  std::vector<double> values(static_cast<size_t>(tensor.layout.Elements()));
  double* next = values.data();
  ForEachBlock(tensor.layout, [&](int64_t offset) {
    info.decode(tensor.data + offset, 1, next);
    next += info.block_elements;
  });
  return values;
}

void Encode(const std::vector<double>& values, const HostTensor& tensor) {
  const TypeInfo& info = Info(tensor.layout.type);
  const double* next = values.data();
  ForEachBlock(tensor.layout, [&](int64_t offset) {
    info.encode(next, 1, tensor.data + offset);
    next += info.block_elements;
  });
}

Result<Layout> OutputLayout(const Case& c, bool largest) {
  std::vector<OpInput> inputs;
  for (const Operand& operand : c.inputs) {
    OpInput& input = inputs.emplace_back();
    input.type = operand.type;
    input.present = operand.present;
    if (!operand.present) continue;
    const auto& dims = largest && !operand.largest.empty() ? operand.largest : operand.dims;
    input.shape.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), input.shape.dims.begin());
  }
  auto output = c.op->infer({.inputs = inputs, .attributes = c.attributes, .symbols = {}});
  if (!output) return Fail(output.error().code, "{}: {}", c.Name(), output.error().message);
  return Bind(output->type, output->shape, {});
}

Result<Prepared> Prepare(const Case& c) {
  Prepared prepared;
  Random random(c.seed);
  for (const Operand& operand : c.inputs) {
    if (!operand.present) {
      // As KernelQuery wants it: no element, rank 0 with nothing to count.
      Arranged& absent = prepared.inputs.emplace_back();
      absent.layout.type = operand.type;
      prepared.query_inputs.push_back(absent.layout);
      continue;
    }
    Arranged& input =
        prepared.inputs.emplace_back(Arrange(operand.type, operand.dims, operand.arrangement));
    Encode(Generate(operand, input.layout.Elements(), random), input.host());
    prepared.query_inputs.push_back(
        operand.largest.empty()
            ? input.layout
            : Arrange(operand.type, operand.largest, operand.arrangement).layout);
  }
  TANDEM_ASSIGN(const Layout output, OutputLayout(c, false));
  TANDEM_ASSIGN(prepared.query_output, OutputLayout(c, true));
  prepared.want.layout = output;
  prepared.want.bytes.assign(static_cast<size_t>(output.PackedBytes()), kGap);

  std::vector<HostTensor> inputs;
  for (Arranged& input : prepared.inputs) inputs.push_back(input.host());
  if (c.op->state_input >= 0) {
    prepared.want.bytes = prepared.inputs[c.op->state_input].bytes;
    inputs[c.op->state_input].data = prepared.want.bytes.data();
  }
  if (auto made = c.op->reference(inputs, prepared.want.host(), c.attributes); !made)
    return Fail(made.error().code, "{}: {}", c.Name(), made.error().message);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = prepared.inputs[i].host();
  prepared.bound = Bounds(c, inputs, prepared.want.host());
  return prepared;
}

}  // namespace tandem::conformance
