// One node for tests: random tensors of any layout, run on a device and by the reference kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backends/device.h"
#include "graph/op.h"

namespace tandem::cpu {

// How a tensor lies in memory.
enum class Arrangement {
  kPacked,
  kPadded,      // Gaps between rows.
  kTransposed,  // The last dimension is not the innermost one.
};

struct TestTensor {
  Layout layout;
  std::vector<std::byte> bytes;
  bool constant = false;
  bool present = true;

  std::vector<double> Values() const;
  void SetValues(const std::vector<double>& values);
};

// Byte offsets of all elements (plain types) or blocks, row-major.
inline std::vector<int64_t> BlockOffsets(const Layout& layout) {
  std::vector<int64_t> offsets;
  const TypeInfo& info = Info(layout.type);
  Layout blocks = layout;
  if (blocks.rank > 0) blocks.dims[blocks.rank - 1] /= info.block_elements;
  const int64_t count = blocks.Elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (int d = blocks.rank - 1; d >= 0; --d) {
      offset += rest % blocks.dims[d] * blocks.strides[d];
      rest /= blocks.dims[d];
    }
    offsets.push_back(offset);
  }
  return offsets;
}

inline std::vector<double> TestTensor::Values() const {
  const TypeInfo& info = Info(layout.type);
  std::vector<double> values;
  for (int64_t offset : BlockOffsets(layout)) {
    values.resize(values.size() + static_cast<size_t>(info.block_elements));
    info.decode(bytes.data() + offset, 1, values.data() + values.size() - info.block_elements);
  }
  return values;
}
inline void TestTensor::SetValues(const std::vector<double>& values) {
  const TypeInfo& info = Info(layout.type);
  const double* from = values.data();
  for (int64_t offset : BlockOffsets(layout)) {
    info.encode(from, 1, bytes.data() + offset);
    from += info.block_elements;
  }
}

inline TestTensor Blank(Type type, std::vector<int64_t> dims,
                        Arrangement arrangement = Arrangement::kPacked) {
  TestTensor t;
  t.layout = Contiguous(type, dims);
  const TypeInfo& info = Info(type);
  const int rank = t.layout.rank;
  if (arrangement == Arrangement::kPadded && rank >= 2) {
    int64_t step = (dims.back() / info.block_elements + 3) * info.block_bytes;
    for (int d = rank - 2; d >= 0; --d) {
      t.layout.strides[d] = step;
      step *= dims[static_cast<size_t>(d)] + 1;
    }
  } else if (arrangement == Arrangement::kTransposed && rank >= 2) {
    // The second last dimension is the innermost.
    t.layout.strides[rank - 2] = info.block_bytes;
    t.layout.strides[rank - 1] = info.block_bytes * dims[static_cast<size_t>(rank - 2)];
    int64_t step = t.layout.strides[rank - 1] * (dims.back() / info.block_elements);
    for (int d = rank - 3; d >= 0; --d) {
      t.layout.strides[d] = step;
      step *= dims[static_cast<size_t>(d)];
    }
  }
  t.bytes.resize(static_cast<size_t>(t.layout.SpanBytes()));
  return t;
}

inline TestTensor Random(Type type, std::vector<int64_t> dims, uint32_t seed,
                         Arrangement arrangement = Arrangement::kPacked) {
  TestTensor t = Blank(type, std::move(dims), arrangement);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(t.layout.Elements()));
  for (double& v : values) v = normal(random);
  t.SetValues(values);
  return t;
}
inline TestTensor Ids(Type type, const std::vector<int64_t>& ids) {
  TestTensor t = Blank(type, {static_cast<int64_t>(ids.size())});
  t.SetValues({ids.begin(), ids.end()});
  return t;
}
inline TestTensor Absent() {
  TestTensor t;
  t.layout.rank = 1;
  t.present = false;
  return t;
}
inline TestTensor Constant(TestTensor t) {
  t.constant = true;
  return t;
}

struct Case {
  const OpDefinition* op = nullptr;
  std::vector<TestTensor> inputs;
  std::vector<double> attributes;
  TestTensor output;  // Its layout, and for an op that updates a state the state's old bytes.
};

inline std::vector<double> Defaults(const OpDefinition& op) {
  std::vector<double> values;
  for (const AttributeSpec& spec : op.attributes) values.push_back(spec.value);
  return values;
}

