// Promises on streams and points: order, hand-over, waiting on one device and across devices.

#include "tests/conformance/device_test.h"

namespace tandem::conformance {
namespace {

class StreamTest : public DeviceTest {};

TEST_P(StreamTest, DoesCommandsInOrder) {
  auto stream = Open(device());
  const int64_t count = 1000;
  std::vector<float> expected(count, 1.0f);
  auto a = OnDevice(*stream, expected), b = Take(memory(), a->bytes()),
       c = Take(memory(), a->bytes());
  const ScaleCall forth(device(), *a, *b, count, 0.5, 1.0), back(device(), *b, *c, count, 1.0, 2.0);
  for (int round = 0; round < 40; ++round) {
    ASSERT_OK(stream->Run(forth.calls()));  // b = a / 2 + 1.
    ASSERT_OK(stream->Fill(*a, 0));         // After b has read it.
    ASSERT_OK(stream->Run(back.calls()));   // c = b + 2.
    ASSERT_OK(CopyAll(*stream, *c, *a));
    ASSERT_OK(stream->Fill(*c, 0xFF));  // After a has it.
    for (float& v : expected) v = 0.5f * v + 3.0f;
  }
  EXPECT_EQ(Floats(*stream, *a), expected);
}

TEST_P(StreamTest, RunsABatchInOrderWithOneHandover) {
  auto stream = Open(device());
  const int64_t count = 333;
  auto a = OnDevice(*stream, std::vector<float>(count, 2.0f)), b = Take(memory(), a->bytes());
  const ScaleCall forth(device(), *a, *b, count, 2.0, 0.0), back(device(), *b, *a, count, 1.0, 1.0);
  std::vector<KernelCall> calls;
  float expected = 2;
  for (int i = 0; i < 10; ++i) {
    calls.push_back(forth.call());
    calls.push_back(back.call());
    expected = 2 * expected + 1;
  }
  const DeviceCounters before = device().counters();
  ASSERT_OK(stream->Run(calls));
  ASSERT_OK(Finish(*stream));
  const DeviceCounters after = device().counters();
  EXPECT_EQ(after.handovers - before.handovers, 1);
  EXPECT_EQ(after.kernels - before.kernels, 20);
  EXPECT_EQ(Floats(*stream, *a), std::vector<float>(count, expected));
}

TEST_P(StreamTest, AnEmptyBatchIsFine) {
  auto stream = Open(device());
  EXPECT_OK(stream->Run({}));
  EXPECT_OK(Finish(*stream));
}

TEST_P(StreamTest, PointsGrowAndTheBeginningIsReached) {
  auto stream = Open(device());
  EXPECT_OK(stream->Synchronize(0));
  const auto reached = stream->Reached(0);
  ASSERT_OK(reached);
  EXPECT_TRUE(*reached);
  const uint64_t first = stream->Record(), second = stream->Record();
  EXPECT_GT(first, 0u);
  EXPECT_GE(second, first);
  EXPECT_OK(stream->Synchronize(second));
  EXPECT_TRUE(*stream->Reached(first));
}

TEST_P(StreamTest, APointThatWasNotRecordedCountsAsReached) {
  auto stream = Open(device()), other = Open(device());
  const uint64_t never = other->Record() + 1000;
  EXPECT_OK(other->Synchronize(never));
  EXPECT_TRUE(*other->Reached(never));
  std::promise<bool> told;
  other->OnReached(never, [&](const Result<void>& outcome) { told.set_value(bool(outcome)); });
  EXPECT_TRUE(told.get_future().get());
  ASSERT_OK(stream->Wait(*other, never));
  EXPECT_OK(Finish(*stream));
}

TEST_P(StreamTest, APointThatWasNotRecordedIsReachedThoughTheStreamIsBusy) {
  if (!device().properties().waits_for_others) GTEST_SKIP() << "does not wait for others";
  auto busy = Open(device()), other = Open(device());
  Gate gate;
  ASSERT_OK(gate.HoldUp(*busy));
  const uint64_t next = busy->Record() + 1;
  const bool returns = ReturnsAtOnce(gate, [&] {
    EXPECT_OK(busy->Synchronize(next));
    EXPECT_TRUE(*busy->Reached(next));
    EXPECT_OK(other->Wait(*busy, next));
    busy->Record();  // Too late for the wait above.
    EXPECT_OK(Finish(*other));
  });
  EXPECT_TRUE(returns);
  gate.Open();
  EXPECT_OK(Finish(*busy));
}

TEST_P(StreamTest, TellsWhenAPointIsReached) {
  auto stream = Open(device());
  Gate gate;
  if (!device().properties().waits_for_others) {
    EXPECT_FALSE(gate.HoldUp(*stream));
    return;
  }
  const uint64_t before = stream->Record();
  ASSERT_OK(gate.HoldUp(*stream));
  const uint64_t point = stream->Record();
  std::atomic<int> calls{0};
  std::promise<bool> told;
  stream->OnReached(point, [&](const Result<void>& outcome) {
    ++calls;
    told.set_value(bool(outcome));
  });
  EXPECT_OK(stream->Synchronize(before));
  EXPECT_FALSE(*stream->Reached(point));
  EXPECT_EQ(calls, 0);
  gate.Open();
  EXPECT_OK(stream->Synchronize(point));
  EXPECT_TRUE(*stream->Reached(point));
  auto future = told.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(future.get());
  // Later it is told at once or soon.
  std::promise<bool> again;
  stream->OnReached(point, [&](const Result<void>& outcome) { again.set_value(bool(outcome)); });
  auto second = again.get_future();
  ASSERT_EQ(second.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(second.get());
  EXPECT_EQ(calls, 1);
}

TEST_P(StreamTest, CommandsReturnBeforeTheyAreDone) {
  if (!device().properties().asynchronous) GTEST_SKIP() << "a synchronous device";
  auto stream = Open(device());
  const int64_t count = 5000;
  auto a = OnDevice(*stream, std::vector<float>(count, 1.0f)), b = Take(memory(), a->bytes());
  const std::vector<float> sent(count, 7.0f);
  auto source = OnHost(sent), target = Take(host(), a->bytes());
  const ScaleCall call(device(), *a, *b, count, 2.0, 0.0);
  Gate gate;
  if (!gate.HoldUp(*stream)) GTEST_SKIP() << "nothing holds this device up";
  // Ordinary host memory on both sides.
  const bool returns = ReturnsAtOnce(gate, [&] {
    EXPECT_OK(CopyAll(*stream, *source, *a));
    EXPECT_OK(stream->Run(call.calls()));
    EXPECT_OK(CopyAll(*stream, *b, *target));
    EXPECT_OK(stream->Fill(*b, 0));
    stream->Record();
  });
  EXPECT_TRUE(returns);
  gate.Open();
  ASSERT_OK(Finish(*stream));
  EXPECT_EQ(Floats(*target), std::vector<float>(count, 14.0f));
}

TEST_P(StreamTest, WaitsForAnotherStreamOfTheDevice) {
  auto first = Open(device()), second = Open(device());
  const int64_t count = 4096;
  auto a = OnDevice(*first, std::vector<float>(count, 1.0f)),
       b = OnDevice(*first, Floats(*first, *a));
  auto result = OnDevice(*first, std::vector<float>(count, 0.0f));
  const ScaleCall make(device(), *a, *b, count, 3.0, 0.0),
      use(device(), *b, *result, count, 1.0, 1.0);
  Gate gate;
  if (device().properties().waits_for_others) {
    ASSERT_OK(gate.HoldUp(*first));
  } else {
    gate.Open();
  }
  ASSERT_OK(first->Run(make.calls()));
  ASSERT_OK(second->Wait(*first, first->Record()));
  ASSERT_OK(second->Run(use.calls()));
  const uint64_t end = second->Record();
  // A third stream is not held up by either.
  auto third = Open(device());
  EXPECT_OK(Finish(*third));
  gate.Open();
  ASSERT_OK(second->Synchronize(end));
  EXPECT_EQ(Floats(*second, *result), std::vector<float>(count, 4.0f));
}

TEST_P(StreamTest, WaitsForItself) {
  auto stream = Open(device());
  ASSERT_OK(stream->Wait(*stream, stream->Record()));
  EXPECT_OK(Finish(*stream));
}

TEST_P(StreamTest, SharesAnOrderWithOtherDevices) {
  for (const Subject& partner : Partners()) {
    SCOPED_TRACE(partner.name);
    // Both ways: this device makes what the other uses, and the other way round.
    for (const bool makes : {true, false}) {
      auto own = Open(device()), theirs = Open(*partner.device);
      Stream& maker = makes ? *own : *theirs;
      Stream& user = makes ? *theirs : *own;
      const int64_t count = 4096;
      auto x = OnHost(std::vector<float>(count, 3.0f));
      auto between = OnHost(std::vector<float>(count, 0.0f));
      auto y = OnHost(std::vector<float>(count, 0.0f));
      auto on_maker = Take(maker.device().memory(), x->bytes());
      auto on_user = Take(user.device().memory(), x->bytes());
      Gate gate;
      if (maker.device().properties().waits_for_others) {
        ASSERT_OK(gate.HoldUp(maker));
      } else {
        gate.Open();
      }
      ASSERT_OK(CopyAll(maker, *x, *on_maker));
      ASSERT_OK(CopyAll(maker, *on_maker, *between));
      const uint64_t made = maker.Record();
      const auto waits = user.Wait(maker, made);
      if (&user.device() != &maker.device() && !user.device().properties().waits_for_others) {
        ASSERT_FALSE(waits);
        EXPECT_EQ(waits.error().code, ErrorCode::kUnsupported);
        EXPECT_FALSE(waits.error().message.empty());
        gate.Open();
        ASSERT_OK(maker.Synchronize(made));
        continue;
      }
      ASSERT_OK(waits);
      ASSERT_OK(CopyAll(user, *between, *on_user));
      ASSERT_OK(CopyAll(user, *on_user, *y));
      const uint64_t end = user.Record();
      gate.Open();
      ASSERT_OK(user.Synchronize(end));
      EXPECT_EQ(Floats(*y), std::vector<float>(count, 3.0f));
    }
  }
}

TEST_P(StreamTest, DestroyingItWaitsForItsWork) {
  const int64_t count = 4096;
  auto stream = Open(device());
  auto a = OnDevice(*stream, std::vector<float>(count, 1.0f)), b = Take(memory(), a->bytes());
  auto target = OnHost(std::vector<float>(count, 0.0f));
  const ScaleCall call(device(), *a, *b, count, 2.0, 0.5);
  Gate gate;
  (void)gate.HoldUp(*stream);  // Where it can be held up.
  ASSERT_OK(stream->Run(call.calls()));
  ASSERT_OK(CopyAll(*stream, *b, *target));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.Open();
  });
  stream.reset();
  EXPECT_EQ(Floats(*target), std::vector<float>(count, 2.5f));
  opener.join();
}

TEST_P(StreamTest, AStreamMayGoBeforeThoseThatWaitForIt) {
  auto first = Open(device()), second = Open(device());
  ASSERT_OK(second->Wait(*first, first->Record()));
  first.reset();
  EXPECT_OK(Finish(*second));
}

TEST_P(StreamTest, ManyStreamsAndPoints) {
  const int64_t count = 64;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(Open(device()));
  auto a = OnDevice(*streams[0], std::vector<float>(count, 0.0f)), b = Take(memory(), a->bytes());
  const ScaleCall forth(device(), *a, *b, count, 1.0, 1.0), back(device(), *b, *a, count, 1.0, 0.0);
  std::vector<KernelCall> calls{forth.call(), back.call()};
  // One after another, each on the next stream.
  uint64_t point = 0;
  for (int i = 0; i < 200; ++i) {
    Stream& stream = *streams[i % 4];
    if (i > 0) ASSERT_OK(stream.Wait(*streams[(i + 3) % 4], point));
    ASSERT_OK(stream.Run(calls));
    point = stream.Record();
  }
  ASSERT_OK(streams[199 % 4]->Synchronize(point));
  EXPECT_EQ(Floats(*streams[199 % 4], *a), std::vector<float>(count, 200.0f));
}

TANDEM_FOR_EACH_SUBJECT(StreamTest);

}  // namespace
}  // namespace tandem::conformance
