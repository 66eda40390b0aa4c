// Views: what the builder refuses, and where PlaceWithin says that the elements are.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "graph/builder.h"
#include "graph/ops.h"

namespace tandem {
namespace {

Placed PlaceInRoot(const Graph& graph, TensorId id, std::span<const int64_t> symbols) {
  const TensorId root = graph.tensor(id).root;
  return PlaceWithin(graph, id, root, RootLayout(graph, root, symbols), symbols);
}

void ExpectRefused(const Result<TensorId>& result, std::initializer_list<std::string_view> words) {
  ASSERT_FALSE(result.has_value());
  for (const std::string_view word : words)
    EXPECT_NE(result.error().message.find(word), std::string::npos)
        << word << " in: " << result.error().message;
}

TEST(Slices, OfConstantSizes) {
  GraphBuilder b;
  const TensorId x = *b.Input("x", Type::kF32, {6, 10});
  const TensorId rows = *b.Slice(x, 0, 2, 3, "rows");
  const TensorId part = *b.Slice(rows, 1, 4, 5, "part");
  const auto graph = std::move(b).Build();
  EXPECT_EQ((*graph)->tensor(part).root, x);
  EXPECT_EQ((*graph)->tensor(part).source, rows);
  EXPECT_EQ((*graph)->tensor(part).kind, TensorKind::kView);
  const Placed placed = PlaceInRoot(**graph, part, {});
  EXPECT_EQ(placed.offset, (2 * 10 + 4) * 4);
  EXPECT_EQ(placed.layout.dims, (std::array<int64_t, 4>{3, 5}));
  EXPECT_EQ(placed.layout.strides, (std::array<int64_t, 4>{40, 4}));
  // Within the view that it looks at, only the last step counts.
  const Placed inner = PlaceWithin(**graph, part, rows, PlaceInRoot(**graph, rows, {}).layout, {});
  EXPECT_EQ(inner.offset, 16);
  EXPECT_EQ(inner.layout, placed.layout);
  EXPECT_TRUE(PlaceInRoot(**graph, rows, {}).layout.IsContiguous());
  EXPECT_FALSE(placed.layout.IsContiguous());
}

// Where a region was copied on its own, its packed layout stands for the tensor sliced.
TEST(Slices, SizesOfOtherDimensionsComeFromTheBase) {
  GraphBuilder b;
  const TensorId x = *b.Input("x", Type::kF32, {6, 10});
  const TensorId turned = *b.Permute(*b.Slice(x, 1, 4, 2), {1, 0});
  const auto graph = std::move(b).Build();
  const Layout packed = Contiguous(Type::kF32, std::array<int64_t, 2>{3, 10});
  const Placed placed = PlaceWithin(**graph, turned, x, packed, {});
  EXPECT_EQ(placed.layout.dims, (std::array<int64_t, 4>{2, 3}));
  EXPECT_EQ(placed.layout.strides, (std::array<int64_t, 4>{4, 40}));
  EXPECT_EQ(placed.offset, 16);
}

TEST(Slices, OutsideAreRefused) {
  const auto slice = [](int dim, Dim start, Dim size) {
    GraphBuilder b;
    return b.Slice(*b.Input("x", Type::kF32, {6, 10}), dim, start, size);
  };
  EXPECT_TRUE(slice(0, 6, 0));
  EXPECT_TRUE(slice(1, 0, 10));
  ExpectRefused(slice(0, 4, 3), {"slice of x [6, 10], dimension 0", "3 from 4", "6"});
  ExpectRefused(slice(0, 7, 0), {"dimension 0", "6"});
  ExpectRefused(slice(2, 0, 1), {"dimension 2", "no such"});
  ExpectRefused(slice(-1, 0, 1), {"dimension -1", "no such"});
  ExpectRefused(slice(0, -1, 1), {"negative"});
  ExpectRefused(slice(0, 0, -1), {"negative"});
  ExpectRefused(slice(0, INT64_MAX, INT64_MAX), {"6"});
  ExpectRefused(slice(0, Dim::Of(3), 1), {"symbol of another builder"});
  ExpectRefused(slice(0, 0, Dim::Of(-7)), {"symbol of another builder"});
}

TEST(Slices, WithSymbolsAreInsideAtEveryValue) {
  const auto slice = [](auto&& make) {
    GraphBuilder b;
    const Dim n = b.Symbol("n", 8), m = b.Symbol("m", 8);
    const TensorId fixed = *b.Input("fixed", Type::kF32, {16, 4});
    const TensorId open = *b.Input("open", Type::kF32, {Dim::Of(n.symbol, 3), 4});
    return make(b, n, m, fixed, open);
  };
  using B = GraphBuilder&;
  EXPECT_TRUE(slice([](B b, Dim n, Dim m, TensorId x, TensorId) { return b.Slice(x, 0, m, n); }));
  EXPECT_TRUE(slice([](B b, Dim n, Dim, TensorId, TensorId x) { return b.Slice(x, 0, 0, n); }));
  EXPECT_TRUE(slice([](B b, Dim n, Dim, TensorId, TensorId x) {
    return b.Slice(x, 0, Dim::Of(n.symbol, 2), n);
  }));
  EXPECT_TRUE(slice([](B b, Dim, Dim, TensorId, TensorId x) { return b.Slice(x, 0, 0, 0); }));
  ExpectRefused(slice([](B b, Dim n, Dim, TensorId x, TensorId) { return b.Slice(x, 0, 9, n); }),
                {"8 from 9"});
  ExpectRefused(slice([](B b, Dim, Dim m, TensorId, TensorId x) { return b.Slice(x, 0, 0, m); }),
                {"[3*n, 4]", "sized by that symbol"});
  ExpectRefused(slice([](B b, Dim, Dim, TensorId, TensorId x) { return b.Slice(x, 0, 0, 1); }),
                {"sized by that symbol"});
  ExpectRefused(slice([](B b, Dim n, Dim, TensorId, TensorId x) {
                  return b.Slice(x, 0, n, Dim::Of(n.symbol, 3));
                }),
                {"3 from 1"});
  {
    GraphBuilder b;  // Inside until the bound grows.
    const Dim n = b.Symbol("n", 8);
    ASSERT_TRUE(b.Slice(*b.Input("x", Type::kF32, {16, 4}), 0, 4, n));
    b.Symbol("n", 13);
    const auto graph = std::move(b).Build();
    ASSERT_FALSE(graph);
    EXPECT_NE(graph.error().message.find("slice of x [16, 4], dimension 0"), std::string::npos);
  }
}

TEST(Slices, OfBlocksAreCutBetweenBlocks) {
  const auto slice = [](int dim, int64_t start, int64_t size) {
    GraphBuilder b;
    return b.Slice(*b.Input("w", Type::kQ4_1, {6, 128}), dim, start, size);
  };
  EXPECT_TRUE(slice(1, 32, 64));
  EXPECT_TRUE(slice(0, 1, 3));
  ExpectRefused(slice(1, 16, 32), {"w", "Q4_1", "32"});
  ExpectRefused(slice(1, 32, 48), {"w", "Q4_1", "32"});
  GraphBuilder b;
  const TensorId w = *b.Input("w", Type::kQ4_1, {6, 128});
  const TensorId part = *b.Slice(*b.Slice(w, 1, 32, 96), 1, 64, 32);
  const auto graph = std::move(b).Build();
  const Placed placed = PlaceInRoot(**graph, part, {});
  EXPECT_EQ(placed.offset, 3 * 20);
  EXPECT_EQ(placed.layout.strides, (std::array<int64_t, 4>{80, 20}));
  EXPECT_EQ(placed.layout.SpanBytes(), 5 * 80 + 20);
}

TEST(Permutes, AreRefused) {
  const auto permute = [](Type type, std::initializer_list<int> order) {
    GraphBuilder b;
    return b.Permute(*b.Input("x", type, {2, 3, 32}), order);
  };
  EXPECT_TRUE(permute(Type::kF32, {2, 0, 1}));
  EXPECT_TRUE(permute(Type::kQ8_0, {1, 0, 2}));
  ExpectRefused(permute(Type::kF32, {0, 1}), {"permute of x [2, 3, 32] by [0, 1]"});
  ExpectRefused(permute(Type::kF32, {0, 1, 1}), {"no permutation"});
  ExpectRefused(permute(Type::kF32, {0, 1, 3}), {"no permutation"});
  ExpectRefused(permute(Type::kF32, {0, -1, 2}), {"no permutation"});
  ExpectRefused(permute(Type::kQ8_0, {2, 1, 0}), {"Q8_0", "last dimension"});
}

TEST(Reshapes, CompareFactorsAndSymbols) {
  const auto reshape = [](auto&& shape) {
    GraphBuilder b;
    const Dim n = b.Symbol("n", 8), m = b.Symbol("m", 8);
    return b.Reshape(*b.Input("x", Type::kF32, {n, 12}), shape(n, m));
  };
  EXPECT_TRUE(reshape([](Dim n, Dim) { return Shape{n, 3, 4}; }));
  EXPECT_TRUE(reshape([](Dim n, Dim) { return Shape{Dim::Of(n.symbol, 12)}; }));
  EXPECT_TRUE(reshape([](Dim n, Dim) { return Shape{3, Dim::Of(n.symbol, 2), 2}; }));
  ExpectRefused(reshape([](Dim n, Dim) {
                  return Shape{n, 13};
                }),
                {"reshape of x [n, 12] to [n, 13]"});
  ExpectRefused(reshape([](Dim, Dim m) { return Shape{m, 12}; }), {"[n, 12]", "[m, 12]"});
  ExpectRefused(reshape([](Dim, Dim) { return Shape{96}; }), {"[96]"});
  ExpectRefused(reshape([](Dim n, Dim) { return Shape{n, n, 12}; }), {"[n, n, 12]"});
  ExpectRefused(reshape([](Dim n, Dim) { return Shape{n, 1, 1, 1, 12}; }), {"rank 5"});
  ExpectRefused(reshape([](Dim n, Dim) { return Shape{n, -3, -4}; }), {"negative"});
  ExpectRefused(reshape([](Dim, Dim) { return Shape{Dim::Of(77), 12}; }), {"another builder"});
  GraphBuilder b;
  EXPECT_FALSE(b.Reshape(*b.Input("w", Type::kQ4_0, {2, 48 * 2}), {4, 48}));
}

TEST(Reshapes, NeedContiguousSources) {
  const auto reshape = [](auto&& view, Shape shape) {
    GraphBuilder b;
    return b.Reshape(*view(b, *b.Input("x", Type::kF32, {4, 1, 6})), shape);
  };
  using B = GraphBuilder&;
  EXPECT_TRUE(reshape([](B b, TensorId x) { return b.Slice(x, 0, 1, 2); }, {3, 4}));
  EXPECT_TRUE(reshape([](B b, TensorId x) { return b.Permute(x, {1, 0, 2}); }, {24}));
  EXPECT_TRUE(
      reshape([](B b, TensorId x) { return b.Slice(*b.Slice(x, 0, 1, 1), 2, 2, 4); }, {2, 2}));
  EXPECT_TRUE(reshape([](B b, TensorId x) { return b.Reshape(x, {6, 4}); }, {2, 12}));
  ExpectRefused(reshape([](B b, TensorId x) { return b.Slice(x, 2, 0, 3); }, {12}),
                {"not contiguous"});
  ExpectRefused(reshape(
                    [](B b, TensorId x) {
                      return b.Permute(x, {2, 1, 0});
                    },
                    {24}),
                {"not contiguous"});
  ExpectRefused(reshape(
                    [](B b, TensorId x) {
                      return b.Slice(*b.Permute(x, {2, 1, 0}), 0, 0, 2);
                    },
                    {8}),
                {"not contiguous"});
}

// A tensor as the list of its elements in the root, in row-major order: what views do to it, one
// element at a time and with no strides.
struct Walk {
  std::vector<int64_t> dims;
  std::vector<int64_t> elements;

