// Promises on errors: they travel on the timeline, what depends on them is skipped, and a stream
// that was reset works again.

#include "backends/sim/sim.h"
#include "tests/conformance/device_test.h"

namespace tandem::conformance {
namespace {

class FailureTest : public DeviceTest {
 protected:
  // A point of another device that is reached with an error.
  struct Failed {
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Stream> stream;
    uint64_t point = 0;
  };
  static Failed Fail() {
    Device& other = Accomplice();
    Failed failed;
    failed.buffer = Take(other.memory(), 64);
    failed.stream = Open(other);
    ArmFault(other, {SimCall::kFill, 1});
    EXPECT_OK(failed.stream->Fill(*failed.buffer, 1));
    failed.point = failed.stream->Record();
    EXPECT_FALSE(failed.stream->Synchronize(failed.point));
    return failed;
  }

  // rows() of a table of 4 with an id that is out of range.
  struct BadRows {
    std::unique_ptr<Buffer> table, ids, out, scratch;
    std::vector<TensorArg> inputs;
    std::vector<KernelCall> calls;
  };
  std::unique_ptr<BadRows> MakeBadRows(Stream& stream, int32_t id) {
    auto bad = std::make_unique<BadRows>();
    bad->table = OnDevice(stream, std::vector<float>(4 * 32, 1.0f));
    std::vector<float> ids(3);
    const int32_t values[] = {0, id, 1};
    std::memcpy(ids.data(), values, sizeof(values));
    bad->ids = OnDevice(stream, ids);
    bad->out = OnDevice(stream, std::vector<float>(3 * 32, 5.0f));
    const int64_t table_dims[] = {4, 32}, ids_dims[] = {3}, out_dims[] = {3, 32};
    const std::vector<Layout> layouts{Contiguous(Type::kF32, table_dims),
                                      Contiguous(Type::kI32, ids_dims)};
    const Layout output = Contiguous(Type::kF32, out_dims);
    const bool present[] = {true, true}, constant[] = {false, false};
    const auto choice = device().FindKernel({.op = &ops::kRows,
                                             .attributes = {},
                                             .inputs = layouts,
                                             .present = present,
                                             .constant = constant,
                                             .output = output});
    EXPECT_OK(choice);
    bad->inputs = {{.layout = layouts[0], .buffer = bad->table.get()},
                   {.layout = layouts[1], .buffer = bad->ids.get()}};
    if (choice->scratch_bytes > 0) bad->scratch = Take(memory(), choice->scratch_bytes);
    bad->calls.push_back({.kernel = choice->kernel,
                          .op = &ops::kRows,
                          .attributes = {},
                          .inputs = bad->inputs,
                          .output = {.layout = output, .buffer = bad->out.get()},
                          .scratch = bad->scratch.get(),
                          .scratch_bytes = choice->scratch_bytes,
                          .name = "token_rows"});
    return bad;
  }
};

TEST_P(FailureTest, AStreamFailsWithWhatItWaitsFor) {
  if (!device().properties().waits_for_others) GTEST_SKIP() << "does not wait for others";
  Failed failed = Fail();
  const Result<void> error = failed.stream->Synchronize(failed.point);
  auto stream = Open(device());
  auto a = OnDevice(*stream, std::vector<float>(64, 1.0f)), b = Take(memory(), a->bytes());
  const ScaleCall call(device(), *a, *b, 64, 2.0, 0.0);
  const uint64_t good = stream->Record();
  ASSERT_OK(stream->Wait(*failed.stream, failed.point));
  const DeviceCounters before = device().counters();
  // Whether a command is given before or after the failure is known, it does nothing; it may say
  // so at once.
  (void)stream->Fill(*a, 0);
  (void)stream->Run(call.calls());
  const uint64_t bad = stream->Record();
  const auto outcome = stream->Synchronize(bad);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, error.error().code);
  EXPECT_EQ(outcome.error().message, error.error().message);
  const auto reached = stream->Reached(bad);
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().message, error.error().message);
  EXPECT_OK(stream->Synchronize(good));
  const DeviceCounters after = device().counters();
  EXPECT_EQ(after.kernels, before.kernels);
  EXPECT_EQ(after.fills, before.fills);

