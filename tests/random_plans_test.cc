// Random graphs on random devices against the same on one device, bit for bit; and plans that were
// made wrong on purpose, which the validator must refuse.
//
// TANDEM_SEED repeats one seed; TANDEM_LONG=1 tries many more.

#include <cstdlib>
#include <random>

#include "scheduler/make_plan.h"
#include "scheduler/validate.h"
#include "tests/rig.h"

namespace tandem {
namespace {

using namespace testing_rig;  // NOLINT: the rig is for tests only.

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int Below(int n) { return static_cast<int>(engine_() % static_cast<uint32_t>(n)); }
  bool OneIn(int n) { return Below(n) == 0; }
  float Value() { return static_cast<float>(Below(2001) - 1000) / 500; }

 private:
  std::mt19937 engine_;
};

struct RandomGraph {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const State> state;
  TensorId x = kNone, ids = kNone;
};

constexpr int64_t kWidth = 16, kRows = 6;

// All values are [rows, kWidth], or [kRows, kWidth] where they come from the state.
RandomGraph MakeRandomGraph(Dice& dice) {
  RandomGraph made;
  GraphBuilder b;
  const Dim rows = b.Symbol("rows", kRows);
  made.x = Must(b.Input("x", Type::kF32, {rows, kWidth}));
  made.ids = Must(b.Input("ids", Type::kI32, {rows}));
  made.state = MakeState("s", {kRows, kWidth}, 2);
  std::vector<float> weights(kWidth * kWidth);
  for (float& w : weights) w = dice.Value() / 4;
  const TensorId w = b.Use(MakeConstant("w", {kWidth, kWidth}, weights));
  std::vector<TensorId> values = {made.x};
  std::vector<TensorId> slices = {Must(b.Use(made.state, 0)), Must(b.Use(made.state, 1))};
  const auto any = [&] { return values[dice.Below(static_cast<int>(values.size()))]; };
  const int count = 5 + dice.Below(40);
  for (int i = 0; i < count; ++i) {
    const TensorId a = any();
    switch (dice.Below(9)) {
      case 0:
        values.push_back(Must(b.Add(ops::kAdd, {a, any()})));
        break;
      case 1:
        values.push_back(Must(b.Add(ops::kScale, {a}, {{ops::kScaleFactor, 0.5 + dice.Below(2)}})));
        break;
      case 2:
        values.push_back(Must(b.Add(ops::kMatmul, {a, w}, {{ops::kMatmulExact, 1}})));
        break;
      case 3:
        values.push_back(Must(b.Add(ops::kRmsNorm, {a})));
        break;
      case 4:
        values.push_back(Must(b.Add(ops::kSwiglu, {a, any()})));
        break;
      case 5: {  // Two halves, exchanged: views of one tensor on their way to a reader.
        const TensorId left = Must(b.Slice(a, 1, 0, kWidth / 2));
        const TensorId right = Must(b.Slice(a, 1, kWidth / 2, kWidth / 2));
        const TensorId sum = Must(b.Add(ops::kAdd, {right, left}));
        const TensorId wide = Must(b.Reshape(sum, {rows, kWidth / 2, 1}));
        const TensorId w_half = Must(b.Slice(w, 1, 0, kWidth / 2));
        values.push_back(
            Must(b.Add(ops::kMatmul, {Must(b.Reshape(wide, {rows, kWidth / 2})), w_half},
                       {{ops::kMatmulExact, 1}})));
        break;
      }
      case 6: {  // Through a transposition and back.
        const TensorId turned = Must(b.Permute(a, {1, 0}));
        const TensorId packed = Must(b.Add(ops::kCopy, {turned}));
        values.push_back(Must(b.Add(ops::kCopy, {Must(b.Permute(packed, {1, 0}))})));
        break;
      }
      case 7: {  // A new version of a slice, then rows of it.
        TensorId& slice = slices[static_cast<size_t>(dice.Below(2))];
        slice = Must(b.Add(ops::kUpdateRows, {slice, a, made.ids}));
        values.push_back(Must(b.Add(ops::kRows, {slice, made.ids})));
        break;
      }
      default: {  // The state as it is now.
        const TensorId slice = slices[static_cast<size_t>(dice.Below(2))];
        values.push_back(Must(b.Add(ops::kRows, {slice, made.ids})));
        break;
      }
    }
  }
  Must(b.Output(values.back()));
  for (int i = dice.Below(4); i > 0; --i) Must(b.Output(any()));
  if (dice.OneIn(3)) Must(b.Output(slices[0]));
  made.graph = Must(std::move(b).Build());
  return made;
}

SimOptions RandomSim(Dice& dice, const char* name) {
  SimOptions options = Sim(name);
  options.declines_copies = dice.OneIn(2);
  options.waits_for_others = !dice.OneIn(4);
  options.host_readable = dice.OneIn(4);
  options.reads_host = dice.OneIn(4);
  options.packs_weights = dice.OneIn(3);
  options.scratch = dice.OneIn(3) ? 100 : 0;
  options.alignment = int64_t{1} << (3 + dice.Below(5));
  if (dice.OneIn(4)) options.largest_buffer = 2048;
  return options;
}

std::vector<NodePin> RandomPins(const Graph& graph, Dice& dice, int devices) {
  std::vector<NodePin> pins;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n)
    pins.push_back({.node = n,
                    .device = dice.Below(devices),
                    .is_preference = false,
                    .why = "thrown by dice"});
  return pins;
}