  // The element at an index.
  int64_t At(const std::vector<int64_t>& index) const {
    int64_t flat = 0;
    for (size_t i = 0; i < dims.size(); ++i) flat = flat * dims[i] + index[i];
    return elements[static_cast<size_t>(flat)];
  }
  // A walk of the given sizes in which each index stands for `from(index)` in this one.
  template <class F>
  Walk Map(std::vector<int64_t> sizes, F&& from) const {
    Walk result{std::move(sizes), {}};
    int64_t count = 1;
    for (const int64_t size : result.dims) count *= size;
    for (int64_t flat = 0; flat < count; ++flat) {
      std::vector<int64_t> index(result.dims.size());
      int64_t rest = flat;
      for (size_t i = index.size(); i-- > 0; rest /= result.dims[i])
        index[i] = rest % result.dims[i];
      result.elements.push_back(At(from(index)));
    }
    return result;
  }
};

// Random chains of views over roots of random shapes, some with symbols, one of them zero.
class Chains {
 public:
  explicit Chains(uint64_t seed) : random_(seed) {
    symbols_ = {Below(4), 1 + Below(3)};
    for (size_t i = 0; i < symbols_.size(); ++i)
      dims_.push_back(b_.Symbol(i == 0 ? "n" : "m", symbols_[i]));
  }

