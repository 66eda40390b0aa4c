// The n-th call of a device fails, for every kind and every n: an error comes back, nothing hangs
// or is lost, and the same scheduler then does the same work right.

#include "tests/rig.h"

namespace tandem {
namespace {

using namespace testing_rig;  // NOLINT: the rig is for tests only.

struct Work {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const State> state = MakeState("s", {4, 8});
  TensorId x = kNone, ids = kNone, out = kNone;

  // Over two devices and the host, with a state that is updated away from home.
  Work() {
    GraphBuilder b;
    x = Must(b.Input("x", Type::kF32, {2, 8}));
    ids = Must(b.Input("ids", Type::kI32, {2}));
    const TensorId w = b.Use(MakeConstant("w", {8, 8}, std::vector<float>(64, 0.5f)));
    const TensorId y = Must(b.Add(ops::kMatmul, {x, w}, {{ops::kMatmulExact, 1}}, "y"));
    const TensorId z = Must(b.Add(ops::kScale, {y}, {{ops::kScaleFactor, 2}}, "z"));
    const TensorId s = Must(b.Add(ops::kUpdateRows, {Must(b.Use(state, 0)), z, ids}, {}, "store"));
    const TensorId r = Must(b.Add(ops::kRows, {s, ids}, {}, "load"));
    out = Must(b.Add(ops::kAdd, {r, y}, {}, "out"));
    Must(b.Output(out));
    graph = Must(std::move(b).Build());
  }

  GraphSpec Spec(DeviceIndex host) const {
    GraphSpec spec;
    spec.name = "work";
    spec.graph = graph;
    spec.node_pins = Pins(*graph, {{"y", 0}, {"z", 1}, {"store", 0}, {"load", 1}, {"out", host}});
    return spec;
  }

