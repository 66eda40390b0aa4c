// What the tests of promises share: a device, buffers with contents, and one small kernel.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <ostream>
#include <thread>
#include <vector>

#include "graph/ops.h"
#include "tests/conformance/gate.h"
#include "tests/conformance/subjects.h"

namespace tandem::conformance {

inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

#define ASSERT_OK(expression)                                              \
  do {                                                                     \
    const auto& conformance_result = (expression);                         \
    ASSERT_TRUE(conformance_result) << conformance_result.error().message; \
  } while (false)
#define EXPECT_OK(expression)                                              \
  do {                                                                     \
    const auto& conformance_result = (expression);                         \
    EXPECT_TRUE(conformance_result) << conformance_result.error().message; \
  } while (false)

// y = factor * x + bias on `count` floats of one buffer each. Holds all that Run() reads.
class ScaleCall {
 public:
  ScaleCall(Device& device, Buffer& x, Buffer& y, int64_t count, double factor, double bias);
  std::span<const KernelCall> calls() const { return {&call_, 1}; }
  const KernelCall& call() const { return call_; }
  ScaleCall(const ScaleCall&) = delete;
  ScaleCall& operator=(const ScaleCall&) = delete;

 private:
  std::vector<double> attributes_;
  std::vector<TensorArg> inputs_;
  std::unique_ptr<Buffer> scratch_;
  KernelCall call_;
};

class DeviceTest : public testing::TestWithParam<Subject> {
 protected:
  Device& device() const { return *GetParam().device; }
  Memory& memory() const { return GetParam().device->memory(); }
  Memory& host() const { return *GetParam().host; }

  static std::unique_ptr<Buffer> Take(Memory& memory, int64_t bytes);
  static std::unique_ptr<Stream> Open(Device& device);
  // Host memory with these floats; device memory with them, once `stream` has come so far.
  std::unique_ptr<Buffer> OnHost(const std::vector<float>& values);
  std::unique_ptr<Buffer> OnDevice(Stream& stream, const std::vector<float>& values);
  static std::vector<float> Floats(const Buffer& buffer);
  // Waits for the stream, then brings the contents to the host.
  std::vector<std::byte> Bytes(Stream& stream, Buffer& buffer);
  std::vector<float> Floats(Stream& stream, Buffer& buffer);
  static Result<void> CopyAll(Stream& stream, Buffer& source, Buffer& target);
  static Result<void> Finish(Stream& stream) { return stream.Synchronize(stream.Record()); }
  // Whether `work` returns soon; lets the gate go if it does not, so that the test ends.
  static bool ReturnsAtOnce(Gate& gate, const std::function<void()>& work);
};

std::string SubjectName(const testing::TestParamInfo<Subject>& info);
#define TANDEM_FOR_EACH_SUBJECT(Suite)     \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, \
                           testing::ValuesIn(Subjects().begin(), Subjects().end()), SubjectName)

}  // namespace tandem::conformance