  void Check() {
    Shape shape;
    shape.rank = static_cast<int>(Below(kMaxRank + 1));
    for (int i = 0; i < shape.rank; ++i) shape[i] = RandomDim();
    Add(*b_.Input("x", Type::kF32, shape));
    int64_t next = 0;
    Walk& root = walks_.at(0);
    for (int i = 0; i < shape.rank; ++i) root.dims.push_back(shape[i].At(symbols_));
    int64_t count = 1;
    for (const int64_t dim : root.dims) count *= dim;
    for (; next < count; ++next) root.elements.push_back(next);
    TensorId id = 0;
    for (int depth = 0; depth < 8; ++depth) id = Step(id);
    const auto graph = std::move(b_).Build();
    ASSERT_TRUE(graph) << graph.error().message;
    const Layout base = RootLayout(**graph, 0, symbols_);
    for (const auto& [view, walk] : walks_) {
      const Placed placed = PlaceWithin(**graph, view, 0, base, symbols_);
      Compare(placed, walk);
      // By way of the tensor looked at, the same.
      const TensorId source = (*graph)->tensor(view).source;
      if (source == kNone) continue;
      const Placed outer = PlaceWithin(**graph, source, 0, base, symbols_);
      const Placed inner = PlaceWithin(**graph, view, source, outer.layout, symbols_);
      EXPECT_EQ(inner.layout, placed.layout);
      EXPECT_EQ(outer.offset + inner.offset, placed.offset);
    }
  }

