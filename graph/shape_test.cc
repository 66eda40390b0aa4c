#include "graph/shape.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using Dims = std::vector<int64_t>;

TEST(Dim, IsASizeOrASymbolTimesANumber) {
  const std::vector<int64_t> symbols = {7, 0};
  EXPECT_EQ(Dim(5).At(symbols), 5);
  EXPECT_EQ(Dim::Of(0, 3).At(symbols), 21);
  EXPECT_EQ(Dim::Of(1, 3).At(symbols), 0);
  EXPECT_TRUE(Dim(5).IsConstant());
  EXPECT_FALSE(Dim::Of(0).IsConstant());
  EXPECT_NE(Dim::Of(0, 3), Dim::Of(1, 3));
  EXPECT_NE(Dim::Of(0, 3), Dim::Of(0, 2));
  EXPECT_NE(Dim::Of(0, 3), Dim(3));
}

TEST(Shape, ComparesAndPrints) {
  const std::vector<std::string> names = {"tokens", "kv"};
  EXPECT_EQ(ToString(Shape{Dim::Of(0), 9, Dim::Of(1, 3)}, names), "[tokens, 9, 3*kv]");
  EXPECT_EQ(ToString(Shape{}, names), "[]");
  EXPECT_EQ(ToString(Shape{Dim::Of(5)}, names), "[symbol 5]");
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_TRUE((Shape{2, 3}).IsConstant());
  EXPECT_FALSE((Shape{2, Dim::Of(0)}).IsConstant());
  EXPECT_EQ(Shape{}.Last(), Dim(1));
  EXPECT_EQ((Shape{2, 3}).Last(), Dim(3));
}

TEST(Layout, PackedOnes) {
  const std::vector<int64_t> symbols = {5};
  const Layout plain = Bind(Type::kF16, {Dim::Of(0, 2), 3, 4}, symbols);
  EXPECT_EQ(plain, Contiguous(Type::kF16, Dims{10, 3, 4}));
  EXPECT_EQ(plain.strides, (std::array<int64_t, 4>{24, 8, 2}));
  EXPECT_EQ(plain.Elements(), 120);
  EXPECT_EQ(plain.PackedBytes(), 240);
  EXPECT_EQ(plain.SpanBytes(), 240);
  EXPECT_TRUE(plain.IsContiguous());
  EXPECT_EQ(ToString(plain), "F16 [10, 3, 4]");
  const Layout scalar = Contiguous(Type::kF32, Dims{});
  EXPECT_EQ(scalar.Elements(), 1);
  EXPECT_EQ(scalar.SpanBytes(), 4);
  EXPECT_TRUE(scalar.IsContiguous());
}

TEST(Layout, OfBlocks) {
  Layout layout = Contiguous(Type::kQ4_1, Dims{2, 3, 64});
  EXPECT_EQ(layout.strides, (std::array<int64_t, 4>{120, 40, 20}));
  EXPECT_EQ(layout.PackedBytes(), 240);
  EXPECT_EQ(layout.SpanBytes(), 240);
  EXPECT_TRUE(layout.IsContiguous());
  layout.strides[1] = 60;
  EXPECT_FALSE(layout.IsContiguous());
  EXPECT_EQ(layout.SpanBytes(), 120 + 2 * 60 + 20 + 20);
  layout = Contiguous(Type::kQ4_1, Dims{2, 3, 64});
  layout.strides[2] = 40;
  EXPECT_FALSE(layout.IsContiguous());
}

TEST(Layout, StridesOfSingleAndZeroSizesDoNotMatter) {
  Layout layout = Contiguous(Type::kF32, Dims{2, 1, 3});
  layout.strides[1] = 1000;
  EXPECT_TRUE(layout.IsContiguous());
  EXPECT_EQ(layout.SpanBytes(), 24);
  for (const Dims& dims : {Dims{0, 2, 3}, Dims{2, 0, 3}, Dims{2, 3, 0}}) {
    layout = Contiguous(Type::kF32, dims);
    layout.strides = {7, 7, 7, 7};
    EXPECT_TRUE(layout.IsContiguous());
    EXPECT_EQ(layout.Elements(), 0);
    EXPECT_EQ(layout.SpanBytes(), 0);
    EXPECT_EQ(layout.PackedBytes(), 0);
  }
}

TEST(Layout, EqualityIsOfWhatIsInUse) {
  Layout a = Contiguous(Type::kF32, Dims{2, 3}), b = a;
  b.dims[3] = b.strides[2] = 9;
  EXPECT_EQ(a, b);
  b.strides[0] = 16;
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(a == Contiguous(Type::kI32, Dims{2, 3}));
  EXPECT_FALSE(a == Contiguous(Type::kF32, Dims{2, 3, 1}));
}

}  // namespace
}  // namespace tandem
