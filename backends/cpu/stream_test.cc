// Promises of the stream, the memory and the backend's extensions.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernel_case.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

// An op of a user whose kernel holds up the stream until a test lets it go, or fails.
std::atomic<bool> gate_open{true};
Result<void> AwaitGate(std::span<const HostTensor>, const HostTensor&, std::span<const double>) {
  while (!gate_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {};
}
Result<void> Refuse(std::span<const HostTensor>, const HostTensor&, std::span<const double>) {
  return Fail(ErrorCode::kDevice, "refused");
}
OpDefinition UserOp(std::string_view name, decltype(OpDefinition::reference) reference) {
  OpDefinition op = ops::kSilu;
  op.name = name;
  op.reference = reference;
  return op;
}

class StreamTest : public testing::Test {
 protected:
  void SetUp() override {
    gate_open = true;
    backend_ = MakeCpuBackend({.threads = 2});
    device_ = backend_->devices()[0];
    stream_ = *device_->CreateStream();
    other_ = *device_->CreateStream();
    buffer_ = *device_->memory().Allocate(4096);
    std::memset(buffer_->host(), 0, 4096);
  }
  void TearDown() override { gate_open = true; }

  // A node of one element that runs `op`.
  KernelCall CallOf(const OpDefinition& op) {
    const Layout layout = Contiguous(Type::kF32, std::vector<int64_t>{1});
    const std::vector<Layout> layouts = {layout};
    const bool present[] = {true}, constant[] = {false};
    const KernelQuery query{&op, {}, layouts, present, constant, layout};
    arg_ = {layout, buffer_.get(), 0, nullptr};
    KernelCall call;
    call.kernel = device_->FindKernel(query)->kernel;
    call.op = &op;
    call.inputs = {&arg_, 1};
    call.output = arg_;
    call.name = "blk.0.node";
    return call;
  }

  std::unique_ptr<Backend> backend_;
  Device* device_ = nullptr;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<Stream> stream_, other_;
  TensorArg arg_;
  const OpDefinition gate_ = UserOp("gate", AwaitGate), refuse_ = UserOp("refuse", Refuse);
};

TEST_F(StreamTest, PointsGrowAndAreReachedInOrder) {
  EXPECT_TRUE(*stream_->Reached(0));
  gate_open = false;
  const KernelCall call = CallOf(gate_);
  const uint64_t before = stream_->Record();
  ASSERT_TRUE(stream_->Synchronize(before));
  ASSERT_TRUE(stream_->Run({&call, 1}));
  const uint64_t after = stream_->Record();
  EXPECT_GT(after, before);
  EXPECT_GT(stream_->Record(), after);
  EXPECT_TRUE(*stream_->Reached(before));
  EXPECT_FALSE(*stream_->Reached(after));
  gate_open = true;
  ASSERT_TRUE(stream_->Synchronize(after));
  EXPECT_TRUE(*stream_->Reached(after));
}

TEST_F(StreamTest, PointsThatWereNotRecordedCountAsReached) {
  EXPECT_TRUE(stream_->Synchronize(1000));
  EXPECT_TRUE(*stream_->Reached(1000));
  ASSERT_TRUE(other_->Wait(*stream_, 1000));
  EXPECT_TRUE(other_->Synchronize(other_->Record()));
}

TEST_F(StreamTest, WaitOrdersStreamsWithoutBlockingTheCaller) {
  gate_open = false;
  const KernelCall call = CallOf(gate_);
  ASSERT_TRUE(stream_->Run({&call, 1}));
  ASSERT_TRUE(stream_->Fill(*buffer_, 0, 64, 7));
  ASSERT_TRUE(other_->Wait(*stream_, stream_->Record()));
  ASSERT_TRUE(other_->Copy(
      {.source = buffer_.get(), .target = buffer_.get(), .target_offset = 64, .row_bytes = 64}));
  const uint64_t point = other_->Record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(*other_->Reached(point));
  EXPECT_EQ(buffer_->host()[64], std::byte{0});
  gate_open = true;
  ASSERT_TRUE(other_->Synchronize(point));
  EXPECT_EQ(buffer_->host()[127], std::byte{7});
}

TEST_F(StreamTest, AWaitMayOutliveTheStreamThatItWaitsFor) {
  gate_open = false;
  const KernelCall call = CallOf(gate_);
  ASSERT_TRUE(other_->Run({&call, 1}));
  ASSERT_TRUE(stream_->Fill(*buffer_, 0, 64, 7));
  ASSERT_TRUE(other_->Wait(*stream_, stream_->Record()));
  ASSERT_TRUE(other_->Fill(*buffer_, 64, 64, 8));
  stream_.reset();
  gate_open = true;
  ASSERT_TRUE(other_->Synchronize(other_->Record()));
  EXPECT_EQ(buffer_->host()[127], std::byte{8});
}

TEST_F(StreamTest, CallbacksComeOnceWithTheOutcome) {
  gate_open = false;
  const KernelCall call = CallOf(gate_);
  ASSERT_TRUE(stream_->Run({&call, 1}));
  const uint64_t point = stream_->Record();
  std::atomic<int> calls{0};
  std::promise<void> called;
  stream_->OnReached(point, [&](const Result<void>& outcome) {
    EXPECT_TRUE(outcome);
    ++calls;
    called.set_value();
  });
  EXPECT_EQ(calls, 0);
  gate_open = true;
  called.get_future().wait();
  stream_->OnReached(point, [&](const Result<void>&) { ++calls; });
  ASSERT_TRUE(stream_->Synchronize(stream_->Record()));
  EXPECT_EQ(calls, 2);
}

TEST_F(StreamTest, FailuresSkipWhatFollowsAndTravel) {
  const KernelCall bad = CallOf(refuse_);
  const uint64_t before = stream_->Record();
  ASSERT_TRUE(stream_->Run({&bad, 1}));
  ASSERT_TRUE(stream_->Fill(*buffer_, 0, 8, 1));
  const uint64_t after = stream_->Record();
  ASSERT_TRUE(other_->Wait(*stream_, after));
  ASSERT_TRUE(other_->Fill(*buffer_, 8, 8, 1));
  const uint64_t elsewhere = other_->Record();
  std::promise<std::string> message;
  stream_->OnReached(after, [&](const Result<void>& outcome) {
    message.set_value(outcome ? "" : outcome.error().message);
  });

  EXPECT_TRUE(stream_->Synchronize(before));
  const Result<void> failed = stream_->Synchronize(after);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kDevice);
  EXPECT_EQ(failed.error().message, "device cpu:0, node blk.0.node: refuse: refused");
  EXPECT_EQ(message.get_future().get(), failed.error().message);
  EXPECT_FALSE(stream_->Reached(after));
  EXPECT_TRUE(*stream_->Reached(before));
  const Result<void> travelled = other_->Synchronize(elsewhere);
  ASSERT_FALSE(travelled);
  EXPECT_EQ(travelled.error().message, failed.error().message);
  EXPECT_EQ(buffer_->host()[0], std::byte{0});
  EXPECT_EQ(buffer_->host()[8], std::byte{0});

  stream_->Reset();
  other_->Reset();
  ASSERT_TRUE(stream_->Fill(*buffer_, 0, 8, 1));
  ASSERT_TRUE(other_->Wait(*stream_, stream_->Record()));
  EXPECT_TRUE(other_->Synchronize(other_->Record()));
  EXPECT_EQ(buffer_->host()[0], std::byte{1});
}

