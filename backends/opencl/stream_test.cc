// Streams where OpenCL leaves something open: waiting for other devices, failures, what a kernel
// finds in its data, transfers between two places of the host.
#include <chrono>
#include <future>

#include "backends/opencl/test_device.h"

namespace tandem::opencl {
namespace {

constexpr auto kSoon = std::chrono::milliseconds(50);
constexpr auto kLong = std::chrono::seconds(20);
constexpr int64_t kCount = 1000;

class StreamTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test_.is_there()) GTEST_SKIP() << test_.missing();
    stream_ = test_.Open();
    x_ = test_.Floats(*stream_, std::vector<float>(kCount, 3));
    y_ = test_.Floats(*stream_, std::vector<float>(kCount, 0));
    twice_ = std::make_unique<ScaleCall>(test_.device(), *x_, *y_, kCount, 2, 0);
    other_ = std::make_unique<FakeStream>(fake_);
  }
  static Result<void> Broken() { return Fail(ErrorCode::kDevice, "fake:0: it broke"); }
  std::future<std::string> Told(Stream& stream, uint64_t point) {
    auto told = std::make_shared<std::promise<std::string>>();
    stream.OnReached(point, [told](const Result<void>& outcome) {
      told->set_value(outcome ? "well" : outcome.error().message);
    });
    return told->get_future();
  }

  TestDevice test_;
  FakeDevice fake_{test_.host};
  std::unique_ptr<FakeStream> other_;
  std::unique_ptr<Buffer> x_, y_;
  std::unique_ptr<ScaleCall> twice_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(StreamTest, TheQueueWaitsForAnotherDeviceAndTheHostDoesNot) {
  ASSERT_TRUE(stream_->Wait(*other_, other_->Record()));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  const uint64_t point = stream_->Record();
  auto told = Told(*stream_, point);
  EXPECT_EQ(told.wait_for(kSoon), std::future_status::timeout);
  EXPECT_FALSE(*stream_->Reached(point));
  other_->Reach({});
  ASSERT_EQ(told.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(told.get(), "well");
  EXPECT_TRUE(*stream_->Reached(point));
  EXPECT_EQ(test_.Floats(*stream_, *y_), std::vector<float>(kCount, 6));
}

TEST_F(StreamTest, WaitsForWhatIsReachedAlready) {
  other_->Reach({});
  ASSERT_TRUE(stream_->Wait(*other_, other_->Record()));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  EXPECT_EQ(test_.Floats(*stream_, *y_), std::vector<float>(kCount, 6));
}

TEST_F(StreamTest, AFailureOfAnotherDeviceArrivesAsItIs) {
  const DeviceCounters before = test_.device().counters();
  const uint64_t good = stream_->Record();
  ASSERT_TRUE(stream_->Wait(*other_, other_->Record()));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  ASSERT_TRUE(stream_->Fill(*y_, 0xFF));
  auto told = Told(*stream_, stream_->Record());
  const uint64_t point = stream_->Record();
  // A second stream of the device waits for the first by its events, without a thread.
  auto second = test_.Open();
  ASSERT_TRUE(second->Wait(*stream_, point));
  ASSERT_TRUE(second->Fill(*y_, 0xFF));
  const uint64_t end = second->Record();
  other_->Reach(Broken());
  const auto outcome = stream_->Synchronize(point);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "fake:0: it broke");
  EXPECT_EQ(outcome.error().code, ErrorCode::kDevice);
  ASSERT_EQ(told.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(told.get(), "fake:0: it broke");
  const auto passed_on = second->Synchronize(end);
  ASSERT_FALSE(passed_on);
  EXPECT_EQ(passed_on.error().message, "fake:0: it broke");
  EXPECT_TRUE(stream_->Synchronize(good));
  EXPECT_EQ(test_.device().counters().kernels, before.kernels);
  EXPECT_EQ(test_.device().counters().fills, before.fills);

  stream_->Reset();
  second->Reset();
  EXPECT_EQ(test_.Floats(*second, *y_), std::vector<float>(kCount, 0));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  EXPECT_EQ(test_.Floats(*stream_, *y_), std::vector<float>(kCount, 6));
  EXPECT_EQ(test_.device().counters().kernels, before.kernels + 1);
}

TEST_F(StreamTest, WhoWaitsWithoutAskingIsToldOfAFailure) {
  auto from = *test_.host.Allocate(kCount * 4), to = *test_.host.Allocate(kCount * 4);
  std::memset(to->host(), 0x11, kCount * 4);
  ASSERT_TRUE(stream_->Wait(*other_, other_->Record()));
  auto of_gate = Told(*stream_, stream_->Record());
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  auto of_kernel = Told(*stream_, stream_->Record());
  ASSERT_TRUE(stream_->Copy({.source = from.get(), .target = to.get(), .row_bytes = kCount * 4}));
  auto of_host_copy = Told(*stream_, stream_->Record());
  auto second = test_.Open();
  ASSERT_TRUE(second->Wait(*stream_, stream_->Record()));
  auto of_second = Told(*second, second->Record());
  other_->Reach(Broken());
  for (auto* told : {&of_gate, &of_kernel, &of_host_copy, &of_second}) {
    ASSERT_EQ(told->wait_for(kLong), std::future_status::ready);
    EXPECT_EQ(told->get(), "fake:0: it broke");
  }
  EXPECT_EQ(to->host()[0], std::byte{0x11});
}

TEST_F(StreamTest, AFailureThatIsKnownAlreadyStopsTheNextCommands) {
  other_->Reach(Broken());
  ASSERT_TRUE(stream_->Wait(*other_, other_->Record()));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  const auto outcome = stream_->Synchronize(stream_->Record());
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "fake:0: it broke");
  stream_->Reset();
  EXPECT_EQ(test_.Floats(*stream_, *y_), std::vector<float>(kCount, 0));
}

