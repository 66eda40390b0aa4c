// A device for tests of this package, with short ways to put tensors on it and to run an op.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/backend.h"
#include "backends/opencl/fake_host.h"
#include "backends/opencl/opencl.h"
#include "graph/ops.h"
#include "gtest/gtest.h"

namespace tandem::opencl {

// A tensor as a view of bytes that are larger, with gaps of NaNs.
struct HostArray {
  Layout layout;
  int64_t offset = 0;
  std::vector<std::byte> bytes;
  HostTensor tensor() { return {layout, bytes.data() + offset}; }
};

enum class Arrangement { kPacked, kSliced, kPermuted, kTransposed };

inline HostArray Arrange(Type type, std::vector<int64_t> dims, Arrangement arrangement) {
  const auto rank = dims.size();
  const TypeInfo& info = Info(type);
  std::vector<int64_t> parent = dims;
  HostArray array;
  size_t first = 0, second = 0;
  if (arrangement == Arrangement::kSliced && rank > 0) {
    parent.back() += 2 * info.block_elements;
    array.offset = info.block_bytes;
  }
  if (arrangement == Arrangement::kPermuted && rank > 2) second = 1;
  if (arrangement == Arrangement::kTransposed && rank > 1) {
    first = rank - 2;
    second = rank - 1;
  }
  if (rank > 0) std::swap(parent[first], parent[second]);
  array.layout = Contiguous(type, parent);
  array.bytes.assign(static_cast<size_t>(array.layout.PackedBytes()) + 64, std::byte{0xFF});
  if (rank > 0) std::swap(array.layout.strides[first], array.layout.strides[second]);
  for (size_t i = 0; i < rank; ++i) array.layout.dims[i] = dims[i];
  return array;
}

// Calls `visit` with the byte offset of each block, row-major.
template <class Visit>
void ForEachBlock(const Layout& layout, const Visit& visit) {
  std::vector<int64_t> counts(layout.dims.begin(), layout.dims.begin() + layout.rank);
  if (layout.rank > 0) counts.back() /= Info(layout.type).block_elements;
  int64_t total = 1;
  for (const int64_t count : counts) total *= count;
  for (int64_t i = 0; i < total; ++i) {
    int64_t offset = 0, rest = i;
    for (int d = layout.rank - 1; d >= 0; --d) {
      offset += rest % counts[static_cast<size_t>(d)] * layout.strides[d];
      rest /= counts[static_cast<size_t>(d)];
    }
    visit(offset);
  }
}

inline void Encode(HostArray& array, const std::vector<double>& values) {
  const TypeInfo& info = Info(array.layout.type);
  const double* next = values.data();
  ForEachBlock(array.layout, [&](int64_t offset) {
    info.encode(next, 1, array.bytes.data() + array.offset + offset);
    next += info.block_elements;
  });
}

inline std::vector<double> Decode(const HostArray& array) {
  const TypeInfo& info = Info(array.layout.type);
  std::vector<double> values(static_cast<size_t>(array.layout.Elements()));
  double* next = values.data();
  ForEachBlock(array.layout, [&](int64_t offset) {
    info.decode(array.bytes.data() + array.offset + offset, 1, next);
    next += info.block_elements;
  });
  return values;
}

class TestDevice {
 public:
  explicit TestDevice(int lanes = 0, const OpenClOptions& options = {})
      : backend(MakeBackend(host, options, lanes)) {}

  bool is_there() const { return !backend->devices().empty(); }
  std::string missing() const {
    return std::string(backend->unavailable()) + " (apt-get install pocl-opencl-icd)";
  }
  Device& device() const { return *backend->devices().front(); }
  std::unique_ptr<Stream> Open() const {
    auto stream = device().CreateStream();
    EXPECT_TRUE(stream) << stream.error().message;
    return std::move(*stream);
  }
  std::unique_ptr<Buffer> Take(int64_t bytes) const {
    auto buffer = device().memory().Allocate(bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    return std::move(*buffer);
  }
  std::unique_ptr<Buffer> Upload(Stream& stream, const std::vector<std::byte>& bytes) {
    auto staging = *host.Allocate(static_cast<int64_t>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), staging->host());
    auto buffer = Take(staging->bytes());
    EXPECT_TRUE(stream.Copy(
        {.source = staging.get(), .target = buffer.get(), .row_bytes = staging->bytes()}));
    EXPECT_TRUE(stream.Synchronize(stream.Record()));
    return buffer;
  }
  std::vector<std::byte> Download(Stream& stream, Buffer& buffer) {
    auto staging = *host.Allocate(buffer.bytes());
    EXPECT_TRUE(
        stream.Copy({.source = &buffer, .target = staging.get(), .row_bytes = staging->bytes()}));
    EXPECT_TRUE(stream.Synchronize(stream.Record()));
    return {staging->host(), staging->host() + staging->bytes()};
  }
  std::unique_ptr<Buffer> Floats(Stream& stream, const std::vector<float>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return Upload(stream, {bytes, bytes + values.size() * sizeof(float)});
  }
  std::vector<float> Floats(Stream& stream, Buffer& buffer) {
    const std::vector<std::byte> bytes = Download(stream, buffer);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  FakeHost host;
  std::unique_ptr<Backend> backend;
};

// y = x * factor + bias over `count` floats, as calls that live as long as this.
class ScaleCall {
 public:
  ScaleCall(Device& device, Buffer& x, Buffer& y, int64_t count, double factor, double bias)
      : attributes_{factor, bias} {
    const int64_t dims[] = {count};
    const Layout layout = Contiguous(Type::kF32, dims);
    inputs_.push_back({.layout = layout, .buffer = &x});
    const bool present[] = {true}, constant[] = {false};
    const auto choice = device.FindKernel({.op = &ops::kScale,
                                           .attributes = attributes_,
                                           .inputs = {&layout, 1},
                                           .present = present,
                                           .constant = constant,
                                           .output = layout});
    EXPECT_TRUE(choice);
    calls_.push_back({.kernel = choice->kernel,
                      .op = &ops::kScale,
                      .attributes = attributes_,
                      .inputs = inputs_,
                      .output = {.layout = layout, .buffer = &y},
                      .name = "scaled"});
  }
  ScaleCall(const ScaleCall&) = delete;
  std::vector<KernelCall>& calls() { return calls_; }

 private:
  std::vector<double> attributes_;
  std::vector<TensorArg> inputs_;
  std::vector<KernelCall> calls_;
};

}  // namespace tandem::opencl
