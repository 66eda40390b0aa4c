// Shape rules of the built-in ops as the builder applies them, and ops of a user's own.
#include "graph/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/builder.h"
#include "graph/testing_tensors.h"

namespace tandem {
namespace {

struct Given {
  Type type = Type::kF32;
  Shape shape;
};
constexpr int kAbsentRank = -7;
const Given kNotGiven = [] {
  Given given;
  given.shape.rank = kAbsentRank;
  return given;
}();

// What an op makes of inputs i0, i1, ... . The symbols n and m stand for Dim::Of(0) and Dim::Of(1).
Result<Given> Infer(const OpDefinition& op, const std::vector<Given>& inputs,
                    std::initializer_list<Attribute> attributes = {}) {
  GraphBuilder b;
  b.Symbol("n", 8);
  b.Symbol("m", 8);
  std::vector<TensorId> ids;
  for (const Given& given : inputs) {
    if (given.shape.rank == kAbsentRank) {
      ids.push_back(kNone);
      continue;
    }
    TANDEM_ASSIGN(const TensorId id,
                  b.Input(fmt::format("i{}", ids.size()), given.type, given.shape));
    ids.push_back(id);
  }
  ids.resize(4, kNone);
  const auto add = [&] {
    switch (inputs.size()) {
      case 1:
        return b.Add(op, {ids[0]}, attributes, "node");
      case 2:
        return b.Add(op, {ids[0], ids[1]}, attributes, "node");
      case 3:
        return b.Add(op, {ids[0], ids[1], ids[2]}, attributes, "node");
      default:
        return b.Add(op, {ids[0], ids[1], ids[2], ids[3]}, attributes, "node");
    }
  };
  TANDEM_ASSIGN(const TensorId out, add());
  return Given{b.tensor(out).type, b.tensor(out).shape};
}

void ExpectMakes(const Result<Given>& made, Type type, const Shape& shape) {
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(Info(made->type).name, Info(type).name);
  EXPECT_EQ(made->shape, shape) << ToString(made->shape, {}) << " " << ToString(shape, {});
}
void ExpectRefused(const Result<Given>& made, std::initializer_list<std::string_view> words) {
  ASSERT_FALSE(made.has_value()) << "expected " << *words.begin();
  EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
  for (const std::string_view word : words)
    EXPECT_NE(made.error().message.find(word), std::string::npos)
        << word << " in: " << made.error().message;
}

const Dim kN = Dim::Of(0), kM = Dim::Of(1);
constexpr Type kF32 = Type::kF32, kF16 = Type::kF16, kI32 = Type::kI32;

TEST(Ops, AreListedOnceAndComplete) {
  std::set<std::string_view> names;
  for (const OpDefinition* op : ops::All()) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_NE(op->reference, nullptr) << op->name;
    EXPECT_NE(op->cost, nullptr) << op->name;
    EXPECT_LT(op->in_place_input, op->required_inputs) << op->name;
  }
  EXPECT_EQ(names.size(), 14u);
}

TEST(Matmul, Shapes) {
  const auto f32 = [](Shape s) { return Given{kF32, s}; };
  ExpectMakes(Infer(ops::kMatmul, {f32({kN, 64}), {Type::kQ4_1, {9, 64}}}), kF32, {kN, 9});
  ExpectMakes(Infer(ops::kMatmul, {f32({6, kN, 64}), {kF16, {2, kM, 64}}}), kF32, {6, kN, kM});
  ExpectMakes(Infer(ops::kMatmul, {f32({kN, 3, 64}), {kF16, {1, 5, 64}}}), kF32, {kN, 3, 5});
  ExpectMakes(Infer(ops::kMatmul, {f32({kN, 3, 64}), {kF16, {kN, 5, 64}}}), kF32, {kN, 3, 5});
  ExpectMakes(Infer(ops::kMatmul, {f32({0, 64}), {kF16, {5, 64}}}), kF32, {0, 5});
  ExpectRefused(Infer(ops::kMatmul, {f32({kN, 576}), {kF32, {192, 512}}}),
                {"matmul node: inner sizes differ", "x F32 [n, 576]", "w F32 [192, 512]"});
  ExpectRefused(Infer(ops::kMatmul, {f32({kN, kN}), {kF32, {3, kM}}}), {"inner sizes differ"});
  ExpectRefused(Infer(ops::kMatmul, {f32({4, 3, 64}), {kF32, {3, 5, 64}}}),
                {"batch sizes", "[4, 3, 64]", "[3, 5, 64]"});
  ExpectRefused(Infer(ops::kMatmul, {f32({kN, 3, 64}), {kF32, {2, 5, 64}}}), {"batch sizes"});
  ExpectRefused(Infer(ops::kMatmul, {f32({4, 3, 64}), {kF32, {0, 5, 64}}}), {"batch sizes"});
  ExpectRefused(Infer(ops::kMatmul, {f32({3, 64}), {kF32, {1, 5, 64}}}), {"more batch"});
  ExpectRefused(Infer(ops::kMatmul, {f32({64}), {kF32, {5, 64}}}), {"x", "rank"});
  ExpectRefused(Infer(ops::kMatmul, {f32({3, 64}), {kF32, {64}}}), {"w", "rank"});
  ExpectRefused(Infer(ops::kMatmul, {f32({3, 64}), {kI32, {5, 64}}}), {"w", "I32 [5, 64]"});
  ExpectRefused(Infer(ops::kMatmul, {{Type::kQ8_0, {3, 64}}, {kF32, {5, 64}}}),
                {"x", "Q8_0 [3, 64]", "F32"});
  ExpectRefused(Infer(ops::kMatmul, {{kF16, {3, 64}}, {kF32, {5, 64}}}), {"x", "F16", "F32"});
}

TEST(Rows, Shapes) {
  ExpectMakes(Infer(ops::kRows, {{Type::kQ8_0, {100, 64}}, {kI32, {kN}}}), kF32, {kN, 64});
  ExpectMakes(Infer(ops::kRows, {{kF16, {100, 64}}, {Type::kI64, {2, 3, kN}}}), kF32,
              {2, 3, kN, 64});
  ExpectMakes(Infer(ops::kRows, {{kF16, {100, 64}}, {kI32, {}}}), kF32, {64});
  ExpectRefused(Infer(ops::kRows, {{kF16, {100, 64}}, {kF32, {kN}}}), {"rows node", "ids", "F32"});
  ExpectRefused(Infer(ops::kRows, {{kI32, {100, 64}}, {kI32, {kN}}}), {"table", "I32"});
  ExpectRefused(Infer(ops::kRows, {{kF32, {100}}, {kI32, {kN}}}), {"table", "rank 2"});
  ExpectRefused(Infer(ops::kRows, {{kF32, {100, 64}}, {kI32, {1, 1, 1, 1}}}), {"ids", "rank"});
}

TEST(RmsNorm, Shapes) {
  ExpectMakes(Infer(ops::kRmsNorm, {{kF32, {kN, 64}}}), kF32, {kN, 64});
  ExpectMakes(Infer(ops::kRmsNorm, {{kF32, {kN, 64}}, {kF32, {64}}}), kF32, {kN, 64});
  ExpectRefused(Infer(ops::kRmsNorm, {{kF32, {kN, 64}}, {kF32, {63}}}),
                {"rms_norm node", "[63]", "[n, 64]"});
  ExpectRefused(Infer(ops::kRmsNorm, {{kF32, {kN, 64}}, {kF16, {64}}}), {"weight", "F16"});
  ExpectRefused(Infer(ops::kRmsNorm, {{Type::kQ4_0, {kN, 64}}}), {"x", "Q4_0"});
  ExpectRefused(Infer(ops::kRmsNorm, {{kF32, {}}}), {"x", "rank"});
}

TEST(Rope, Shapes) {
  const Given x{kF32, {kN, 9, 64}}, positions{kI32, {kN}};
  ExpectMakes(Infer(ops::kRope, {x, positions}), kF32, {kN, 9, 64});
  ExpectMakes(Infer(ops::kRope, {x, positions, {kF32, {16}}}, {{ops::kRopeDims, 32}}), kF32,
              {kN, 9, 64});
  ExpectRefused(Infer(ops::kRope, {x, {kI32, {kM}}}), {"rope node", "[m]", "[n, 9, 64]"});
  ExpectRefused(Infer(ops::kRope, {x, {Type::kI64, {kN}}}), {"positions", "I64"});
  ExpectRefused(Infer(ops::kRope, {{kF32, {kN, 64}}, positions}), {"x", "rank 3"});
  ExpectRefused(Infer(ops::kRope, {x, positions, {kF32, {31}}}), {"factors", "[31]", "32"});
  ExpectRefused(Infer(ops::kRope, {{kF32, {kN, 9, 63}}, positions}), {"63"});
  ExpectRefused(Infer(ops::kRope, {{kF32, {kN, 9, kM}}, positions}), {"constant"});
  for (const double bad : {66.0, 3.0, -2.0, 2.5, std::nan("")})
    ExpectRefused(Infer(ops::kRope, {x, positions}, {{ops::kRopeDims, bad}}), {"rotate"});
  ExpectRefused(Infer(ops::kRope, {x, positions}, {{ops::kRopeBase, 0}}), {"base 0"});
  ExpectRefused(Infer(ops::kRope, {x, positions}, {{ops::kRopeScale, INFINITY}}), {"scale inf"});
}

TEST(Softmax, Shapes) {
  const Given x{kF32, {2, kN, kM}};
  ExpectMakes(Infer(ops::kSoftmax, {x}), kF32, {2, kN, kM});
  ExpectMakes(Infer(ops::kSoftmax, {x, {kF32, {kN, kM}}}), kF32, {2, kN, kM});
  ExpectRefused(Infer(ops::kSoftmax, {x, {kF32, {kM, kN}}}), {"softmax node", "[m, n]"});
  ExpectRefused(Infer(ops::kSoftmax, {{kF32, {4}}, {kF32, {4}}}), {"mask"});
  ExpectRefused(Infer(ops::kSoftmax, {{kI32, {4}}}), {"I32"});
}

TEST(Attention, Shapes) {
  const Given q{kF32, {kN, 9, 64}}, k{kF16, {kM, 3, 64}}, v{kF16, {kM, 3, 32}};
  ExpectMakes(Infer(ops::kAttention, {q, k, v}), kF32, {kN, 9, 32});
  ExpectMakes(Infer(ops::kAttention, {q, k, v, {kI32, {kN}}}), kF32, {kN, 9, 32});
  ExpectRefused(Infer(ops::kAttention, {q, {kF16, {kM, 3, 32}}, v}),
                {"attention node", "[n, 9, 64]", "[m, 3, 32]"});
  ExpectRefused(Infer(ops::kAttention, {q, k, {kF16, {kN, 3, 32}}}), {"other sizes"});
  ExpectRefused(Infer(ops::kAttention, {q, k, {kF16, {kM, 9, 32}}}), {"other sizes"});
  ExpectRefused(Infer(ops::kAttention, {q, {kF16, {kM, 2, 64}}, {kF16, {kM, 2, 32}}}),
                {"groups", "[m, 2, 64]"});
  ExpectRefused(Infer(ops::kAttention, {q, {kF16, {kM, 0, 64}}, {kF16, {kM, 0, 32}}}), {"groups"});
  ExpectRefused(Infer(ops::kAttention, {q, {Type::kQ8_0, {kM, 3, 64}}, v}), {"k", "Q8_0"});
  ExpectRefused(Infer(ops::kAttention, {q, k, v, {kI32, {kM}}}), {"positions", "[m]"});
  ExpectRefused(Infer(ops::kAttention, {{kF16, {kN, 9, 64}}, k, v}), {"q", "F16"});
  ExpectRefused(Infer(ops::kAttention, {{kF32, {9, 64}}, k, v}), {"q", "rank 3"});
}

TEST(Elementwise, Shapes) {
  const Given x{kF32, {kN, 3, 4}};
  for (const OpDefinition* op : {&ops::kSilu, &ops::kScale}) {
    ExpectMakes(Infer(*op, {x}), kF32, {kN, 3, 4});
    ExpectMakes(Infer(*op, {{kF32, {}}}), kF32, {});
    ExpectRefused(Infer(*op, {{kF16, {4}}}), {op->name, "F16"});
  }
  for (const OpDefinition* op : {&ops::kAdd, &ops::kMul}) {
    for (const Shape& b : {Shape{kN, 3, 4}, Shape{3, 4}, Shape{4}, Shape{}, Shape{1}, Shape{3, 1},
                           Shape{kN, 1, 4}, Shape{1, 1, 1}})
      ExpectMakes(Infer(*op, {x, {kF32, b}}), kF32, {kN, 3, 4});
    for (const Shape& b : {Shape{kM, 3, 4}, Shape{3}, Shape{1, 1, 1, 1}, Shape{kN, 4, 3},
                           Shape{Dim::Of(0, 2), 3, 4}, Shape{0}})
      ExpectRefused(Infer(*op, {x, {kF32, b}}), {op->name, "[n, 3, 4]", "does not broadcast"});
    // Only the second broadcasts.
    ExpectRefused(Infer(*op, {{kF32, {4}}, x}), {"[n, 3, 4]", "[4]"});
    ExpectRefused(Infer(*op, {x, {kI32, {4}}}), {"b", "I32"});
  }
  ExpectMakes(Infer(ops::kSwiglu, {x, x}), kF32, {kN, 3, 4});
  ExpectRefused(Infer(ops::kSwiglu, {x, {kF32, {4}}}), {"swiglu node", "[n, 3, 4]", "[4]"});
}

TEST(Copy, Shapes) {
  ExpectMakes(Infer(ops::kCopy, {{kF16, {kN, 3}}}), kF16, {kN, 3});
  ExpectMakes(
      Infer(ops::kCopy, {{kF16, {kN, 3}}}, {{ops::kCopyType, static_cast<double>(Type::kBF16)}}),
      Type::kBF16, {kN, 3});
  for (const double bad : {static_cast<double>(Type::kQ4_0), static_cast<double>(kI32), 8.0, 99.0,
                           -2.0, 0.5, std::nan("")})
    ExpectRefused(Infer(ops::kCopy, {{kF32, {4}}}, {{ops::kCopyType, bad}}), {"copy node", "type"});
  ExpectRefused(Infer(ops::kCopy, {{Type::kQ4_0, {32}}}), {"Q4_0"});
}

TEST(Argmax, Shapes) {
  ExpectMakes(Infer(ops::kArgmax, {{kF32, {kN, 100}}}), kI32, {kN});
  ExpectMakes(Infer(ops::kArgmax, {{kF32, {100}}}), kI32, {});
  ExpectRefused(Infer(ops::kArgmax, {{kF32, {}}}), {"argmax node", "rank"});
  ExpectRefused(Infer(ops::kArgmax, {{kF16, {4}}}), {"F16"});
}

TEST(UpdateRows, Shapes) {
  const auto update = [](Type type, std::vector<int64_t> dims, Given rows, Given ids) {
    GraphBuilder b;
    b.Symbol("n", 8);
    auto state = std::make_shared<State>();
    state->name = "cache";
    state->type = type;
    state->dims = std::move(dims);
    const TensorId s = *b.Use(std::shared_ptr<const State>(state), 0);
    const TensorId r = *b.Input("rows", rows.type, rows.shape);
    const TensorId i = *b.Input("ids", ids.type, ids.shape);
    return b.Add(ops::kUpdateRows, {s, r, i}, {}, "node").map([&](TensorId id) {
      return Given{b.tensor(id).type, b.tensor(id).shape};
    });
  };
  ExpectMakes(update(kF16, {16, 3, 4}, {kF32, {kN, 3, 4}}, {kI32, {kN}}), kF16, {16, 3, 4});
  ExpectMakes(update(kF32, {16}, {kF32, {kN}}, {Type::kI64, {kN}}), kF32, {16});
  ExpectRefused(update(kF16, {16, 3, 4}, {kF32, {kN, 12}}, {kI32, {kN}}),
                {"update_rows node", "[n, 12]", "[16, 3, 4]"});
  ExpectRefused(update(kF16, {16, 4}, {kF32, {kN, 4}}, {kI32, {4}}), {"[n, 4]", "[4]"});
  ExpectRefused(update(kF16, {16, 4}, {kF32, {kN, 4}}, {kF32, {kN}}), {"ids", "F32"});
  ExpectRefused(update(kF16, {16, 4}, {kI32, {kN, 4}}, {kI32, {kN}}), {"rows", "I32"});
  ExpectRefused(update(kI32, {16, 4}, {kF32, {kN, 4}}, {kI32, {kN}}), {"state", "I32"});
}

// Weights in blocks: nothing but matmul and rows takes them.
TEST(Ops, BlockTypesAreWeightsOnly) {
  for (const OpDefinition* op : ops::All()) {
    const auto inputs = static_cast<size_t>(op->required_inputs);
    for (size_t blocked = 0; blocked < inputs; ++blocked) {
      if ((op == &ops::kMatmul && blocked == 1) || (op == &ops::kRows && blocked == 0)) continue;
      std::vector<Given> given(inputs, Given{kF32, {2, 2, 32}});
      given[blocked].type = Type::kQ4_1;
      EXPECT_FALSE(Infer(*op, given)) << op->name << " " << blocked;
    }
  }
}

// A user's own op: the running sum of each row, kept in a state that it halves first.
Result<OpOutput> InferLikeState(const InferenceContext& c) {
  if (c.inputs[0].shape != c.inputs[1].shape)
    return Fail(ErrorCode::kInvalid, "sizes differ: {} and {}",
                ToString(c.inputs[0].shape, c.symbols), ToString(c.inputs[1].shape, c.symbols));
  return OpOutput{c.inputs[0].type, c.inputs[0].shape};
}
Result<void> Decay(std::span<const HostTensor> inputs, const HostTensor& output,
                   std::span<const double> attributes) {
  for (int64_t i = 0; i < output.layout.Elements(); ++i) {
    double old, added;
    Info(kF32).decode(inputs[0].data + 4 * i, 1, &old);
    Info(kF32).decode(inputs[1].data + 4 * i, 1, &added);
    const double next = old * attributes[0] + added;
    Info(kF32).encode(&next, 1, output.data + 4 * i);
  }
  return {};
}
constexpr AttributeSpec kDecayAttributes[] = {{"factor", 0.5}};
OpDefinition MakeDecay() {
  OpDefinition op;
  op.name = "decay";
  op.required_inputs = 2;
  op.attributes = kDecayAttributes;
  op.infer = InferLikeState;
  op.state_input = 0;
  op.reference = Decay;
  return op;
}

class UserOp : public testing::Test {
 protected:
  Result<TensorId> Add(const OpDefinition& op, const Shape& added = {4}) {
    TANDEM_ASSIGN(const TensorId s, b_.Use(std::shared_ptr<const State>(state_), 1));
    TANDEM_ASSIGN(const TensorId x, b_.Input("x", kF32, added));
    return b_.Add(op, {s, x}, {}, "node");
  }
  void ExpectError(const Result<TensorId>& result, std::string_view word) {
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find("decay node"), std::string::npos);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  }
  GraphBuilder b_;
  std::shared_ptr<State> state_ = [] {
    auto state = std::make_shared<State>();
    state->name = "sums";
    state->dims = {4};
    state->slices = 2;
    return state;
  }();
  OpDefinition op_ = MakeDecay();
};