  std::promise<Result<void>> told;
  stream->OnReached(bad, [&](const Result<void>& done) { told.set_value(done); });
  auto future = told.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const Result<void> heard = future.get();
  ASSERT_FALSE(heard);
  EXPECT_EQ(heard.error().message, error.error().message);

  // It goes on to a second stream, and both are usable again.
  auto second = Open(device());
  ASSERT_OK(second->Wait(*stream, bad));
  const auto passed_on = Finish(*second);
  ASSERT_FALSE(passed_on);
  EXPECT_EQ(passed_on.error().message, error.error().message);
  for (Stream* reset : {stream.get(), second.get()}) {
    reset->Reset();
    ASSERT_OK(reset->Run(call.calls()));
    EXPECT_EQ(Floats(*reset, *b), std::vector<float>(64, 2.0f));
  }
  EXPECT_EQ(Floats(*stream, *a), std::vector<float>(64, 1.0f));
}

TEST_P(FailureTest, AFailureThatIsStillToComeTravelsToo) {
  if (!device().properties().waits_for_others) GTEST_SKIP() << "does not wait for others";
  Device& other = Accomplice();
  auto buffer = Take(other.memory(), 64);
  auto failing = Open(other);
  auto stream = Open(device());
  auto a = OnDevice(*stream, std::vector<float>(64, 1.0f));
  auto target = OnHost(std::vector<float>(64, 9.0f));
  Gate gate;
  ASSERT_OK(gate.HoldUp(*failing));
  ArmFault(other, {SimCall::kFill, 1});
  ASSERT_OK(failing->Fill(*buffer, 1));
  ASSERT_OK(stream->Wait(*failing, failing->Record()));
  ASSERT_OK(stream->Fill(*a, 0));
  ASSERT_OK(CopyAll(*stream, *a, *target));
  const uint64_t point = stream->Record();
  EXPECT_FALSE(*stream->Reached(point));
  gate.Open();
  EXPECT_FALSE(stream->Synchronize(point));
  EXPECT_EQ(Floats(*target), std::vector<float>(64, 9.0f));
  stream->Reset();
  EXPECT_EQ(Floats(*stream, *a), std::vector<float>(64, 1.0f));
}

TEST_P(FailureTest, AnIdOutOfRangeIsAnError) {
  for (const int32_t id : {4, -1, INT32_MAX, INT32_MIN}) {
    SCOPED_TRACE(id);
    auto stream = Open(device());
    auto bad = MakeBadRows(*stream, id);
    auto a = OnDevice(*stream, std::vector<float>(64, 1.0f)), b = Take(memory(), a->bytes());
    const ScaleCall call(device(), *a, *b, 64, 2.0, 0.0);
    const uint64_t good = stream->Record();
    ASSERT_OK(stream->Run(bad->calls));
    (void)stream->Run(call.calls());
    const uint64_t point = stream->Record();
    const auto outcome = stream->Synchronize(point);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalid) << outcome.error().message;
    // It names the device, the node and the id.
    for (const std::string& part :
         {std::string(device().name()), std::string("token_rows"), std::to_string(id)})
      EXPECT_NE(outcome.error().message.find(part), std::string::npos) << outcome.error().message;
    EXPECT_OK(stream->Synchronize(good));
    // Others hear of it.
    for (const Subject& partner : Partners()) {
      if (!partner.device->properties().waits_for_others) continue;
      auto theirs = Open(*partner.device);
      ASSERT_OK(theirs->Wait(*stream, point));
      const auto passed_on = Finish(*theirs);
      ASSERT_FALSE(passed_on) << partner.name;
      EXPECT_EQ(passed_on.error().message, outcome.error().message);
    }
    stream->Reset();
    ASSERT_OK(stream->Run(call.calls()));
    EXPECT_EQ(Floats(*stream, *b), std::vector<float>(64, 2.0f));
  }
}

TEST_P(FailureTest, AFailedStreamMayBeDestroyed) {
  auto stream = Open(device());
  auto bad = MakeBadRows(*stream, 77);
  ASSERT_OK(stream->Run(bad->calls));
  stream.reset();
  auto next = Open(device());
  EXPECT_OK(Finish(*next));
}

TANDEM_FOR_EACH_SUBJECT(FailureTest);

}  // namespace
}  // namespace tandem::conformance
