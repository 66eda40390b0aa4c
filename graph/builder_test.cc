#include "graph/builder.h"

#include <gtest/gtest.h>

#include "graph/ops.h"

namespace tandem {
namespace {

std::shared_ptr<const Constant> MakeConstant(std::string name, Type type,
                                             std::vector<int64_t> dims) {
  auto constant = std::make_shared<Constant>();
  constant->name = std::move(name);
  constant->type = type;
  constant->dims = std::move(dims);
  return constant;
}
std::shared_ptr<const State> MakeState(std::string name, std::vector<int64_t> dims,
                                       int slices = 1) {
  auto state = std::make_shared<State>();
  state->name = std::move(name);
  state->dims = std::move(dims);
  state->slices = slices;
  return state;
}

// The message holds each of the words.
void ExpectError(const Error& error, std::initializer_list<std::string_view> words) {
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  for (const std::string_view word : words)
    EXPECT_NE(error.message.find(word), std::string::npos) << word << " in: " << error.message;
  EXPECT_EQ(error.message.find('\n'), std::string::npos);
}
template <class T>
void ExpectError(const Result<T>& result, std::initializer_list<std::string_view> words) {
  ASSERT_FALSE(result.has_value()) << "expected an error with " << *words.begin();
  ExpectError(result.error(), words);
}

TEST(Builder, AGraphKeepsWhatWasBuilt) {
  GraphBuilder b;
  const Dim tokens = b.Symbol("tokens", 512);
  const TensorId x = *b.Input("x", Type::kF32, {tokens, 576});
  const TensorId w = b.Use(MakeConstant("w", Type::kQ4_1, {192, 576}));
  const TensorId y = *b.Add(ops::kMatmul, {x, w}, {{ops::kMatmulExact, 1}}, "y");
  const TensorId z = *b.Add(ops::kSilu, {y});
  ASSERT_TRUE(b.Output(z));
  ASSERT_TRUE(b.Output(x));
  ASSERT_TRUE(b.Output(z));  // Twice is once.
  const auto graph = std::move(b).Build();
  ASSERT_TRUE(graph);
  const Graph& g = **graph;
  ASSERT_EQ(g.nodes().size(), 2u);
  EXPECT_EQ(g.node(0).op, &ops::kMatmul);
  EXPECT_EQ(g.node(0).attributes, std::vector<double>{1});
  EXPECT_EQ(g.node(0).inputs, (std::vector<TensorId>{x, w}));
  EXPECT_EQ(g.node(0).output, y);
  EXPECT_EQ(g.tensor(y).shape, (Shape{tokens, 192}));
  EXPECT_EQ(g.tensor(y).producer, 0);
  EXPECT_EQ(g.tensor(y).root, y);
  EXPECT_EQ(g.tensor(w).kind, TensorKind::kConstant);
  EXPECT_EQ(g.node(1).name, "silu_1");
  EXPECT_EQ(std::vector<TensorId>(g.outputs().begin(), g.outputs().end()),
            (std::vector<TensorId>{z, x}));
  EXPECT_EQ(std::vector<TensorId>(g.inputs().begin(), g.inputs().end()), std::vector<TensorId>{x});
  EXPECT_EQ(g.Find("y"), y);
  EXPECT_EQ(g.Find("no"), std::nullopt);
  EXPECT_EQ(g.FindSymbol("tokens"), tokens.symbol);
  EXPECT_EQ(g.FindSymbol("no"), std::nullopt);
  EXPECT_EQ(g.symbols()[0].upper, 512);
}

TEST(Builder, SymbolsAreOneForAName) {
  GraphBuilder b;
  const Dim a = b.Symbol("a", 4), c = b.Symbol("c", 4);
  EXPECT_EQ(b.Symbol("a", 9), a);
  EXPECT_EQ(b.Symbol("a", 2), a);
  EXPECT_FALSE(a == c);
  const auto graph = std::move(b).Build();
  EXPECT_EQ((*graph)->symbols()[0].upper, 9);
  EXPECT_EQ((*graph)->symbols()[1].upper, 4);
}

TEST(Builder, DimensionsAreEqualByStructureNotByBound) {
  GraphBuilder b;
  const Dim a = b.Symbol("a", 8), c = b.Symbol("c", 8);
  const TensorId x = *b.Input("x", Type::kF32, {a, 4});
  const TensorId y = *b.Input("y", Type::kF32, {c, 4});
  ExpectError(b.Add(ops::kAdd, {x, y}, {}, "sum"), {"add sum", "[a, 4]", "[c, 4]"});
}

TEST(Builder, EmptyGraphAndLeavesOnly) {
  const auto empty = GraphBuilder().Build();
  ASSERT_TRUE(empty);
  EXPECT_TRUE((*empty)->nodes().empty());
  EXPECT_TRUE((*empty)->tensors().empty());

  GraphBuilder b;  // Case 9: an output that is an input, a constant, a state, a view of one.
  const TensorId x = *b.Input("x", Type::kF32, {2, 3});
  const TensorId w = b.Use(MakeConstant("w", Type::kF32, {2}));
  const TensorId s = *b.Use(MakeState("s", {2}), 0);
  const TensorId column = *b.Slice(x, 1, 0, 1);
  for (const TensorId id : {x, w, s, column}) ASSERT_TRUE(b.Output(id));
  const auto graph = std::move(b).Build();
  ASSERT_TRUE(graph);
  EXPECT_TRUE((*graph)->nodes().empty());
  EXPECT_EQ((*graph)->outputs().size(), 4u);
}

// Case 10: sizes of zero, constant and by symbol, through ops and views.
TEST(Builder, ZeroSizesAreOrdinary) {
  GraphBuilder b;
  const Dim rows = b.Symbol("rows", 0);
  const TensorId x = *b.Input("x", Type::kF32, {rows, 4});
  const TensorId none = *b.Input("none", Type::kF32, {0, 4});
  const TensorId y = *b.Add(ops::kSilu, {x});
  const TensorId z = *b.Add(ops::kCopy, {*b.Slice(none, 0, 0, 0)});
  const TensorId p = *b.Permute(none, {1, 0});
  const TensorId r = *b.Reshape(p, {2, 0, 7});
  for (const TensorId id : {y, z, p, r}) ASSERT_TRUE(b.Output(id));
  const auto graph = std::move(b).Build();
  ASSERT_TRUE(graph) << graph.error().message;
  const std::vector<int64_t> symbols = {0};
  for (const Tensor& tensor : (*graph)->tensors()) {
    const Layout layout = Bind(tensor.type, tensor.shape, symbols);
    EXPECT_EQ(layout.Elements(), 0) << tensor.name;
    EXPECT_EQ(layout.SpanBytes(), 0) << tensor.name;
    EXPECT_EQ(layout.PackedBytes(), 0) << tensor.name;
    EXPECT_TRUE(layout.IsContiguous()) << tensor.name;
  }
}

TEST(Builder, ConstantsAndSlicesAreUsedOnce) {
  GraphBuilder b;
  const auto constant = MakeConstant("w", Type::kF32, {4});
  const auto state = MakeState("s", {4}, 2);
  EXPECT_EQ(b.Use(constant), b.Use(constant));
  EXPECT_NE(b.Use(constant), b.Use(MakeConstant("w", Type::kF32, {4})));
  EXPECT_EQ(*b.Use(state, 1), *b.Use(state, 1));
  EXPECT_NE(*b.Use(state, 0), *b.Use(state, 1));
}

TEST(Builder, TheFirstErrorSticks) {
  GraphBuilder b;
  const TensorId x = *b.Input("x", Type::kF32, {2, 576});
  const TensorId w = b.Use(MakeConstant("w", Type::kF32, {192, 512}));
  const Result<TensorId> first = b.Add(ops::kMatmul, {x, w}, {}, "blk.3.attn_q");
  ExpectError(first, {"matmul blk.3.attn_q: inner sizes differ", "[2, 576]", "[192, 512]"});
  const std::string message = first.error().message;
  const TensorId failed = first.value_or(kNone);
  EXPECT_EQ(b.Add(ops::kSilu, {failed}).error().message, message);
  EXPECT_EQ(b.Add(ops::kSilu, {x}).error().message, message);
  EXPECT_EQ(b.Input("y", Type::kF32, {2}).error().message, message);
  EXPECT_EQ(b.Slice(x, 0, 0, 1).error().message, message);
  EXPECT_EQ(b.Output(x).error().message, message);
  EXPECT_EQ(b.Use(MakeConstant("v", Type::kF32, {1})), kNone);
  EXPECT_EQ(std::move(b).Build().error().message, message);
}

TEST(Builder, NumbersOfInputsAndAttributes) {
  const auto failing = [](auto&& add) {
    GraphBuilder b;
    const TensorId x = *b.Input("x", Type::kF32, {2, 4});
    return add(b, x);
  };
  ExpectError(failing([](auto& b, TensorId x) { return b.Add(ops::kAdd, {x}, {}, "s"); }),
              {"add s", "1 inputs", "2"});
  ExpectError(failing([](auto& b, TensorId x) {
                return b.Add(ops::kSilu, {x, x}, {}, "s");
              }),
              {"silu s", "2 inputs"});
  ExpectError(failing([](auto& b, TensorId x) {
                return b.Add(ops::kAdd, {x, kNone}, {}, "s");
              }),
              {"add s", "tensor -1"});
  ExpectError(failing([](auto& b, TensorId) { return b.Add(ops::kSilu, {99}, {}, "s"); }),
              {"silu s", "tensor 99"});
  ExpectError(failing([](auto& b, TensorId x) {
                return b.Add(ops::kScale, {x}, {{2, 1.0}}, "s");
              }),
              {"scale s", "attribute 2"});
  ExpectError(failing([](auto& b, TensorId x) {
                return b.Add(ops::kScale, {x}, {{-1, 1.0}}, "s");
              }),
              {"scale s", "attribute -1"});
}

TEST(Builder, OptionalInputsMayBeAbsent) {
  GraphBuilder b;
  const TensorId x = *b.Input("x", Type::kF32, {2, 3, 4});
  const TensorId positions = *b.Input("positions", Type::kI32, {2});
  ASSERT_TRUE(b.Add(ops::kRope, {x, positions, kNone}));
  ASSERT_TRUE(b.Add(ops::kRope, {x, positions}));
  const auto graph = std::move(b).Build();
  for (const Node& node : (*graph)->nodes()) {
    EXPECT_EQ(node.inputs, (std::vector<TensorId>{x, positions, kNone}));
    EXPECT_EQ(node.attributes, (std::vector<double>{0, 10000, 1, 0}));
  }
}

TEST(Builder, ShapesThatCanNotBe) {
  ExpectError(GraphBuilder().Input("x", Type::kF32, {1, 1, 1, 1, 1}), {"x", "rank 5"});
  ExpectError(GraphBuilder().Input("x", Type::kF32, {2, -1}), {"x", "[2, -1]", "negative"});
  ExpectError(GraphBuilder().Input("x", Type::kF32, {1LL << 40, 1LL << 40}), {"x", "too large"});
  ExpectError(GraphBuilder().Input("x", Type::kF32, {0, 1LL << 40, 1LL << 40}), {"x", "too large"});
  ExpectError(GraphBuilder().Input("x", Type::kI64, {1LL << 60}), {"x", "too large"});
  ExpectError(GraphBuilder().Input("x", Type::kF32, {Dim::Of(0)}), {"x", "symbol"});
  ExpectError(GraphBuilder().Input("x", Type::kF32, {Dim::Of(-5)}), {"x", "symbol"});
  ExpectError(GraphBuilder().Input("x", Type::kQ4_0, {4, 33}), {"x", "Q4_0", "[4, 33]", "32"});
  {
    GraphBuilder b;
    ExpectError(b.Input("x", Type::kQ8_0, {4, b.Symbol("n", 32)}), {"x", "Q8_0", "[4, n]"});
  }
  {
    GraphBuilder b;
    EXPECT_EQ(b.Use(MakeConstant("w", Type::kF32, {1, 2, 3, 4, 5})), kNone);
    ExpectError(std::move(b).Build(), {"w", "rank 5"});
  }
  {
    GraphBuilder b;
    EXPECT_EQ(b.Use(std::shared_ptr<const Constant>()), kNone);
    ExpectError(std::move(b).Build(), {"null"});
  }
}

TEST(Builder, SymbolsBoundsAreChecked) {
  {
    GraphBuilder b;
    b.Symbol("n", -1);
    ExpectError(std::move(b).Build(), {"n", "-1"});
  }
  {
    GraphBuilder b;
    const Dim n = b.Symbol("n", 1LL << 40);
    ExpectError(b.Input("x", Type::kF32, {n, n}), {"x", "[n, n]", "too large"});
  }
  {
    GraphBuilder b;
    const Dim n = b.Symbol("n", 1LL << 40);
    ExpectError(b.Input("x", Type::kF32, {Dim::Of(n.symbol, 1LL << 30)}), {"x", "too large"});
  }
  {
    GraphBuilder b;  // Fits until the bound grows.
    const Dim n = b.Symbol("n", 4);
    ASSERT_TRUE(b.Input("x", Type::kF32, {n, 1LL << 40}));
    b.Symbol("n", 1LL << 40);
    ExpectError(std::move(b).Build(), {"x", "[n, 1099511627776]", "too large"});
  }
}

TEST(States, AnUpdateMakesTheNextVersion) {
  GraphBuilder b;
  const auto state = MakeState("cache", {8, 4}, 3);
  const TensorId p0 = *b.Use(state, 2);
  const TensorId rows = *b.Input("rows", Type::kF32, {2, 4});
  const TensorId ids = *b.Input("ids", Type::kI32, {2});
  const TensorId p1 = *b.Add(ops::kUpdateRows, {p0, rows, ids}, {}, "first");
  const TensorId p2 = *b.Add(ops::kUpdateRows, {p1, rows, ids}, {}, "second");
  const Tensor& last = b.tensor(p2);
  EXPECT_EQ(b.tensor(p0).version, 0);
  EXPECT_EQ(b.tensor(p0).kind, TensorKind::kState);
  EXPECT_EQ(b.tensor(p1).version, 1);
  EXPECT_EQ(last.version, 2);
  EXPECT_EQ(last.slice, 2);
  EXPECT_EQ(last.state, state);
  EXPECT_EQ(last.root, p2);
  EXPECT_EQ(last.kind, TensorKind::kComputed);
  EXPECT_EQ(last.shape, (Shape{8, 4}));
  ASSERT_TRUE(b.Output(p2));
  EXPECT_TRUE(std::move(b).Build());
}

class Overwritten : public testing::Test {
 protected:
  // A state of which version 0 and a view of it are overwritten.
  void SetUp() override {
    old_ = *b_.Use(state_, 1);
    view_ = *b_.Slice(*b_.Slice(old_, 0, 0, 4), 1, 0, 2);
    rows_ = *b_.Input("rows", Type::kF32, {2, 4});
    ids_ = *b_.Input("ids", Type::kI32, {2});
    ASSERT_TRUE(b_.Add(ops::kSilu, {view_}));
    new_ = *b_.Add(ops::kUpdateRows, {old_, rows_, ids_}, {}, "update");
  }
  std::shared_ptr<const State> state_ = MakeState("cache", {8, 4}, 3);
  GraphBuilder b_;
  TensorId old_ = kNone, view_ = kNone, rows_ = kNone, ids_ = kNone, new_ = kNone;
};

TEST_F(Overwritten, CanNotBeRead) {
  ExpectError(b_.Add(ops::kSilu, {old_}, {}, "late"),
              {"silu late", "version 0", "cache", "slice 1", "newest is 1"});
}
TEST_F(Overwritten, CanNotBeReadThroughViews) {
  ExpectError(b_.Add(ops::kSilu, {view_}, {}, "late"), {"silu late", "version 0", "cache"});
}
TEST_F(Overwritten, CanNotBeViewed) {
  ExpectError(b_.Slice(old_, 0, 0, 1), {"slice", "version 0", "cache"});
}
TEST_F(Overwritten, CanNotBeUpdatedAgain) {
  ExpectError(b_.Add(ops::kUpdateRows, {old_, rows_, ids_}, {}, "again"),
              {"update_rows again", "version 0", "cache"});
}
TEST_F(Overwritten, CanNotBeUsedAgain) {
  ExpectError(b_.Use(state_, 1), {"cache", "slice 1", "version 1"});
}
TEST_F(Overwritten, CanNotBeAnOutput) {
  ExpectError(b_.Output(view_), {"output", "version 0", "cache"});
}
TEST_F(Overwritten, OtherSlicesAndTheNewVersionAreFree) {
  EXPECT_TRUE(b_.Add(ops::kSilu, {new_}));
  EXPECT_TRUE(b_.Add(ops::kSilu, {*b_.Use(state_, 0)}));
  EXPECT_TRUE(b_.Add(ops::kSilu, {*b_.Slice(new_, 0, 2, 2)}));
  EXPECT_TRUE(std::move(b_).Build());
}

TEST(States, AnOutputThatIsOverwrittenLaterIsRefused) {
  GraphBuilder b;
  const TensorId old = *b.Use(MakeState("cache", {2, 4}), 0);
  ASSERT_TRUE(b.Output(old));
  ASSERT_TRUE(b.Add(ops::kUpdateRows,
                    {old, *b.Input("rows", Type::kF32, {2, 4}), *b.Input("ids", Type::kI32, {2})}));
  ExpectError(std::move(b).Build(), {"output", "version 0", "cache"});
}

TEST(States, OnlyWholeStatesAreUpdated) {
  const auto failing = [](auto&& add) {
    GraphBuilder b;
    const TensorId s = *b.Use(MakeState("cache", {8, 4}), 0);
    const TensorId rows = *b.Input("rows", Type::kF32, {2, 4});
    const TensorId ids = *b.Input("ids", Type::kI32, {2});
    return add(b, s, rows, ids);
  };
  ExpectError(failing([](auto& b, TensorId, TensorId rows, TensorId ids) {
                return b.Add(ops::kUpdateRows, {rows, rows, ids}, {}, "u");
              }),
              {"update_rows u", "rows", "no version of a state"});
  ExpectError(failing([](auto& b, TensorId s, TensorId rows, TensorId ids) {
                return b.Add(ops::kUpdateRows, {*b.Slice(s, 0, 0, 4, "part"), rows, ids}, {}, "u");
              }),
              {"update_rows u", "part", "no version of a state"});
  ExpectError(failing([](auto& b, TensorId s, TensorId, TensorId ids) {
                return b.Add(ops::kUpdateRows, {s, *b.Slice(s, 0, 0, 2, "part"), ids}, {}, "u");
              }),
              {"update_rows u", "part", "shares bytes with cache[0]"});
}

TEST(States, SlicesThatAreNotThere) {
  const auto state = MakeState("cache", {8, 4}, 3);
  ExpectError(GraphBuilder().Use(state, 3), {"cache", "slice 3 of 3"});
  ExpectError(GraphBuilder().Use(state, -1), {"cache", "slice -1"});
  ExpectError(GraphBuilder().Use(std::shared_ptr<const State>(), 0), {"null"});
}

// Case 12, as a graph: a reads version 0, the whole of P is set, b reads version 1.
TEST(States, AWholeStateIsSet) {
  GraphBuilder b;
  const auto p = MakeState("P", {2, 3});
  const TensorId p0 = *b.Use(p, 0);
  const TensorId a = *b.Add(ops::kScale, {p0}, {{ops::kScaleFactor, 10}}, "a");
  const TensorId five = *b.Input("five", Type::kF32, {2, 3});
  const TensorId all = *b.Input("all", Type::kI32, {2});
  const TensorId p1 = *b.Add(ops::kUpdateRows, {p0, five, all}, {}, "P := 5");
  const TensorId c = *b.Add(ops::kScale, {p1}, {{ops::kScaleFactor, 100}}, "b");
  for (const TensorId id : {a, c, p1}) ASSERT_TRUE(b.Output(id));
  const auto graph = std::move(b).Build();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->node(0).inputs[0], p0);
  EXPECT_EQ((*graph)->node(2).inputs[0], p1);
}

TEST(Graphs, BytesOfConstantsAndStates) {
  EXPECT_EQ(MakeConstant("w", Type::kQ4_1, {3, 64})->Bytes(), 3 * 2 * 20);
  EXPECT_EQ(MakeConstant("w", Type::kF16, {})->Bytes(), 2);
  EXPECT_EQ(MakeConstant("w", Type::kF32, {3, 0})->Bytes(), 0);
  EXPECT_EQ(MakeState("s", {8, 4}, 3)->SliceBytes(), 128);
}

// No fixed limits: a long chain of nodes, and of views.
TEST(Graphs, LargeOnesBuild) {
  GraphBuilder b;
  const auto state = MakeState("s", {4}, 2000);
  TensorId x = *b.Input(std::string(1000, 'n'), Type::kF32, {4});
  const TensorId input = x;
  for (int i = 0; i < 2000; ++i) x = *b.Add(ops::kAdd, {x, *b.Use(state, i)});
  for (int i = 0; i < 60000; ++i) x = *b.Add(ops::kAdd, {x, x});
  TensorId view = x;
  for (int i = 0; i < 200000; ++i) view = *b.Permute(view, {0});
  view = *b.Reshape(view, {2, 2});
  ASSERT_TRUE(b.Output(view));
  const auto graph = std::move(b).Build();
  ASSERT_TRUE(graph);
  EXPECT_EQ((*graph)->nodes().size(), 62000u);
  EXPECT_EQ((*graph)->tensor(input).name.size(), 1000u);
  EXPECT_EQ((*graph)->tensor(view).root, x);
  const Placed placed = PlaceWithin(**graph, view, x, RootLayout(**graph, x, {}), {});
  EXPECT_EQ(placed.offset, 0);
  EXPECT_EQ(placed.layout, Contiguous(Type::kF32, std::array<int64_t, 2>{2, 2}));
}

}  // namespace
}  // namespace tandem