TEST_F(UserOp, IsBuiltLikeAnyOther) {
  const Result<TensorId> next = Add(op_);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(b_.tensor(*next).version, 1);
  EXPECT_EQ(b_.tensor(*next).state, state_);
  ASSERT_TRUE(b_.Output(*next));
  const auto graph = std::move(b_).Build();
  ASSERT_TRUE(graph);
  const Node& node = (*graph)->node(0);
  EXPECT_EQ(node.op, &op_);
  EXPECT_EQ(node.attributes, std::vector<double>{0.5});
  testing_tensors::TestTensor sums(kF32, {4}), x(kF32, {4});
  sums.Set({2, 4, 6, 8});
  x.Set({1, 1, 2, 2});
  ASSERT_TRUE(node.op->reference(std::vector{sums.host(), x.host()}, sums.host(), node.attributes));
  EXPECT_EQ(sums.Values(), (std::vector<double>{2, 3, 5, 6}));
}

TEST_F(UserOp, ItsShapeRuleIsHeard) { ExpectError(Add(op_, {5}), "sizes differ: [4] and [5]"); }

TEST_F(UserOp, MustKeepTheStateAsItIs) {
  op_.infer = [](const InferenceContext&) -> Result<OpOutput> { return OpOutput{kF16, {4}}; };
  ExpectError(Add(op_), "makes F16 [4] of state");
}
TEST_F(UserOp, MustKeepWhatItOverwrites) {
  op_.state_input = -1;
  op_.in_place_input = 1;
  op_.infer = [](const InferenceContext&) -> Result<OpOutput> { return OpOutput{kF32, {2}}; };
  ExpectError(Add(op_), "makes F32 [2] in place of x F32 [4]");
}
TEST_F(UserOp, ResultsAreCheckedLikeInputs) {
  op_.state_input = -1;
  op_.infer = [](const InferenceContext&) -> Result<OpOutput> {
    return OpOutput{kF32, {1, 2, 3, 4, 5}};
  };
  const Result<TensorId> result = Add(op_);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("rank 5"), std::string::npos);
}
TEST_F(UserOp, DefinitionsThatCanNotBe) {
  std::vector<OpDefinition> wrong(5, op_);
  wrong[0].infer = nullptr;
  wrong[1].state_input = 2;
  wrong[2].in_place_input = 2;
  wrong[3].required_inputs = -1;
  wrong[4].optional_inputs = -1;
  for (const OpDefinition& op : wrong) {
    b_ = GraphBuilder();
    ExpectError(Add(op), "definition");
  }
}

}  // namespace
}  // namespace tandem