 private:
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  Dim RandomDim() {
    const int64_t kind = Below(4);
    if (kind >= 2) return Dim(Below(6) == 0 ? 0 : 1 + Below(5));
    return Dim::Of(dims_[static_cast<size_t>(kind)].symbol, 1 + Below(3));
  }
  void Add(TensorId id) { walks_[id]; }

  TensorId Step(TensorId source) {
    const Shape shape = b_.tensor(source).shape;
    const Walk& from = walks_.at(source);
    const int64_t kind = Below(3);
    if (kind == 0 && shape.rank > 0) {
      const int dim = static_cast<int>(Below(shape.rank));
      const Dim whole = shape[dim];
      Dim start = 0, size = whole;
      const int64_t factor = Below(whole.factor + 1);
      if (factor > 0 || whole.IsConstant()) {
        start = Dim::Of(whole.symbol, Below(whole.factor - factor + 1));
        size = Dim::Of(whole.symbol, factor);
      }
      const TensorId id = *b_.Slice(source, dim, start, size);
      std::vector<int64_t> sizes = from.dims;
      sizes[static_cast<size_t>(dim)] = size.At(symbols_);
      walks_[id] = from.Map(sizes, [&](std::vector<int64_t> index) {
        index[static_cast<size_t>(dim)] += start.At(symbols_);
        return index;
      });
      return id;
    }
    if (kind == 1 && shape.rank > 1) {
      std::array<int, kMaxRank> order = {0, 1, 2, 3};
      std::shuffle(order.begin(), order.begin() + shape.rank, random_);
      const Result<TensorId> id =
          shape.rank == 2   ? b_.Permute(source, {order[0], order[1]})
          : shape.rank == 3 ? b_.Permute(source, {order[0], order[1], order[2]})
                            : b_.Permute(source, {order[0], order[1], order[2], order[3]});
      std::vector<int64_t> sizes(from.dims.size());
      for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = from.dims[static_cast<size_t>(order[i])];
      walks_[*id] = from.Map(sizes, [&](const std::vector<int64_t>& index) {
        std::vector<int64_t> old(index.size());
        for (size_t i = 0; i < index.size(); ++i) old[static_cast<size_t>(order[i])] = index[i];
        return old;
      });
      return *id;
    }
    return Reshape(source, shape, from);
  }