TEST_F(StreamTest, AFailingNodeEndsItsBatch) {
  const KernelCall calls[] = {CallOf(gate_), CallOf(refuse_), CallOf(gate_)};
  const int64_t before = device_->counters().kernels;
  ASSERT_TRUE(stream_->Run(calls));
  EXPECT_FALSE(stream_->Synchronize(stream_->Record()));
  EXPECT_EQ(device_->counters().kernels - before, 1);
}

TEST_F(StreamTest, DestroyingAStreamWaitsForItsCommands) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream_->Fill(*buffer_, static_cast<uint8_t>(i)));
  stream_.reset();
  EXPECT_EQ(buffer_->host()[4095], std::byte{99});
}

TEST_F(StreamTest, CopiesBoxes) {
  for (int i = 0; i < 1024; ++i) buffer_->host()[i] = static_cast<std::byte>(i % 251);
  ASSERT_TRUE(stream_->Copy({.source = buffer_.get(),
                             .source_offset = 3,
                             .source_row_pitch = 10,
                             .source_plane_pitch = 100,
                             .target = buffer_.get(),
                             .target_offset = 2048,
                             .target_row_pitch = 6,
                             .target_plane_pitch = 64,
                             .row_bytes = 5,
                             .rows = 4,
                             .planes = 3}));
  ASSERT_TRUE(stream_->Synchronize(stream_->Record()));
  for (int plane = 0; plane < 3; ++plane)
    for (int row = 0; row < 4; ++row)
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(buffer_->host()[2048 + plane * 64 + row * 6 + i],
                  buffer_->host()[3 + plane * 100 + row * 10 + i]);
  EXPECT_EQ(buffer_->host()[2048 + 5], std::byte{0});
  const DeviceCounters counters = device_->counters();
  EXPECT_EQ(counters.copies, 1);
  EXPECT_EQ(counters.bytes_within, 60);
  EXPECT_EQ(counters.bytes_in + counters.bytes_out, 0);
}

