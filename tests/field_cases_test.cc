// What went wrong for people who do this job, each as a test with its neighbours. The numbers are
// those of the list of field cases.

#include <numeric>

#include "tests/rig.h"

namespace tandem {
namespace {

using namespace testing_rig;  // NOLINT: the rig is for tests only.

// An op of the user's own that changes a state in place: each element times `factor`.
Result<OpOutput> InferLike(const InferenceContext& context) {
  return OpOutput{context.inputs[0].type, context.inputs[0].shape};
}
Result<void> ScaleInPlace(std::span<const HostTensor> inputs, const HostTensor& output,
                          std::span<const double> attributes) {
  const int64_t n = output.layout.Elements();
  for (int64_t i = 0; i < n; ++i) {
    float value;
    std::memcpy(&value, inputs[0].data + 4 * i, 4);
    value = static_cast<float>(value * attributes[0]);
    std::memcpy(output.data + 4 * i, &value, 4);
  }
  return {};
}
constexpr AttributeSpec kFactor[] = {{"factor", 1.0}};
const OpDefinition kScaleState = [] {
  OpDefinition op;
  op.name = "scale_state";
  op.attributes = kFactor;
  op.infer = InferLike;
  op.state_input = 0;
  op.reference = ScaleInPlace;
  return op;
}();

TEST(FieldCase2, ReservedGraphRunsExactlyAndStaysAsItWas) {
  const Rig rig({Sim("a")});
  GraphBuilder b;
  const TensorId x = Must(b.Input("x", Type::kF32, {4}));
  const TensorId y = Must(b.Add(ops::kSilu, {x}, {}, "y"));
  const TensorId z = Must(b.Add(ops::kAdd, {y, x}, {}, "z"));
  Must(b.Output(z));
  const auto graph = Must(std::move(b).Build());
  const size_t nodes = graph->nodes().size(), tensors = graph->tensors().size();
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, graph, Pins(*graph, {{"y", 0}, {"z", rig.host()}}));
  const std::vector<float> input = {1, -2, 0, 4};
  Must(scheduler->Run(g, {.symbols = {}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
  const std::vector<float> out = Floats(Must(scheduler->Output(g, z)));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(out[i], input[i] / (1 + std::exp(-input[i])) + input[i], 1e-5);
  EXPECT_EQ(graph->nodes().size(), nodes);
  EXPECT_EQ(graph->tensors().size(), tensors);
  EXPECT_EQ(graph->node(0).inputs[0], x);
}

TEST(FieldCase4, PreparedTwiceWithoutARun) {
  const Rig rig({Sim("a")});
  GraphBuilder b;
  const TensorId x = Must(b.Input("x", Type::kF32, {4}));
  Must(b.Output(Must(b.Add(ops::kSilu, {x}))));
  auto scheduler = rig.MakeScheduler();
  Ready(*scheduler, Must(std::move(b).Build()));
  const SchedulerCounters before = scheduler->counters();
  Must(scheduler->Reserve());
  EXPECT_EQ(scheduler->counters().plans, before.plans);
  EXPECT_EQ(scheduler->counters().allocations, before.allocations);
}

TEST(FieldCase7, FiveHundredInputsInOneSplit) {
  const Rig rig({Sim("a")});
  GraphBuilder b;
  std::vector<TensorId> inputs;
  for (int i = 0; i < 500; ++i)
    inputs.push_back(Must(b.Input(fmt::format("in{}", i), Type::kF32, {3})));
  TensorId sum = inputs[0];
  for (int i = 1; i < 500; ++i) sum = Must(b.Add(ops::kAdd, {sum, inputs[i]}));
  Must(b.Output(sum));
  const auto graph = Must(std::move(b).Build());
  std::vector<NodePin> pins;
  for (NodeId n = 0; n < static_cast<NodeId>(graph->nodes().size()); ++n)
    pins.push_back({.node = n, .device = 0, .is_preference = false, .why = "test"});
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, graph, pins);
  EXPECT_EQ(scheduler->plan(g, 0).splits.size(), 1u);
  std::vector<std::vector<float>> values;
  for (int i = 0; i < 500; ++i) values.push_back({1.0f * i, 1, -1});
  RunArguments run;
  for (int i = 0; i < 500; ++i) run.inputs.push_back({inputs[i], BytesOf(values[i])});
  Must(scheduler->Run(g, run));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, sum))), (std::vector<float>{124750, 500, -500}));
}