using Outputs = std::vector<std::vector<float>>;

// Three runs at other sizes; states go on from one to the next.
Outputs RunThrice(Scheduler& scheduler, const RandomGraph& made, std::vector<NodePin> pins,
                  uint32_t seed) {
  const GraphHandle g = Ready(scheduler, made.graph, std::move(pins));
  Dice dice(seed);
  Outputs outputs;
  for (int run = 0; run < 3; ++run) {
    const int64_t rows = dice.Below(kRows + 1);
    std::vector<float> x(static_cast<size_t>(rows * kWidth));
    for (float& value : x) value = dice.Value();
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i + run) % kRows);
    Must(scheduler.Run(g, {.symbols = {rows},
                           .inputs = {{made.x, BytesOf(x)}, {made.ids, BytesOf(ids)}},
                           .stop = {}}));
    for (const TensorId output : made.graph->outputs())
      outputs.push_back(Floats(Must(scheduler.Output(g, output))));
  }
  return outputs;
}

std::vector<uint32_t> Seeds(int usual, int many) {
  if (const char* seed = std::getenv("TANDEM_SEED"))
    return {static_cast<uint32_t>(std::strtoul(seed, nullptr, 10))};
  std::vector<uint32_t> seeds(
      static_cast<size_t>(std::getenv("TANDEM_LONG") != nullptr ? many : usual));
  for (size_t i = 0; i < seeds.size(); ++i) seeds[i] = static_cast<uint32_t>(i + 1);
  return seeds;
}

TEST(RandomPlans, EqualOneDeviceBitForBit) {
  for (const uint32_t seed : Seeds(300, 20000)) {
    SCOPED_TRACE(fmt::format("TANDEM_SEED={}", seed));
    Dice dice(seed);
    const RandomGraph made = MakeRandomGraph(dice);
    const Rig one({Sim("one")});
    const auto single = one.MakeScheduler();
    const Outputs expected = RunThrice(*single, made, RandomPins(*made.graph, dice, 1), seed);
    const Rig three({RandomSim(dice, "a"), RandomSim(dice, "b"), RandomSim(dice, "c")});
    const std::vector<NodePin> pins = RandomPins(*made.graph, dice, 3);
    for (const bool reuse : {true, false}) {
      const auto scheduler = three.MakeScheduler({.reuse_memory = reuse, .budgets = {}});
      const Outputs outputs = RunThrice(*scheduler, made, pins, seed);
      ASSERT_EQ(outputs.size(), expected.size());
      for (size_t i = 0; i < outputs.size(); ++i) ASSERT_EQ(outputs[i], expected[i]) << i;
    }
  }
}

// Plans over three plain devices, with waits between their streams.
struct Planned {
  Rig rig{{Sim("a"), Sim("b"), Sim("c")}};
  Machine machine;
  std::shared_ptr<const Plan> plan;

  explicit Planned(uint32_t seed) {
    Dice dice(seed);
    const RandomGraph made = MakeRandomGraph(dice);
    machine = Must(MakeMachine(rig.devices));
    GraphSpec spec;
    spec.name = "random";
    spec.graph = made.graph;
    spec.node_pins = RandomPins(*made.graph, dice, 3);
    StateHomes homes;
    plan = Must(MakePlan(machine, spec, {"all", {{0, kRows}}}, {}, homes));
  }
};