TEST_F(StreamTest, LargeCopiesAndFillsAreComplete) {
  constexpr int64_t kBytes = (int64_t{3} << 20) + 17;
  auto source = *device_->memory().Allocate(kBytes), target = *device_->memory().Allocate(kBytes);
  ASSERT_TRUE(stream_->Fill(*source, 0x5a));
  ASSERT_TRUE(stream_->Fill(*target, 0));
  ASSERT_TRUE(stream_->Copy({.source = source.get(), .target = target.get(), .row_bytes = kBytes}));
  ASSERT_TRUE(stream_->Synchronize(stream_->Record()));
  EXPECT_EQ(std::count(target->host(), target->host() + kBytes, std::byte{0x5a}), kBytes);
}

TEST_F(StreamTest, BoxesBeyondABufferAreRefused) {
  Buffer* b = buffer_.get();
  const CopyCall bad[] = {
      {.source = b, .source_offset = 4090, .target = b, .row_bytes = 7},
      {.source = b, .target = b, .target_offset = -1, .row_bytes = 7},
      {.source = b, .source_row_pitch = INT64_MAX, .target = b, .row_bytes = 1, .rows = 3},
      {.source = b, .target = b, .target_plane_pitch = 2048, .row_bytes = 1, .planes = 4},
      {.source = b, .target = b, .row_bytes = -1},
      {.source = nullptr, .target = b, .row_bytes = 1},
  };
  for (const CopyCall& call : bad) {
    const Result<void> refused = stream_->Copy(call);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
  EXPECT_FALSE(stream_->Fill(*buffer_, 4000, 97, 0));
  EXPECT_FALSE(stream_->Fill(*buffer_, -1, 1, 0));
  EXPECT_TRUE(stream_->Fill(*buffer_, 4096, 0, 0));
  EXPECT_TRUE(stream_->Copy({.source = b, .target = b, .row_bytes = 0}));
  EXPECT_TRUE(stream_->Synchronize(stream_->Record()));
  EXPECT_EQ(device_->counters().handovers, 0);
}

TEST_F(StreamTest, StreamsOnManyThreads) {
  constexpr int kThreads = 4, kTurns = 200;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < kThreads; ++i) streams.push_back(*device_->CreateStream());
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < kTurns; ++turn) {
        ASSERT_TRUE(streams[i]->Fill(*buffer_, i * 64, 64, static_cast<uint8_t>(turn)));
        // The next stream's point, whatever it is by now.
        Stream& next = *streams[(i + 1) % kThreads];
        if (i + 1 < kThreads) {
          ASSERT_TRUE(streams[i]->Wait(next, static_cast<uint64_t>(turn)));
        }
        ASSERT_TRUE(streams[i]->Synchronize(streams[i]->Record()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i)
    EXPECT_EQ(buffer_->host()[i * 64 + 63], static_cast<std::byte>(kTurns - 1));
}

TEST_F(StreamTest, TheNumberOfThreadsIsAnExtension) {
  const auto set = reinterpret_cast<CpuSetThreads>(backend_->Extension("tandem.cpu.set_threads"));
  const auto get = reinterpret_cast<CpuThreads>(backend_->Extension("tandem.cpu.threads"));
  ASSERT_NE(set, nullptr);
  ASSERT_NE(get, nullptr);
  EXPECT_EQ(backend_->Extension("tandem.cpu.unknown"), nullptr);
  EXPECT_EQ(get(*device_), 2);
  EXPECT_TRUE(set(*device_, 3));
  EXPECT_EQ(get(*device_), 3);
  const Result<void> negative = set(*device_, -1);
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(get(*device_), 3);
  EXPECT_TRUE(set(*device_, 0));
  EXPECT_EQ(get(*device_), 2);
}

TEST_F(StreamTest, ThreadsChangeBetweenBatches) {
  const auto set = reinterpret_cast<CpuSetThreads>(backend_->Extension("tandem.cpu.set_threads"));
  Case c{&ops::kMatmul,
         {Random(Type::kF32, {40, 64}, 1), Constant(Random(Type::kQ4_1, {200, 64}, 2))},
         {0.0},
         Blank(Type::kF32, {40, 200})};
  const TestTensor first = *RunOn(*device_, c);
  for (int threads : {1, 4, 2, 3, 1}) {
    ASSERT_TRUE(set(*device_, threads));
    EXPECT_EQ(RunOn(*device_, c)->bytes, first.bytes);
  }
}

TEST(CpuBackend, SaysWhyThereIsNoDevice) {
  const auto backend = MakeCpuBackend({.threads = 0, .isa = "mmx"});
  EXPECT_TRUE(backend->devices().empty());
  EXPECT_NE(backend->unavailable().find("mmx"), std::string_view::npos);
  EXPECT_EQ(MakeCpuBackend()->devices().size(), 1u);
  EXPECT_EQ(MakeCpuBackend()->name(), "cpu");
}

TEST(CpuBackend, DescribesItsDevice) {
  const auto backend = MakeCpuBackend({.threads = 1, .isa = "portable"});
  Device& device = *backend->devices()[0];
  EXPECT_EQ(device.name(), "cpu:0");
  EXPECT_EQ(device.properties().kind, DeviceKind::kCpu);
  EXPECT_NE(device.properties().description.find("1 thread, portable"), std::string::npos)
      << device.properties().description;
  EXPECT_EQ(device.AccessTo(device.memory()), Access::kWrite);
}

TEST(HostMemoryTest, CountsWhatIsTaken) {
  const auto backend = MakeCpuBackend();
  Memory& memory = backend->devices()[0]->memory();
  EXPECT_EQ(memory.name(), "host");
  EXPECT_TRUE(memory.properties().host_access);
  auto a = *memory.Allocate(100);
  auto b = *memory.Allocate(int64_t{5} << 20);
  auto none = *memory.Allocate(0);
  EXPECT_NE(none->host(), nullptr);
  EXPECT_EQ(none->bytes(), 0);
  for (const auto* buffer : {&a, &b})
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->host()) % 64, 0u);
  EXPECT_EQ(memory.counters().allocations, 3);
  EXPECT_EQ(memory.counters().live_bytes, 100 + (5 << 20));
  b.reset();
  EXPECT_EQ(memory.counters().live_bytes, 100);
  EXPECT_EQ(memory.counters().peak_bytes, 100 + (5 << 20));
  EXPECT_EQ(memory.counters().frees, 1);
  const auto pinned = *backend->devices()[0]->AllocatePinned(64);
  EXPECT_EQ(&pinned->memory(), &memory);
}