TEST_F(StreamTest, AStreamThatGoesWithoutAWordHangsNobody) {
  ASSERT_TRUE(stream_->Wait(*other_, other_->Record()));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  const uint64_t point = stream_->Record();
  other_->Forget();
  const auto outcome = stream_->Synchronize(point);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kDevice);
}

TEST_F(StreamTest, SeveralWaitsAreAllWaitedFor) {
  FakeStream third(fake_);
  ASSERT_TRUE(stream_->Wait(*other_, 1));
  ASSERT_TRUE(stream_->Wait(third, 1));
  const uint64_t point = stream_->Record();  // No command follows: the gates alone decide.
  auto told = Told(*stream_, point);
  auto second = test_.Open();
  ASSERT_TRUE(second->Wait(*stream_, point));
  ASSERT_TRUE(second->Run(twice_->calls()));
  const uint64_t end = second->Record();
  third.Reach({});
  EXPECT_EQ(told.wait_for(kSoon), std::future_status::timeout);
  EXPECT_FALSE(*second->Reached(end));
  other_->Reach({});
  ASSERT_EQ(told.wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(second->Synchronize(end));
  EXPECT_EQ(test_.Floats(*second, *y_), std::vector<float>(kCount, 6));
}

TEST_F(StreamTest, AFailureComesNoEarlierThanWhatElseWasWaitedFor) {
  FakeStream third(fake_);
  ASSERT_TRUE(stream_->Wait(*other_, 1));
  ASSERT_TRUE(stream_->Wait(third, 1));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  const uint64_t point = stream_->Record();
  auto second = test_.Open();
  ASSERT_TRUE(second->Wait(*stream_, point));
  auto told = Told(*stream_, point), told_second = Told(*second, second->Record());
  other_->Reach(Broken());  // The kernel is dropped at once, and ends before the second wait.
  EXPECT_EQ(told.wait_for(kSoon), std::future_status::timeout);
  EXPECT_FALSE(*stream_->Reached(point));
  third.Reach({});
  for (auto* future : {&told, &told_second}) {
    ASSERT_EQ(future->wait_for(kLong), std::future_status::ready);
    EXPECT_EQ(future->get(), "fake:0: it broke");
  }
}

TEST_F(StreamTest, TwoStreamsMayWaitForEachOtherInTurn) {
  auto second = test_.Open();
  ASSERT_TRUE(stream_->Wait(*other_, 1));
  Stream* streams[] = {stream_.get(), second.get()};
  for (int i = 0; i < 20; ++i) {
    Stream &one = *streams[i % 2], &next = *streams[(i + 1) % 2];
    ASSERT_TRUE(one.Run(twice_->calls()));
    ASSERT_TRUE(next.Wait(one, one.Record()));
  }
  const uint64_t ends[] = {stream_->Record(), second->Record()};
  other_->Reach(Broken());
  for (int i : {1, 0}) {
    const auto outcome = streams[i]->Synchronize(ends[i]);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message, "fake:0: it broke");
  }
}

TEST_F(StreamTest, ACopyBetweenTwoPlacesOfTheHostTakesItsTurn) {
  auto from = *test_.host.Allocate(kCount * 4), to = *test_.host.Allocate(kCount * 4);
  std::memset(from->host(), 0, kCount * 4);
  std::memset(to->host(), 0xFF, kCount * 4);
  ASSERT_TRUE(stream_->Wait(*other_, 1));
  ASSERT_TRUE(stream_->Copy({.source = x_.get(), .target = from.get(), .row_bytes = kCount * 4}));
  ASSERT_TRUE(stream_->Copy({.source = from.get(), .target = to.get(), .row_bytes = kCount * 4}));
  ASSERT_TRUE(stream_->Copy({.source = to.get(), .target = y_.get(), .row_bytes = kCount * 4}));
  const uint64_t point = stream_->Record();
  EXPECT_FALSE(*stream_->Reached(point));
  other_->Reach({});
  ASSERT_TRUE(stream_->Synchronize(point));
  EXPECT_EQ(test_.Floats(*stream_, *y_), std::vector<float>(kCount, 3));
}

