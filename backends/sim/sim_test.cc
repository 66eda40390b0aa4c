#include "backends/sim/sim.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "graph/ops.h"

namespace tandem {
namespace {

class HostBuffer final : public Buffer {
 public:
  HostBuffer(Memory& memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}
  Memory& memory() const override { return memory_; }
  int64_t bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  std::byte* host() const override { return bytes_.data(); }

 private:
  Memory& memory_;
  mutable std::vector<std::byte> bytes_;
};

class HostMemory final : public Memory {
 public:
  std::string_view name() const override { return "host"; }
  MemoryProperties properties() const override { return {.alignment = 1, .host_access = true}; }
  MemoryCounters counters() const override { return {}; }
  Result<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return std::make_unique<HostBuffer>(*this, bytes);
  }
};

// Holds the stream until it is let go.
struct Gate {
  std::promise<void> opened;
  std::atomic<bool> entered{false};
};
Gate* g_gate = nullptr;

Result<void> HoldReference(std::span<const HostTensor> inputs, const HostTensor& output,
                           std::span<const double>) {
  g_gate->entered = true;
  g_gate->opened.get_future().wait();
  std::memcpy(output.data, inputs[0].data, static_cast<size_t>(output.layout.PackedBytes()));
  return {};
}

constexpr OpDefinition kHold{
    .name = "hold", .required_inputs = 1, .attributes = {}, .reference = HoldReference};

class SimTest : public testing::Test {
 protected:
  Device& Make(SimOptions options) {
    auto device = AddSimDevice(*backend_, options);
    EXPECT_TRUE(device) << device.error().message;
    return **device;
  }

  static std::unique_ptr<Buffer> Take(Memory& memory, int64_t bytes) {
    auto buffer = memory.Allocate(bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    return std::move(*buffer);
  }
  static std::unique_ptr<Stream> Open(Device& device) { return *device.CreateStream(); }

  std::unique_ptr<Buffer> Host(const std::vector<float>& values) {
    auto buffer = Take(host_, static_cast<int64_t>(values.size() * sizeof(float)));
    std::memcpy(buffer->host(), values.data(), values.size() * sizeof(float));
    return buffer;
  }
  static float At(const Buffer& buffer, int index) {
    float value = 0;
    std::memcpy(&value, buffer.host() + index * sizeof(float), sizeof(float));
    return value;
  }
  static Result<void> CopyAll(Stream& stream, Buffer& source, Buffer& target) {
    return stream.Copy({.source = &source, .target = &target, .row_bytes = source.bytes()});
  }

  // y = op(x) on `count` floats, in the device's memory; keeps what Run() needs.
  struct Unary {
    std::vector<TensorArg> inputs;
    std::vector<KernelCall> calls;
  };
  static std::unique_ptr<Unary> MakeUnary(const OpDefinition& op, Buffer& x, Buffer& y, int count,
                                          std::span<const double> attributes = {}) {
    auto unary = std::make_unique<Unary>();
    const int64_t dims[] = {count};
    const Layout layout = Contiguous(Type::kF32, dims);
    unary->inputs.push_back({.layout = layout, .buffer = &x});
    unary->calls.push_back({.kernel = &op,
                            .op = &op,
                            .attributes = attributes,
                            .inputs = unary->inputs,
                            .output = {.layout = layout, .buffer = &y},
                            .name = "y"});
    return unary;
  }

  HostMemory host_;
  std::unique_ptr<Backend> backend_ = MakeSimBackend({}, host_);
};

TEST_F(SimTest, MemoryIsPoisonedAndHidden) {
  Device& device = Make({});
  auto buffer = Take(device.memory(), 64);
  EXPECT_EQ(buffer->host(), nullptr);
  auto seen = Host(std::vector<float>(16, 1.0f));
  auto stream = Open(device);
  ASSERT_TRUE(CopyAll(*stream, *buffer, *seen));
  ASSERT_TRUE(stream->Synchronize(stream->Record()));
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(At(*seen, i)));
}

TEST_F(SimTest, HostReadableMemoryIsSeen) {
  Device& device = Make({.host_readable = true});
  EXPECT_TRUE(device.memory().properties().host_access);
  auto buffer = Take(device.memory(), 64);
  ASSERT_NE(buffer->host(), nullptr);
  EXPECT_TRUE(std::isnan(At(*buffer, 3)));
}

TEST_F(SimTest, MemoryHasItsLimits) {
  Device& device = Make({.memory = 1000, .largest_buffer = 600, .alignment = 256});
  Memory& memory = device.memory();
  auto a = Take(memory, 600);
  auto too_large = memory.Allocate(601);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(too_large.error().message.find("601"), std::string::npos);
  auto too_much = memory.Allocate(401);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code, ErrorCode::kOutOfMemory);
  for (const char* part : {"sim:0", "401", "400"})
    EXPECT_NE(too_much.error().message.find(part), std::string::npos) << too_much.error().message;
  EXPECT_FALSE(memory.Allocate(-1));
  auto b = Take(memory, 400);
  auto empty = Take(memory, 0);
  EXPECT_EQ(memory.counters().live_bytes, 1000);
  EXPECT_EQ(memory.counters().allocations, 3);
  a.reset();
  EXPECT_EQ(memory.counters().live_bytes, 400);
  EXPECT_EQ(memory.counters().peak_bytes, 1000);
  EXPECT_EQ(memory.counters().frees, 1);
  EXPECT_TRUE(Take(memory, 600));
}