TEST(WrongPlans, WithoutAnyOneWaitIsRefused) {
  int removed = 0;
  for (const uint32_t seed : Seeds(60, 2000)) {
    SCOPED_TRACE(fmt::format("TANDEM_SEED={}", seed));
    const Planned planned(seed);
    for (size_t s = 0; s < planned.plan->steps.size(); ++s)
      for (size_t w = 0; w < planned.plan->steps[s].waits.size(); ++w, ++removed) {
        Plan wrong = *planned.plan;
        wrong.steps[s].waits.erase(wrong.steps[s].waits.begin() + static_cast<std::ptrdiff_t>(w));
        ASSERT_FALSE(ValidatePlan(planned.machine, wrong)) << "step " << s << " wait " << w;
      }
    for (size_t f = 0; f < planned.plan->final_steps.size(); ++f) {
      Plan wrong = *planned.plan;
      wrong.final_steps.erase(wrong.final_steps.begin() + static_cast<std::ptrdiff_t>(f));
      ASSERT_FALSE(ValidatePlan(planned.machine, wrong)) << "final step " << f;
    }
  }
  EXPECT_GT(removed, 100);
}

TEST(WrongPlans, WithoutACopyOrANodeIsRefused) {
  for (const uint32_t seed : Seeds(40, 500)) {
    SCOPED_TRACE(fmt::format("TANDEM_SEED={}", seed));
    const Planned planned(seed);
    for (size_t s = 0; s < planned.plan->steps.size(); ++s) {
      Plan wrong = *planned.plan;
      Step& step = wrong.steps[s];
      if (step.copy != kNone) {
        // Done twice, in place of another: what the other should have brought is missing.
        const int32_t other = (step.copy + 1) % static_cast<int32_t>(wrong.copies.size());
        if (other == step.copy) continue;
        step.copy = other;
      } else {
        wrong.splits[step.split].count -= 1;
      }
      ASSERT_FALSE(ValidatePlan(planned.machine, wrong)) << "step " << s;
    }
  }
}

TEST(WrongPlans, WithAnOffsetOnALiveTensorIsRefused) {
  int moved = 0, refused = 0;
  for (const uint32_t seed : Seeds(40, 500)) {
    const Planned planned(seed);
    // The output of the first node, moved onto the input that the same node reads.
    for (const NodeId node : planned.plan->order) {
      const Operand& output = planned.plan->Output(node);
      for (const Operand& input : planned.plan->Inputs(node)) {
        if (input.tensor == kNone || input.replica == output.replica) continue;
        const Replica& from = planned.plan->replicas[input.replica];
        const Replica& to = planned.plan->replicas[output.replica];
        if (from.kind != ReplicaKind::kArena || to.kind != ReplicaKind::kArena ||
            from.memory != to.memory || to.bytes > from.bytes)
          continue;
        Plan wrong = *planned.plan;
        wrong.replicas[output.replica].chunk = from.chunk;
        wrong.replicas[output.replica].offset = from.offset;
        ++moved;
        refused += !ValidatePlan(planned.machine, wrong);
      }
    }
  }
  EXPECT_GT(moved, 50);
  EXPECT_EQ(refused, moved);
}

TEST(WrongPlans, OfEachOtherKindAreRefused) {
  const Planned planned(7);
  const Plan& good = *planned.plan;
  EXPECT_TRUE(ValidatePlan(planned.machine, good));
  const auto refused = [&](const std::function<void(Plan&)>& spoil) {
    Plan wrong = good;
    spoil(wrong);
    return !ValidatePlan(planned.machine, wrong);
  };
  ReplicaId arena = kNone;
  for (size_t r = 0; r < good.replicas.size(); ++r)
    if (good.replicas[r].kind == ReplicaKind::kArena && good.replicas[r].bytes > 0)
      arena = static_cast<ReplicaId>(r);
  ASSERT_NE(arena, kNone);
  EXPECT_TRUE(refused([&](Plan& p) { p.replicas[arena].offset += 1; })) << "not aligned";
  EXPECT_TRUE(refused([&](Plan& p) { p.replicas[arena].offset = int64_t{1} << 40; })) << "outside";
  EXPECT_TRUE(refused([&](Plan& p) { p.replicas[arena].chunk = 9; })) << "no such chunk";
  EXPECT_TRUE(refused([&](Plan& p) { p.outputs.pop_back(); })) << "an output is missing";
  EXPECT_TRUE(refused([&](Plan& p) { p.steps.back().records = false; })) << "nothing recorded";
  EXPECT_TRUE(refused([&](Plan& p) { p.arenas.pop_back(); })) << "an arena is missing";
  EXPECT_TRUE(refused([&](Plan& p) {
    for (Step& step : p.steps)
      if (step.split != kNone) step.stream = (step.stream + 1) % 3;
  })) << "another device's stream";
}

}  // namespace
}  // namespace tandem