TEST_F(StreamTest, ARowThatIsNotThereIsNamed) {
  const Layout table = Contiguous(Type::kF32, std::vector<int64_t>{10, 100});
  const Layout ids = Contiguous(Type::kI32, std::vector<int64_t>{3});
  const Layout output = Contiguous(Type::kF32, std::vector<int64_t>{3, 100});
  const std::vector<int32_t> numbers{2, 10, 4};
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
  auto ids_buffer = test_.Upload(*stream_, {bytes, bytes + 12});
  auto made = test_.Take(output.PackedBytes());
  const Layout layouts[] = {table, ids};
  const bool present[] = {true, true}, constant[] = {false, false};
  const auto choice = test_.device().FindKernel({.op = &ops::kRows,
                                                 .attributes = {},
                                                 .inputs = layouts,
                                                 .present = present,
                                                 .constant = constant,
                                                 .output = output});
  ASSERT_TRUE(choice);
  const TensorArg inputs[] = {{.layout = table, .buffer = x_.get()},
                              {.layout = ids, .buffer = ids_buffer.get()}};
  std::vector<KernelCall> calls = twice_->calls();
  calls.push_back({.kernel = choice->kernel,
                   .op = &ops::kRows,
                   .attributes = {},
                   .inputs = inputs,
                   .output = {.layout = output, .buffer = made.get()},
                   .name = "embed"});
  calls.push_back(twice_->calls().front());
  ASSERT_TRUE(stream_->Run(calls));
  const auto outcome = stream_->Synchronize(stream_->Record());
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "device opencl:0, node embed (rows): row 10 is not one of 10");
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalid);
  // A stream that comes after hears of it though no event has failed.
  auto second = test_.Open();
  ASSERT_TRUE(second->Wait(*stream_, stream_->Record()));
  EXPECT_FALSE(second->Synchronize(second->Record()));
  stream_->Reset();
  const std::vector<float> rows = test_.Floats(*stream_, *made);
  EXPECT_EQ(rows[0], 3);
  EXPECT_EQ(rows[100], 0);  // What follows in a batch works on zeros.
  EXPECT_EQ(rows[200], 3);
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  EXPECT_TRUE(stream_->Synchronize(stream_->Record()));
}

TEST_F(StreamTest, RefusesCallsThatReachOutside) {
  std::vector<KernelCall> calls = twice_->calls();
  calls[0].output.offset = 4;
  auto refused = stream_->Run(calls);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_NE(refused.error().message.find("node scaled (scale), output"), std::string::npos)
      << refused.error().message;
  calls = twice_->calls();
  auto on_host = *test_.host.Allocate(kCount * 4);
  calls[0].output.buffer = on_host.get();
  EXPECT_FALSE(stream_->Run(calls));
  calls = twice_->calls();
  calls[0].kernel = &fake_;
  EXPECT_FALSE(stream_->Run(calls));
  EXPECT_TRUE(stream_->Synchronize(stream_->Record()));
}

TEST_F(StreamTest, CountsWhatItDid) {
  const DeviceCounters before = test_.device().counters();
  auto to = *test_.host.Allocate(kCount * 4);
  std::vector<KernelCall> calls = twice_->calls();
  calls.push_back(calls[0]);
  ASSERT_TRUE(stream_->Run(calls));
  ASSERT_TRUE(stream_->Copy({.source = y_.get(), .target = x_.get(), .row_bytes = 400}));
  ASSERT_TRUE(stream_->Copy({.source = y_.get(), .target = to.get(), .row_bytes = 800}));
  ASSERT_TRUE(stream_->Copy({.source = to.get(), .target = x_.get(), .row_bytes = 40}));
  ASSERT_TRUE(stream_->Fill(*y_, 0, 100, 1));
  ASSERT_TRUE(stream_->Synchronize(stream_->Record()));
  const DeviceCounters after = test_.device().counters();
  EXPECT_EQ(after.kernels - before.kernels, 2);
  EXPECT_EQ(after.copies - before.copies, 3);
  EXPECT_EQ(after.bytes_within - before.bytes_within, 400);
  EXPECT_EQ(after.bytes_out - before.bytes_out, 800);
  EXPECT_EQ(after.bytes_in - before.bytes_in, 40);
  EXPECT_EQ(after.fills - before.fills, 1);
  EXPECT_EQ(after.handovers - before.handovers, 5);
}

TEST_F(StreamTest, IsDestroyedWithWorkInFlight) {
  ASSERT_TRUE(stream_->Wait(*other_, 1));
  ASSERT_TRUE(stream_->Run(twice_->calls()));
  auto told = Told(*stream_, stream_->Record());
  std::thread opener([&] {
    std::this_thread::sleep_for(kSoon);
    other_->Reach({});
  });
  stream_.reset();
  EXPECT_EQ(told.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  opener.join();
  auto next = test_.Open();
  EXPECT_EQ(test_.Floats(*next, *y_), std::vector<float>(kCount, 6));
}

}  // namespace
}  // namespace tandem::opencl