  Result<std::vector<float>> Run(Scheduler& scheduler, GraphHandle handle) const {
    const std::vector<float> input = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
    const std::vector<int32_t> rows = {3, 1};
    TANDEM_CHECK(scheduler.Run(
        handle,
        {.symbols = {}, .inputs = {{x, BytesOf(input)}, {ids, BytesOf(rows)}}, .stop = {}}));
    TANDEM_ASSIGN(const HostTensor tensor, scheduler.Output(handle, out));
    return Floats(tensor);
  }
};

const std::vector<float> kExpected(16, 54.0f);  // Every sum of 8 values is 36; 18 * (2 + 1).

class Faults : public testing::TestWithParam<SimCall> {};

TEST_P(Faults, OfEveryCallLeaveTheSchedulerUsable) {
  const Work work;
  int fired = 0;
  for (const size_t device : {0, 1}) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(fmt::format("device {}, call {}", device, n));
      const Rig rig({Sim("a"), Sim("b")});
      const auto scheduler = rig.MakeScheduler();
      const GraphHandle handle = Must(scheduler->Add(work.Spec(rig.host())));
      ArmFault(*rig.devices[device], {GetParam(), n});
      const auto attempt = [&]() -> Result<std::vector<float>> {
        TANDEM_CHECK(scheduler->Reserve());
        TANDEM_CHECK(scheduler->Load());
        return work.Run(*scheduler, handle);
      };
      const Result<std::vector<float>> first = attempt();
      const bool has_fired = ClearFaults(*rig.devices[device]) == 0;
      if (!has_fired) {
        ASSERT_TRUE(first) << first.error().message;
        EXPECT_EQ(*first, kExpected);
        break;
      }
      ++fired;
      ASSERT_FALSE(first);
      EXPECT_NE(first.error().message.find(rig.devices[device]->name()), std::string::npos)
          << first.error().message;
      if (Result<std::vector<float>> again = attempt(); !again) {
        // Only a state that the failed run may have written stands in the way, and says so.
        ASSERT_EQ(again.error().code, ErrorCode::kUndefined) << again.error().message;
        Must(scheduler->ResetState(*work.state));
      }
      EXPECT_EQ(Must(attempt()), kExpected);
    }
  }
  std::printf("%d faults\n", fired);
  EXPECT_GT(fired, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Faults,
                         testing::Values(SimCall::kAllocate, SimCall::kRun, SimCall::kCopy,
                                         SimCall::kFill, SimCall::kWait, SimCall::kSynchronize));

TEST(Scheduler, AFailedReservationLeavesTheOldOne) {
  SimOptions options = Sim("a");
  options.memory = 64 << 10;
  const Rig rig({options});
  const auto scheduler = rig.MakeScheduler();
  const auto make = [&](int64_t rows) {
    GraphBuilder b;
    const TensorId x = Must(b.Input("x", Type::kF32, {rows, 64}));
    Must(b.Output(Must(b.Add(ops::kSilu, {x}, {}, "y"))));
    GraphSpec spec;
    spec.name = fmt::format("{} rows", rows);
    spec.graph = Must(std::move(b).Build());
    spec.node_pins = Pins(*spec.graph, {{"y", 0}});
    return spec;
  };
  const GraphHandle small = Must(scheduler->Add(make(8)));
  Must(scheduler->Reserve());
  Must(scheduler->Load());
  const std::vector<float> input(8 * 64, 0.0f);
  const auto run = [&] {
    Must(scheduler->Run(small, {.symbols = {}, .inputs = {{0, BytesOf(input)}}, .stop = {}}));
  };
  run();
  const GraphHandle large = Must(scheduler->Add(make(8192)));
  const Result<void> refused = scheduler->Reserve();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  for (const char* word : {"sim:a", "65536"})
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  run();
  Must(scheduler->Remove(large));
  Must(scheduler->Reserve());
  run();
}

TEST(Scheduler, AStopBetweenSplitsIsSaid) {
  const Work work;
  const Rig rig({Sim("a"), Sim("b")});
  const auto scheduler = rig.MakeScheduler();
  const GraphHandle handle = Must(scheduler->Add(work.Spec(rig.host())));
  Must(scheduler->Reserve());
  Must(scheduler->Load());
  const std::vector<float> input(16, 1.0f);
  const std::vector<int32_t> rows = {0, 1};
  int asked = 0;
  const Result<void> stopped =
      scheduler->Run(handle, {.symbols = {},
                              .inputs = {{work.x, BytesOf(input)}, {work.ids, BytesOf(rows)}},
                              .stop = [&] { return ++asked == 3; }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 3);
  Must(scheduler->ResetState(*work.state));
  EXPECT_EQ(Must(work.Run(*scheduler, handle)), kExpected);
}

TEST(Scheduler, RefusesWhatIsNotThere) {
  const Work work;
  const Rig rig({Sim("a"), Sim("b")});
  const auto scheduler = rig.MakeScheduler();
  const GraphHandle handle = Must(scheduler->Add(work.Spec(rig.host())));
  const auto message = [](const auto& result) {
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_NE(message(work.Run(*scheduler, handle)).find("Reserve()"), std::string::npos);
  Must(scheduler->Reserve());
  EXPECT_NE(message(work.Run(*scheduler, handle)).find("Load()"), std::string::npos);
  Must(scheduler->Load());
  EXPECT_NE(message(scheduler->Run(99, {})).find("99"), std::string::npos);
  EXPECT_NE(message(scheduler->Run(handle, {})).find("not set"), std::string::npos);
  EXPECT_NE(
      message(scheduler->Run(handle, {.symbols = {1}, .inputs = {}, .stop = {}})).find("boxes"),
      std::string::npos);
  const std::vector<float> input(3, 1.0f);
  EXPECT_NE(message(scheduler->Run(
                        handle, {.symbols = {}, .inputs = {{work.x, BytesOf(input)}}, .stop = {}}))
                .find("12 bytes, but 64"),
            std::string::npos);
  EXPECT_FALSE(scheduler->Output(handle, work.out));
  EXPECT_EQ(Must(work.Run(*scheduler, handle)), kExpected);
  EXPECT_FALSE(scheduler->Output(handle, work.x));
  Device* twice[] = {rig.devices[0], rig.devices[0], rig.devices[2]};
  EXPECT_NE(message(MakeMachine(twice)).find("twice"), std::string::npos);
  EXPECT_NE(message(MakeMachine(std::span(twice).first(1))).find("CPU"), std::string::npos);
}

}  // namespace
}  // namespace tandem