TEST(HostMemoryTest, RefusesWhatDoesNotFit) {
  const auto backend = MakeCpuBackend();
  Memory& memory = backend->devices()[0]->memory();
  for (int64_t bytes : {INT64_MAX, INT64_MAX - 63, int64_t{1} << 60}) {
    const auto refused = memory.Allocate(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(refused.error().message.find(std::to_string(bytes)), std::string::npos);
  }
  EXPECT_EQ(memory.Allocate(-1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(memory.counters().live_bytes, 0);
  EXPECT_EQ(memory.counters().allocations, 0);
}

TEST(HostMemoryTest, ImportsBytesInPlace) {
  const auto backend = MakeCpuBackend();
  Memory& memory = backend->devices()[0]->memory();
  auto bytes = std::make_shared<std::vector<std::byte>>(100);
  const std::weak_ptr<std::vector<std::byte>> watched = bytes;
  const std::byte* data = bytes->data();
  auto buffer = *memory.Import(data, 100, std::move(bytes));
  EXPECT_EQ(buffer->host(), data);
  EXPECT_EQ(memory.counters().live_bytes, 0);
  EXPECT_FALSE(watched.expired());
  buffer.reset();
  EXPECT_TRUE(watched.expired());
  EXPECT_FALSE(memory.Import(nullptr, 1, nullptr));
}

}  // namespace
}  // namespace tandem::cpu