  // Joins two neighbouring dimensions or splits one, where the source is contiguous as the run
  // has it and as the builder can know.
  TensorId Reshape(TensorId source, const Shape& shape, const Walk& from) {
    Shape target = shape;
    if (shape.rank >= 2 && (shape[0].IsConstant() || shape[1].IsConstant())) {
      const Dim& named = shape[0].IsConstant() ? shape[1] : shape[0];
      target = {Dim::Of(named.symbol, shape[0].factor * shape[1].factor)};
      for (int i = 2; i < shape.rank; ++i) target[target.rank++] = shape[i];
    } else if (shape.rank < kMaxRank) {
      target = {1};
      for (int i = 0; i < shape.rank; ++i) target[target.rank++] = shape[i];
    }
    if (!Contiguous(source)) return source;
    const TensorId id = *b_.Reshape(source, target);
    Walk walk{{}, from.elements};
    for (int i = 0; i < target.rank; ++i) walk.dims.push_back(target[i].At(symbols_));
    walks_[id] = walk;
    return id;
  }
  // As a second builder sees it, so that a refusal does not stick to the first.
  bool Contiguous(TensorId id) {
    GraphBuilder copy = b_;
    return copy.Reshape(id, b_.tensor(id).shape).has_value();
  }

  void Compare(const Placed& placed, const Walk& walk) {
    ASSERT_EQ(static_cast<size_t>(placed.layout.rank), walk.dims.size());
    for (size_t i = 0; i < walk.dims.size(); ++i) EXPECT_EQ(placed.layout.dims[i], walk.dims[i]);
    ASSERT_EQ(placed.layout.Elements(), static_cast<int64_t>(walk.elements.size()));
    bool is_contiguous = true;
    int64_t last = 0;
    for (size_t flat = 0; flat < walk.elements.size(); ++flat) {
      int64_t offset = placed.offset;
      auto rest = static_cast<int64_t>(flat);
      for (size_t i = walk.dims.size(); i-- > 0; rest /= walk.dims[i])
        offset += rest % walk.dims[i] * placed.layout.strides[i];
      ASSERT_EQ(offset, 4 * walk.elements[flat]);
      last = std::max(last, offset);
      is_contiguous &= walk.elements[flat] == walk.elements[0] + static_cast<int64_t>(flat);
    }
    EXPECT_EQ(placed.layout.IsContiguous(), is_contiguous);
    EXPECT_EQ(placed.layout.SpanBytes(), walk.elements.empty() ? 0 : last + 4 - placed.offset);
  }

  std::mt19937_64 random_;
  GraphBuilder b_;
  std::vector<int64_t> symbols_;
  std::vector<Dim> dims_;
  std::map<TensorId, Walk> walks_;
};

TEST(Views, RandomChainsAreWhereAWalkFindsThem) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Chains(seed).Check();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tandem