TEST(FieldCase9, EmptyGraph) {
  const Rig rig({Sim("a")});
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, Must(GraphBuilder().Build()));
  Must(scheduler->Run(g, {}));
  EXPECT_TRUE(scheduler->plan(g, 0).steps.empty());
}

TEST(FieldCase9, OnlyLeavesAndOutputsThatAreInputs) {
  const Rig rig({Sim("a")});
  GraphBuilder b;
  const TensorId x = Must(b.Input("x", Type::kF32, {2, 3}));
  const TensorId w = b.Use(MakeConstant("w", {2}, {7, 8}));
  const auto state = MakeState("s", {2, 2});
  const TensorId s = Must(b.Use(state, 0));
  const TensorId column = Must(b.Slice(x, 1, 1, 1, "column"));
  for (const TensorId id : {x, w, s, column}) Must(b.Output(id));
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, Must(std::move(b).Build()));
  std::vector<float> input = {1, 2, 3, 4, 5, 6};
  Must(scheduler->Run(g, {.symbols = {}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
  std::fill(input.begin(), input.end(), NAN);
  EXPECT_EQ(Floats(Must(scheduler->Output(g, x))), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, w))), (std::vector<float>{7, 8}));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, s))), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, column))), (std::vector<float>{2, 5}));
}

TEST(FieldCase10, ZeroRowsAreNoOps) {
  const Rig rig({Sim("a"), Sim("b")});
  GraphBuilder b;
  const Dim rows = b.Symbol("rows", 8);
  const TensorId x = Must(b.Input("x", Type::kF32, {rows, 4}));
  const TensorId y = Must(b.Add(ops::kSilu, {x}, {}, "y"));
  const TensorId half = Must(b.Slice(y, 1, 2, 2, "half"));
  const TensorId z = Must(b.Add(ops::kCopy, {half}, {}, "z"));
  const TensorId w = b.Use(MakeConstant("w", {3, 2}, {1, 0, 0, 1, 1, 1}));
  const TensorId m = Must(b.Add(ops::kMatmul, {z, w}, {{ops::kMatmulExact, 1}}, "m"));
  Must(b.Output(m));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g =
      Ready(*scheduler, graph, Pins(*graph, {{"y", 0}, {"z", 1}, {"m", rig.host()}}));
  for (const int64_t n : {0, 2, 0, 8}) {
    const std::vector<float> input(static_cast<size_t>(n) * 4, 1.0f);
    const SchedulerCounters before = scheduler->counters();
    Must(scheduler->Run(g, {.symbols = {n}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
    const HostTensor out = Must(scheduler->Output(g, m));
    EXPECT_EQ(out.layout.Elements(), n * 3);
    const float silu = 1 / (1 + std::exp(-1.0f));
    for (const float value : Floats(out))
      EXPECT_TRUE(std::abs(value - silu) < 1e-5 || std::abs(value - 2 * silu) < 1e-5);
    if (n == 0) {
      EXPECT_EQ(scheduler->counters().copied_bytes, before.copied_bytes);
    }
  }
}

TEST(FieldCase12, AStateThatChangesBetweenTwoReadersElsewhere) {
  const Rig rig({Sim("a")});
  const auto state = MakeState("P", {1, 4});
  GraphBuilder b;
  const TensorId p0 = Must(b.Use(state, 0));
  const TensorId a = Must(b.Add(ops::kScale, {p0}, {{ops::kScaleFactor, 10}}, "a"));
  const TensorId five = b.Use(MakeConstant("five", {1, 4}, {5, 5, 5, 5}));
  const TensorId id = Must(b.Input("id", Type::kI32, {1}));
  const TensorId p1 = Must(b.Add(ops::kUpdateRows, {p0, five, id}, {}, "set"));
  const TensorId c = Must(b.Add(ops::kScale, {p1}, {{ops::kScaleFactor, 100}}, "b"));
  Must(b.Output(a));
  Must(b.Output(c));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g =
      Ready(*scheduler, graph, Pins(*graph, {{"a", 0}, {"set", rig.host()}, {"b", 0}}),
            {{.pattern = "^P$", .device = rig.host()}});
  const std::vector<float> start(4, 3.0f);
  Must(scheduler->WriteState(*state, 0, BytesOf(start)));
  const std::vector<int32_t> row = {0};
  Must(scheduler->Run(g, {.symbols = {}, .inputs = {{id, BytesOf(row)}}, .stop = {}}));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, a))), std::vector<float>(4, 30.0f));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, c))), std::vector<float>(4, 500.0f));
  Must(scheduler->Run(g, {.symbols = {}, .inputs = {{id, BytesOf(row)}}, .stop = {}}));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, a))), std::vector<float>(4, 50.0f));
}