TEST_F(SimTest, RunsOpsThatItDoesNotDecline) {
  Device& device = Make({.unsupported = {"mul"}});
  const int64_t dims[] = {4};
  const Layout layout = Contiguous(Type::kF32, dims);
  const std::vector<Layout> layouts{layout, layout};
  const bool present[] = {true, true}, constant[] = {false, false};
  KernelQuery query{.op = &ops::kMul,
                    .attributes = {},
                    .inputs = layouts,
                    .present = present,
                    .constant = constant,
                    .output = layout};
  auto declined = device.FindKernel(query);
  ASSERT_FALSE(declined);
  EXPECT_EQ(declined.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(declined.error().message.find("mul"), std::string::npos);
  query.op = &ops::kAdd;
  EXPECT_TRUE(device.FindKernel(query));

  auto x = Host({1, 2, 3, 4});
  auto y = Host({0, 0, 0, 0});
  auto on_device = Take(device.memory(), 16), result = Take(device.memory(), 16);
  auto stream = Open(device);
  const double attributes[] = {2.0, 1.0};
  auto unary = MakeUnary(ops::kScale, *on_device, *result, 4, attributes);
  ASSERT_TRUE(CopyAll(*stream, *x, *on_device));
  ASSERT_TRUE(stream->Run(unary->calls));
  ASSERT_TRUE(CopyAll(*stream, *result, *y));
  ASSERT_TRUE(stream->Synchronize(stream->Record()));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(At(*y, i), 2.0f * (i + 1) + 1.0f);
  const DeviceCounters counters = device.counters();
  EXPECT_EQ(counters.kernels, 1);
  EXPECT_EQ(counters.copies, 2);
  EXPECT_EQ(counters.bytes_in, 16);
  EXPECT_EQ(counters.bytes_out, 16);
  EXPECT_EQ(counters.handovers, 1);
}

TEST_F(SimTest, ChecksWhatACallMayTouch) {
  Device& device = Make({});
  auto in_host = Host({1, 2, 3, 4});
  auto own = Take(device.memory(), 16);
  auto stream = Open(device);
  const double attributes[] = {1.0, 0.0};
  EXPECT_FALSE(stream->Run(MakeUnary(ops::kScale, *in_host, *own, 4, attributes)->calls));
  EXPECT_FALSE(stream->Run(MakeUnary(ops::kScale, *own, *in_host, 4, attributes)->calls));
  EXPECT_FALSE(stream->Run(MakeUnary(ops::kScale, *own, *own, 5, attributes)->calls));
  EXPECT_FALSE(stream->Copy({.source = own.get(), .target = in_host.get(), .row_bytes = 17}));
  EXPECT_FALSE(stream->Copy(
      {.source = own.get(), .source_offset = 1, .target = in_host.get(), .row_bytes = 16}));
  EXPECT_FALSE(stream->Copy({.source = own.get(),
                             .source_row_pitch = INT64_MAX,
                             .target = in_host.get(),
                             .target_row_pitch = 4,
                             .row_bytes = 4,
                             .rows = 3}));
  EXPECT_FALSE(stream->Fill(*own, 8, 9, 0));
  EXPECT_FALSE(stream->Fill(*own, -1, 1, 0));
  // None of these reached the timeline.
  EXPECT_TRUE(stream->Synchronize(stream->Record()));
  EXPECT_EQ(device.counters().kernels, 0);

  Device& reader = Make({.name = "reader", .reads_host = true});
  EXPECT_EQ(reader.AccessTo(host_), Access::kRead);
  EXPECT_EQ(device.AccessTo(host_), Access::kNone);
  auto target = Take(reader.memory(), 16);
  auto reading = Open(reader);
  auto unary = MakeUnary(ops::kScale, *in_host, *target, 4, attributes);
  ASSERT_TRUE(reading->Run(unary->calls));
  EXPECT_TRUE(reading->Synchronize(reading->Record()));
}

TEST_F(SimTest, CopiesBetweenDevicesUnlessDeclined) {
  Device& a = Make({.name = "a"});
  Device& b = Make({.name = "b"});
  Device& shy = Make({.name = "shy", .declines_copies = true});
  auto on_a = Take(a.memory(), 16), on_b = Take(b.memory(), 16), on_shy = Take(shy.memory(), 16);
  auto x = Host({1, 2, 3, 4}), y = Host({0, 0, 0, 0});
  EXPECT_TRUE(a.CopiesBetween(a.memory(), b.memory()));
  EXPECT_FALSE(a.CopiesBetween(a.memory(), shy.memory()));
  EXPECT_FALSE(shy.CopiesBetween(a.memory(), shy.memory()));
  EXPECT_FALSE(a.CopiesBetween(b.memory(), shy.memory()));
  EXPECT_TRUE(shy.CopiesBetween(host_, shy.memory()));
  auto stream = Open(a);
  ASSERT_TRUE(CopyAll(*stream, *x, *on_a));
  ASSERT_TRUE(CopyAll(*stream, *on_a, *on_b));
  auto declined = CopyAll(*stream, *on_a, *on_shy);
  ASSERT_FALSE(declined);
  EXPECT_EQ(declined.error().code, ErrorCode::kUnsupported);
  ASSERT_TRUE(stream->Synchronize(stream->Record()));
  auto other = Open(b);
  ASSERT_TRUE(CopyAll(*other, *on_b, *y));
  ASSERT_TRUE(other->Synchronize(other->Record()));
  EXPECT_EQ(At(*y, 3), 4.0f);
}

TEST_F(SimTest, WaitsAcrossDevicesWithoutBlockingTheCaller) {
  Device& a = Make({.name = "a"});
  Device& b = Make({.name = "b"});
  auto x = Host({1, 2, 3, 4}), y = Host({0, 0, 0, 0});
  auto in = Take(a.memory(), 16), out = Take(a.memory(), 16), on_b = Take(b.memory(), 16);
  Gate gate;
  g_gate = &gate;
  auto first = Open(a), second = Open(b);
  auto hold = MakeUnary(kHold, *in, *out, 4);
  ASSERT_TRUE(CopyAll(*first, *x, *in));
  ASSERT_TRUE(first->Run(hold->calls));
  ASSERT_TRUE(CopyAll(*first, *out, *on_b));
  const uint64_t point = first->Record();
  ASSERT_TRUE(second->Wait(*first, point));
  ASSERT_TRUE(CopyAll(*second, *on_b, *y));
  const uint64_t end = second->Record();
  std::promise<bool> told;
  second->OnReached(end, [&](const Result<void>& outcome) { told.set_value(outcome.has_value()); });
  while (!gate.entered) std::this_thread::yield();
  EXPECT_FALSE(*first->Reached(point));
  EXPECT_FALSE(*second->Reached(end));
  EXPECT_TRUE(*first->Reached(point + 1));  // Never recorded.
  gate.opened.set_value();
  EXPECT_TRUE(told.get_future().get());
  EXPECT_TRUE(*first->Reached(point));
  EXPECT_EQ(At(*y, 2), 3.0f);
}

TEST_F(SimTest, DeclinesToWaitForOthers) {
  Device& a = Make({.name = "a", .waits_for_others = false});
  Device& b = Make({.name = "b", .synchronous = true});
  EXPECT_FALSE(a.properties().waits_for_others);
  EXPECT_FALSE(b.properties().waits_for_others);
  auto one = Open(a), two = Open(a), other = Open(b);
  EXPECT_TRUE(one->Wait(*two, two->Record()));
  auto declined = one->Wait(*other, other->Record());
  ASSERT_FALSE(declined);
  EXPECT_EQ(declined.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(other->Wait(*one, one->Record()));
}

TEST_F(SimTest, SynchronousCommandsAreDoneWhenTheyReturn) {
  Device& device = Make({.synchronous = true});
  auto x = Host({1, 2, 3, 4}), y = Host({0, 0, 0, 0});
  auto own = Take(device.memory(), 16);
  auto stream = Open(device);
  ASSERT_TRUE(CopyAll(*stream, *x, *own));
  ASSERT_TRUE(CopyAll(*stream, *own, *y));
  EXPECT_EQ(At(*y, 1), 2.0f);
  EXPECT_TRUE(*stream->Reached(stream->Record()));
  EXPECT_FALSE(device.AllocatePinned(16));
}

TEST_F(SimTest, EveryKindOfCallFailsWhenAsked) {
  for (const SimCall call :
       {SimCall::kRun, SimCall::kCopy, SimCall::kFill, SimCall::kWait, SimCall::kSynchronize}) {
    for (int64_t nth = 1; nth <= 3; ++nth) {
      for (const bool synchronous : {false, true}) {
        SCOPED_TRACE(
            fmt::format("call {} nth {} synchronous {}", static_cast<int>(call), nth, synchronous));
        const std::string name = fmt::format("f{}.{}.{}", static_cast<int>(call), nth, synchronous);
        Device& device = Make({.name = name, .synchronous = synchronous});
        auto x = Host({1, 2, 3, 4}), y = Host({0, 0, 0, 0});
        auto own = Take(device.memory(), 16), out = Take(device.memory(), 16);
        auto stream = Open(device), other = Open(device);
        const double attributes[] = {2.0, 0.0};
        auto unary = MakeUnary(ops::kScale, *own, *out, 4, attributes);
        const auto round = [&]() -> Result<void> {
          TANDEM_CHECK(stream->Wait(*other, other->Record()));
          TANDEM_CHECK(CopyAll(*stream, *x, *own));
          TANDEM_CHECK(stream->Fill(*out, 7));
          TANDEM_CHECK(stream->Run(unary->calls));
          return stream->Synchronize(stream->Record());
        };
        ArmFault(device, {call, nth});
        for (int64_t i = 1; i < nth; ++i) ASSERT_TRUE(round());
        const uint64_t good = stream->Record();
        ASSERT_TRUE(*stream->Reached(0));
        auto failed = round();
        ASSERT_FALSE(failed);
        EXPECT_EQ(failed.error().code, ErrorCode::kDevice);
        EXPECT_NE(failed.error().message.find(name), std::string::npos);
        EXPECT_EQ(ClearFaults(device), 0);
        if (call == SimCall::kSynchronize) {
          EXPECT_TRUE(stream->Synchronize(stream->Record()));
          continue;
        }
        // Later commands are skipped, later points carry the error, earlier ones do not, and who
        // waits for them fails alike.
        const int64_t fills = device.counters().fills;
        ASSERT_TRUE(stream->Fill(*out, 1));
        const uint64_t bad = stream->Record();
        auto skipped = stream->Synchronize(bad);
        ASSERT_FALSE(skipped);
        EXPECT_EQ(skipped.error().message, failed.error().message);
        EXPECT_EQ(device.counters().fills, fills);
        EXPECT_TRUE(stream->Synchronize(good));
        EXPECT_FALSE(stream->Reached(bad));
        ASSERT_TRUE(other->Wait(*stream, bad));
        auto passed_on = other->Synchronize(other->Record());
        ASSERT_FALSE(passed_on);
        EXPECT_EQ(passed_on.error().message, failed.error().message);
        stream->Reset();
        other->Reset();
        EXPECT_TRUE(round());
      }
    }
  }
}

TEST_F(SimTest, AllocationsFailWhenAsked) {
  Device& device = Make({});
  ArmFault(device, {SimCall::kAllocate, 2});
  ArmFault(device, {SimCall::kAllocate, 9});
  EXPECT_TRUE(device.memory().Allocate(8));
  auto failed = device.memory().Allocate(8);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(device.memory().Allocate(8));
  EXPECT_EQ(CallCount(device, SimCall::kAllocate), 3);
  EXPECT_EQ(ClearFaults(device), 1);
  EXPECT_EQ(device.memory().counters().allocations, 2);
}

TEST_F(SimTest, DestroyingAStreamWaitsForItsWork) {
  Device& device = Make({});
  auto x = Host({1, 2, 3, 4}), y = Host({0, 0, 0, 0});
  auto in = Take(device.memory(), 16), out = Take(device.memory(), 16);
  Gate gate;
  g_gate = &gate;
  auto stream = Open(device);
  auto hold = MakeUnary(kHold, *in, *out, 4);
  ASSERT_TRUE(CopyAll(*stream, *x, *in));
  ASSERT_TRUE(stream->Run(hold->calls));
  ASSERT_TRUE(CopyAll(*stream, *out, *y));
  std::thread opener([&] {
    while (!gate.entered) std::this_thread::yield();
    gate.opened.set_value();
  });
  stream.reset();
  EXPECT_EQ(At(*y, 3), 4.0f);
  opener.join();
}

TEST_F(SimTest, ScratchIsOverwrittenAndWeightsArePacked) {
  Device& device = Make({.scratch = 32, .packs_weights = true});
  const int64_t dims[] = {1, 4}, out_dims[] = {1, 1};
  const Layout layout = Contiguous(Type::kF32, dims), out = Contiguous(Type::kF32, out_dims);
  const double exact[] = {1};
  const std::vector<Layout> layouts{layout, layout};
  const bool present[] = {true, true}, constant[] = {false, true};
  auto choice = device.FindKernel({.op = &ops::kMatmul,
                                   .attributes = exact,
                                   .inputs = layouts,
                                   .present = present,
                                   .constant = constant,
                                   .output = out});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->scratch_bytes, 32);
  EXPECT_TRUE(choice->weights[0].name.empty());
  EXPECT_FALSE(choice->weights[1].name.empty());
  EXPECT_GT(choice->weights[1].bytes, 16);

  auto x = Host({1, 2, 3, 4}), w = Host({10, 20, 30, 40}), y = Host({0});
  auto packed = Take(host_, choice->weights[1].bytes);
  ASSERT_TRUE(device.Pack(choice->weights[1], Type::kF32, dims, w->host(), packed->host()));
  EXPECT_FALSE(device.Pack({"sim.masked", 5}, Type::kF32, dims, w->host(), packed->host()));
  EXPECT_FALSE(device.Pack({"other", 16}, Type::kF32, dims, w->host(), packed->host()));
  auto on_x = Take(device.memory(), 16), on_w = Take(device.memory(), packed->bytes()),
       on_y = Take(device.memory(), 4), scratch = Take(device.memory(), 64);
  auto stream = Open(device);
  const std::vector<TensorArg> inputs{
      {.layout = layout, .buffer = on_x.get()},
      {.layout = layout, .buffer = on_w.get(), .packed = &choice->weights[1]}};
  KernelCall call{.kernel = choice->kernel,
                  .op = &ops::kMatmul,
                  .attributes = exact,
                  .inputs = inputs,
                  .output = {.layout = out, .buffer = on_y.get()},
                  .name = "product"};
  EXPECT_FALSE(stream->Run({&call, 1}));  // No scratch.
  call.scratch = scratch.get();
  call.scratch_offset = 16;
  call.scratch_bytes = 32;
  ASSERT_TRUE(CopyAll(*stream, *x, *on_x));
  ASSERT_TRUE(CopyAll(*stream, *packed, *on_w));
  ASSERT_TRUE(stream->Fill(*scratch, 1));
  ASSERT_TRUE(stream->Run({&call, 1}));
  ASSERT_TRUE(CopyAll(*stream, *on_y, *y));
  auto seen = Take(host_, 64);
  ASSERT_TRUE(CopyAll(*stream, *scratch, *seen));
  ASSERT_TRUE(stream->Synchronize(stream->Record()));
  EXPECT_EQ(At(*y, 0), 300.0f);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(std::to_integer<int>(seen->host()[i]), i >= 16 && i < 48 ? 0xFF : 1) << i;
}

TEST_F(SimTest, NamesDiffer) {
  Make({});
  EXPECT_FALSE(AddSimDevice(*backend_, {}));
  auto both = MakeSimBackend({SimOptions{}, SimOptions{}}, host_);
  EXPECT_EQ(both->devices().size(), 1u);
  EXPECT_NE(both->unavailable().find("sim:0"), std::string_view::npos);
}

}  // namespace
}  // namespace tandem
