#include "tests/conformance/device_test.h"

namespace tandem::conformance {

ScaleCall::ScaleCall(Device& device, Buffer& x, Buffer& y, int64_t count, double factor,
                     double bias)
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
  EXPECT_OK(choice);
  call_ = {.kernel = choice->kernel,
           .op = &ops::kScale,
           .attributes = attributes_,
           .inputs = inputs_,
           .output = {.layout = layout, .buffer = &y},
           .scratch_bytes = choice->scratch_bytes,
           .name = "scaled"};
  if (choice->scratch_bytes == 0) return;
  scratch_ = std::move(*device.memory().Allocate(choice->scratch_bytes));
  call_.scratch = scratch_.get();
}

std::unique_ptr<Buffer> DeviceTest::Take(Memory& memory, int64_t bytes) {
  auto buffer = memory.Allocate(bytes);
  EXPECT_OK(buffer);
  return std::move(*buffer);
}

std::unique_ptr<Stream> DeviceTest::Open(Device& device) {
  auto stream = device.CreateStream();
  EXPECT_OK(stream);
  return std::move(*stream);
}

std::unique_ptr<Buffer> DeviceTest::OnHost(const std::vector<float>& values) {
  auto buffer = Take(host(), static_cast<int64_t>(values.size() * sizeof(float)));
  std::memcpy(buffer->host(), values.data(), values.size() * sizeof(float));
  return buffer;
}

std::unique_ptr<Buffer> DeviceTest::OnDevice(Stream& stream, const std::vector<float>& values) {
  auto staging = OnHost(values);
  auto buffer = Take(memory(), staging->bytes());
  EXPECT_OK(CopyAll(stream, *staging, *buffer));
  EXPECT_OK(Finish(stream));
  return buffer;
}

std::vector<float> DeviceTest::Floats(const Buffer& buffer) {
  std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
  std::memcpy(values.data(), buffer.host(), values.size() * sizeof(float));
  return values;
}

std::vector<std::byte> DeviceTest::Bytes(Stream& stream, Buffer& buffer) {
  auto staging = Take(host(), buffer.bytes());
  EXPECT_OK(CopyAll(stream, buffer, *staging));
  EXPECT_OK(Finish(stream));
  return std::vector<std::byte>(staging->host(), staging->host() + staging->bytes());
}

std::vector<float> DeviceTest::Floats(Stream& stream, Buffer& buffer) {
  const std::vector<std::byte> bytes = Bytes(stream, buffer);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Result<void> DeviceTest::CopyAll(Stream& stream, Buffer& source, Buffer& target) {
  return stream.Copy({.source = &source, .target = &target, .row_bytes = source.bytes()});
}

bool DeviceTest::ReturnsAtOnce(Gate& gate, const std::function<void()>& work) {
  auto done = std::async(std::launch::async, work);
  const bool in_time = done.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  if (!in_time) gate.Open();
  done.wait();
  return in_time;
}

std::string SubjectName(const testing::TestParamInfo<Subject>& info) { return info.param.name; }

}  // namespace tandem::conformance