inline KernelQuery QueryOf(const Case& c, std::vector<Layout>& layouts,
                           std::unique_ptr<bool[]>& present, std::unique_ptr<bool[]>& constant) {
  const size_t n = c.inputs.size();
  present = std::make_unique<bool[]>(n);
  constant = std::make_unique<bool[]>(n);
  for (size_t i = 0; i < n; ++i) {
    layouts.push_back(c.inputs[i].layout);
    present[i] = c.inputs[i].present;
    constant[i] = c.inputs[i].constant;
  }
  return {c.op, c.attributes, layouts, {present.get(), n}, {constant.get(), n}, c.output.layout};
}

// Runs the case on the device, with exactly the scratch that it asked for, filled with NaNs.
inline Result<TestTensor> RunOn(Device& device, const Case& c) {
  std::vector<Layout> layouts;
  std::unique_ptr<bool[]> present, constant;
  const KernelQuery query = QueryOf(c, layouts, present, constant);
  TANDEM_ASSIGN(const KernelChoice choice, device.FindKernel(query));
  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto allocate = [&](int64_t bytes) -> Result<Buffer*> {
    TANDEM_ASSIGN(auto buffer, device.memory().Allocate(bytes));
    std::memset(buffer->host(), 0xff, static_cast<size_t>(bytes));
    buffers.push_back(std::move(buffer));
    return buffers.back().get();
  };
  std::vector<TensorArg> args;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const TestTensor& t = c.inputs[i];
    TensorArg arg{t.layout, nullptr, 0, nullptr};
    if (t.present && t.constant) {
      const WeightLayout& layout = choice.weights[i];
      TANDEM_ASSIGN(arg.buffer, allocate(layout.bytes));
      TANDEM_CHECK(device.Pack(layout, t.layout.type,
                               std::span(t.layout.dims).first(static_cast<size_t>(t.layout.rank)),
                               t.bytes.data(), arg.buffer->host()));
      if (!layout.name.empty()) arg.packed = &layout;
    } else if (t.present) {
      TANDEM_ASSIGN(arg.buffer, allocate(static_cast<int64_t>(t.bytes.size())));
      std::copy(t.bytes.begin(), t.bytes.end(), arg.buffer->host());
    }
    args.push_back(arg);
  }
  KernelCall call;
  call.kernel = choice.kernel;
  call.op = c.op;
  call.attributes = c.attributes;
  call.inputs = args;
  if (c.op->state_input >= 0) {
    call.output = args[static_cast<size_t>(c.op->state_input)];
  } else {
    call.output.layout = c.output.layout;
    TANDEM_ASSIGN(call.output.buffer, allocate(static_cast<int64_t>(c.output.bytes.size())));
  }
  if (choice.scratch_bytes > 0) {
    TANDEM_ASSIGN(call.scratch, allocate(choice.scratch_bytes));
    call.scratch_bytes = choice.scratch_bytes;
  }
  call.name = "node";
  TANDEM_ASSIGN(const std::unique_ptr<Stream> stream, device.CreateStream());
  TANDEM_CHECK(stream->Run({&call, 1}));
  TANDEM_CHECK(stream->Synchronize(stream->Record()));
  TestTensor result = c.output;
  std::copy_n(call.output.buffer->host(), result.bytes.size(), result.bytes.begin());
  return result;
}

inline Result<TestTensor> Reference(const Case& c) {
  std::vector<TestTensor> inputs = c.inputs;
  TestTensor result = c.output;
  std::vector<HostTensor> hosts;
  for (TestTensor& t : inputs)
    hosts.push_back({t.layout, t.present && !t.bytes.empty() ? t.bytes.data() : nullptr});
  HostTensor output{result.layout, result.bytes.data()};
  if (c.op->state_input >= 0) {
    result = inputs[static_cast<size_t>(c.op->state_input)];
    output.data = result.bytes.data();
    hosts[static_cast<size_t>(c.op->state_input)].data = result.bytes.data();
  }
  TANDEM_CHECK(c.op->reference(hosts, output, c.attributes));
  return result;
}

// Equal within `bound` of the largest magnitude that is expected.
inline void ExpectClose(const TestTensor& got, const TestTensor& want, double bound) {
  const std::vector<double> g = got.Values(), w = want.Values();
  ASSERT_EQ(g.size(), w.size());
  double largest = 1e-30;
  for (double v : w)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < g.size(); ++i) {
    if (std::isnan(w[i]) && std::isnan(g[i])) continue;
    ASSERT_LE(std::abs(g[i] - w[i]), bound * largest)
        << "element " << i << " of " << g.size() << ": " << g[i] << " instead of " << w[i];
  }
}

}  // namespace tandem::cpu