TEST(FieldCase13, InPlaceOnWhatTheHostMade) {
  SimOptions options = Sim("a");
  options.unsupported = {"silu"};
  const Rig rig({options});
  GraphBuilder b;
  const TensorId x = Must(b.Input("x", Type::kF32, {4}));
  const TensorId y = Must(b.Add(ops::kSilu, {x}, {}, "y"));
  const TensorId z = Must(b.Add(ops::kScale, {y}, {{ops::kScaleFactor, 2}}, "z"));
  Must(b.Output(y));
  Must(b.Output(z));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, graph, Pins(*graph, {{"y", 0}, {"z", 0}}));
  const Plan& plan = scheduler->plan(g, 0);
  EXPECT_EQ(plan.placement[0].device, rig.host());
  EXPECT_NE(plan.placement[0].reason.find("silu"), std::string::npos) << plan.placement[0].reason;
  const std::vector<float> input = {1, 2, 3, 4};
  Must(scheduler->Run(g, {.symbols = {}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
  const auto made = Floats(Must(scheduler->Output(g, y)));
  const auto scaled = Floats(Must(scheduler->Output(g, z)));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(made[i], input[i] / (1 + std::exp(-input[i])), 1e-6);
    EXPECT_EQ(scaled[i], 2 * made[i]);
  }
}

// The neighbours of 13 and 14: a state at home on one side, changed in place on the other.
struct Away {
  bool home_on_host;
  bool updates_on_host;
};
class FieldCase14 : public testing::TestWithParam<Away> {};

TEST_P(FieldCase14, AnUpdateAwayFromHomeIsBroughtBack) {
  const Rig rig({Sim("a"), Sim("b")});
  const DeviceIndex home = GetParam().home_on_host ? rig.host() : 0;
  const DeviceIndex away = GetParam().updates_on_host ? rig.host() : 1;
  const auto state = MakeState("P", {2, 2}, 3);
  GraphBuilder b;
  const TensorId p0 = Must(b.Use(state, 1));
  const TensorId before = Must(b.Add(ops::kScale, {p0}, {{ops::kScaleFactor, 1}}, "before"));
  const TensorId p1 = Must(b.Add(kScaleState, {p0}, {{0, 3}}, "triple"));
  const TensorId p2 = Must(b.Add(kScaleState, {p1}, {{0, 5}}, "times five"));
  const TensorId there = Must(b.Add(ops::kScale, {p2}, {{ops::kScaleFactor, 1}}, "there"));
  const TensorId back = Must(b.Add(ops::kScale, {p2}, {{ops::kScaleFactor, 1}}, "back"));
  for (const TensorId id : {before, there, back, p2}) Must(b.Output(id));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, graph,
                              Pins(*graph, {{"before", home},
                                            {"triple", away},
                                            {"times five", away},
                                            {"there", away},
                                            {"back", home}}),
                              {{.pattern = "^P$", .device = home}});
  const std::vector<float> start = {1, 2, 3, 4};
  Must(scheduler->WriteState(*state, 1, BytesOf(start)));
  float factor = 1;
  for (int run = 0; run < 3; ++run, factor *= 15) {
    Must(scheduler->Run(g, {}));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(Floats(Must(scheduler->Output(g, before)))[i], start[i] * factor);
      EXPECT_EQ(Floats(Must(scheduler->Output(g, there)))[i], start[i] * factor * 15);
      EXPECT_EQ(Floats(Must(scheduler->Output(g, back)))[i], start[i] * factor * 15);
      EXPECT_EQ(Floats(Must(scheduler->Output(g, p2)))[i], start[i] * factor * 15);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Homes, FieldCase14,
                         testing::Values(Away{true, false}, Away{false, true}, Away{false, false},
                                         Away{true, true}));

TEST(FieldCase14, UnsupportedThereRunsOnTheHostAndSaysWhy) {
  SimOptions options = Sim("a");
  options.unsupported = {"scale_state"};
  const Rig rig({options});
  const auto state = MakeState("P", {2, 2});
  GraphBuilder b;
  const TensorId p1 = Must(b.Add(kScaleState, {Must(b.Use(state, 0))}, {{0, 3}}, "triple"));
  Must(b.Output(p1));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g =
      Ready(*scheduler, graph, Pins(*graph, {{"triple", 0}}), {{.pattern = "^P$", .device = 0}});
  const std::vector<float> start = {1, 2, 3, 4};
  Must(scheduler->WriteState(*state, 0, BytesOf(start)));
  Must(scheduler->Run(g, {}));
  EXPECT_EQ(Floats(Must(scheduler->Output(g, p1))), (std::vector<float>{3, 6, 9, 12}));
  std::vector<float> kept(4);
  Must(scheduler->ReadState(*state, 0, std::as_writable_bytes(std::span<float>(kept))));
  EXPECT_EQ(kept, (std::vector<float>{3, 6, 9, 12}));
  EXPECT_NE(scheduler->plan(g, 0).placement[0].reason.find("declines scale_state"),
            std::string::npos);
}

TEST(FieldCase14, UnsupportedEverywhereNamesOpAndDevices) {
  SimOptions options = Sim("a");
  options.unsupported = {"nobody_has_this"};
  const Rig rig({options});
  OpDefinition op = kScaleState;
  op.name = "nobody_has_this";
  op.reference = nullptr;
  const auto state = MakeState("P", {2, 2});
  GraphBuilder b;
  Must(b.Output(Must(b.Add(op, {Must(b.Use(state, 0))}, {{0, 3}}, "triple"))));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  Must(scheduler->Add(
      {.name = "g", .graph = graph, .boxes = {}, .node_pins = {}, .pattern_pins = {}}));
  const Result<void> reserved = scheduler->Reserve();
  ASSERT_FALSE(reserved);
  for (const char* word : {"triple", "nobody_has_this", "sim:a", "cpu:0"})
    EXPECT_NE(reserved.error().message.find(word), std::string::npos) << reserved.error().message;
}

TEST(FieldCase15, TheHostWaitsForWhatItReadsInPlace) {
  SimOptions options = Sim("a");
  options.host_readable = true;
  const Rig rig({options, Sim("b")});
  GraphBuilder b;
  const TensorId x = Must(b.Input("x", Type::kF32, {64, 64}));
  const TensorId w = b.Use(MakeConstant("w", {64, 64}, std::vector<float>(64 * 64, 1.0f)));
  const TensorId slow = Must(b.Add(ops::kMatmul, {x, w}, {{ops::kMatmulExact, 1}}, "slow"));
  const TensorId quick = Must(b.Add(ops::kScale, {x}, {{ops::kScaleFactor, 2}}, "quick"));
  const TensorId sum = Must(b.Add(ops::kAdd, {slow, quick}, {}, "sum"));
  Must(b.Output(sum));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g =
      Ready(*scheduler, graph, Pins(*graph, {{"slow", 0}, {"quick", 0}, {"sum", rig.host()}}));
  for (const Copy& copy : scheduler->plan(g, 0).copies) EXPECT_EQ(copy.cause, CopyCause::kInput);
  for (int run = 0; run < 50; ++run) {
    const std::vector<float> input(64 * 64, 1.0f + run);
    Must(scheduler->Run(g, {.symbols = {}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
    for (const float value : Floats(Must(scheduler->Output(g, sum))))
      ASSERT_EQ(value, 66 * (1.0f + run));
  }
}

TEST(FieldCase16, AColumnSliceMovesOnlyItsBytes) {
  const Rig rig({Sim("a")});
  GraphBuilder b;
  const Dim rows = b.Symbol("rows", 8);
  const TensorId x = Must(b.Input("x", Type::kF32, {rows, 4096}));
  const TensorId y = Must(b.Add(ops::kScale, {x}, {{ops::kScaleFactor, 2}}, "y"));
  const TensorId slice = Must(b.Slice(y, 1, 100, 16));
  const TensorId z = Must(b.Add(ops::kScale, {slice}, {{ops::kScaleFactor, 3}}, "z"));
  Must(b.Output(z));
  const auto graph = Must(std::move(b).Build());
  auto scheduler = rig.MakeScheduler();
  const GraphHandle g = Ready(*scheduler, graph, Pins(*graph, {{"y", rig.host()}, {"z", 0}}));
  std::vector<float> input(5 * 4096);
  std::iota(input.begin(), input.end(), 0.0f);
  const int64_t before = rig.devices[0]->counters().bytes_in;
  Must(scheduler->Run(g, {.symbols = {5}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
  const int64_t moved = rig.devices[0]->counters().bytes_in - before;
  EXPECT_LE(moved, 5 * 16 * 4 * 11 / 10);
  RecordProperty("bytes_moved_over_bytes_read", fmt::format("{:.3f}", moved / (5.0 * 16 * 4)));
  const auto out = Floats(Must(scheduler->Output(g, z)));
  for (size_t r = 0; r < 5; ++r)
    for (size_t c = 0; c < 16; ++c) EXPECT_EQ(out[r * 16 + c], 6 * input[r * 4096 + 100 + c]);
}

TEST(FieldCase16, ThreeSlicesOfOneTensorAreOneTransfer) {
  for (const int parts : {2, 3}) {  // All of it, or a dense part.
    const Rig rig({Sim("a")});
    GraphBuilder b;
    const Dim rows = b.Symbol("rows", 8);
    const TensorId x = Must(b.Input("x", Type::kF32, {rows, 96}));
    const TensorId qkv = Must(b.Add(ops::kScale, {x}, {{ops::kScaleFactor, 2}}, "qkv"));
    TensorId sum = kNone;
    std::vector<std::pair<std::string, DeviceIndex>> pins = {{"qkv", rig.host()}};
    for (int i = 3 - parts; i < 3; ++i) {
      const TensorId slice = Must(b.Slice(qkv, 1, 32 * i, 32));
      const std::string name = fmt::format("part{}", i);
      const TensorId part = Must(b.Add(ops::kScale, {slice}, {{ops::kScaleFactor, 1.0 + i}}, name));
      pins.push_back({name, 0});
      if (sum == kNone) {
        sum = part;
      } else {
        sum = Must(b.Add(ops::kAdd, {sum, part}, {}, name + " sum"));
        pins.push_back({name + " sum", 0});
      }
    }
    Must(b.Output(sum));
    const auto graph = Must(std::move(b).Build());
    auto scheduler = rig.MakeScheduler();
    const GraphHandle g = Ready(*scheduler, graph, Pins(*graph, pins));
    int activations = 0;
    for (const Copy& copy : scheduler->plan(g, 0).copies)
      activations += copy.cause == CopyCause::kActivation;
    EXPECT_EQ(activations, 1);
    std::vector<float> input(7 * 96);
    std::iota(input.begin(), input.end(), 0.0f);
    const int64_t before = rig.devices[0]->counters().bytes_in;
    Must(scheduler->Run(g, {.symbols = {7}, .inputs = {{x, BytesOf(input)}}, .stop = {}}));
    EXPECT_EQ(rig.devices[0]->counters().bytes_in - before, 7 * 32 * parts * 4);
    const auto out = Floats(Must(scheduler->Output(g, sum)));
    for (size_t r = 0; r < 7; ++r)
      for (size_t c = 0; c < 32; ++c) {
        float expected = 0;
        for (int i = 3 - parts; i < 3; ++i) expected += 2 * (1.0f + i) * input[r * 96 + 32 * i + c];
        EXPECT_EQ(out[r * 32 + c], expected);
      }
  }
}

}  // namespace
}  // namespace tandem
