#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/ops.h"
#include "graph/testing_tensors.h"

namespace tandem {
namespace {

using namespace testing_tensors;  // NOLINT: it is for tests only.

TEST(Rows, OfEveryTypeInAnyStorage) {
  for (const Type type :
       {Type::kF32, Type::kF16, Type::kBF16, Type::kQ4_0, Type::kQ4_1, Type::kQ8_0})
    for (const Type id_type : {Type::kI32, Type::kI64})
      for (const Storage storage : kStorages) {
        TestTensor table(type, {5, 64}, storage), ids(id_type, {2, 3}, storage);
        TestTensor out(Type::kF32, {2, 3, 64}, storage);
        table.Random(1);
        ids.Set({4, 0, 2, 2, 1, 3});
        ASSERT_TRUE(RunReference(ops::kRows, std::vector{table.host(), ids.host()}, out.host()));
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t j = 0; j < 3; ++j)
            for (int64_t k = 0; k < 64; ++k)
              ASSERT_EQ(out.At({i, j, k}),
                        static_cast<float>(table.At({static_cast<int64_t>(ids.At({i, j})), k})));
        EXPECT_TRUE(out.GapsAreUntouched());
      }
}

TEST(Rows, OneIdWithoutDimensions) {
  TestTensor table(Type::kF32, {3, 2}), id(Type::kI32, {}), out(Type::kF32, {2});
  table.Set({1, 2, 3, 4, 5, 6});
  id.Set({2});
  ASSERT_TRUE(RunReference(ops::kRows, std::vector{table.host(), id.host()}, out.host()));
  EXPECT_EQ(out.Values(), (std::vector<double>{5, 6}));
}

TEST(Rows, IdsOutOfRangeAreErrors) {
  TestTensor table(Type::kF32, {3, 2}), ids(Type::kI64, {2}), out(Type::kF32, {2, 2});
  table.Random(1);
  for (const double bad : {-1.0, 3.0, 1e15}) {
    ids.Set({0, bad});
    const Result<void> result =
        RunReference(ops::kRows, std::vector{table.host(), ids.host()}, out.host());
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(std::to_string(static_cast<int64_t>(bad))),
              std::string::npos)
        << result.error().message;
    EXPECT_NE(result.error().message.find("rows"), std::string::npos);
  }
}

TEST(Rows, NoIdsAndAnEmptyTable) {
  TestTensor table(Type::kF32, {0, 2}), ids(Type::kI32, {0}), out(Type::kF32, {0, 2});
  EXPECT_TRUE(RunReference(ops::kRows, std::vector{table.host(), ids.host()}, out.host()));
}

TEST(Rows, CostsAreThoseOfTheRowsTaken) {
  const Layout table = Contiguous(Type::kQ8_0, std::array<int64_t, 2>{49152, 64});
  const Layout ids = Contiguous(Type::kI32, std::array<int64_t, 1>{3});
  const Layout out = Contiguous(Type::kF32, std::array<int64_t, 2>{3, 64});
  EXPECT_EQ(ops::kRows.cost(std::vector{table, ids}, out).bytes, 3 * 64 * 4 + 3 * 2 * 34);
}

TEST(UpdateRows, WritesThoseRowsAndNoOthers) {
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16})
    for (const Type id_type : {Type::kI32, Type::kI64})
      for (const Storage storage : kStorages) {
        TestTensor state(type, {5, 2, 3}, storage), rows(Type::kF32, {2, 2, 3}, storage);
        TestTensor ids(id_type, {2}, storage);
        state.Random(1);
        rows.Random(2);
        ids.Set({3, 1});
        const TestTensor before = state;
        ASSERT_TRUE(RunReference(ops::kUpdateRows,
                                 std::vector{state.host(), rows.host(), ids.host()}, state.host()));
        TestTensor rounded(type, {2, 2, 3});
        rounded.Set(rows.Values());
        for (int64_t r = 0; r < 5; ++r)
          for (int64_t i = 0; i < 2; ++i)
            for (int64_t j = 0; j < 3; ++j)
              EXPECT_EQ(state.At({r, i, j}), r == 3   ? rounded.At({0, i, j})
                                             : r == 1 ? rounded.At({1, i, j})
                                                      : before.At({r, i, j}));
        EXPECT_TRUE(state.GapsAreUntouched());
      }
}

TEST(UpdateRows, OfOneElementEach) {
  for (const Storage storage : kStorages) {
    TestTensor state(Type::kF32, {4}, storage), rows(Type::kF16, {2}, storage);
    TestTensor ids(Type::kI32, {2}, storage);
    state.Set({1, 2, 3, 4});
    rows.Set({10, 20});
    ids.Set({2, 0});
    ASSERT_TRUE(RunReference(ops::kUpdateRows, std::vector{state.host(), rows.host(), ids.host()},
                             state.host()));
    EXPECT_EQ(state.Values(), (std::vector<double>{20, 2, 10, 4}));
    EXPECT_TRUE(state.GapsAreUntouched());
  }
}

TEST(UpdateRows, ABadIdLeavesTheStateAsItWas) {
  TestTensor state(Type::kF32, {3, 2}), rows(Type::kF32, {2, 2}), ids(Type::kI32, {2});
  state.Random(1);
  rows.Random(2);
  const std::vector<double> before = state.Values();
  for (const double bad : {-1.0, 3.0}) {
    ids.Set({0, bad});
    const Result<void> result = RunReference(
        ops::kUpdateRows, std::vector{state.host(), rows.host(), ids.host()}, state.host());
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("update_rows"), std::string::npos);
    EXPECT_EQ(state.Values(), before);
  }
}

TEST(UpdateRows, NoRows) {
  TestTensor state(Type::kF32, {3, 2}), rows(Type::kF32, {0, 2}), ids(Type::kI32, {0});
  state.Random(1);
  const std::vector<double> before = state.Values();
  ASSERT_TRUE(RunReference(ops::kUpdateRows, std::vector{state.host(), rows.host(), ids.host()},
                           state.host()));
  EXPECT_EQ(state.Values(), before);
}

TEST(Copy, ConvertsAndPacks) {
  for (const Type from : {Type::kF32, Type::kF16, Type::kBF16})
    for (const Type to : {Type::kF32, Type::kF16, Type::kBF16})
      for (const Storage storage : kStorages) {
        TestTensor x(from, {3, 4}, storage), out(to, {3, 4}), rounded(to, {3, 4});
        x.Random(1);
        rounded.Set(x.Values());
        ASSERT_TRUE(
            RunReference(ops::kCopy, std::vector{x.host()}, out.host(), {static_cast<double>(to)}));
        EXPECT_EQ(out.Values(), rounded.Values());
      }
}

TEST(Argmax, FirstOfTheLargest) {
  for (const Storage storage : kStorages) {
    TestTensor x(Type::kF32, {2, 2, 3}, storage), out(Type::kI32, {2, 2}, storage);
    x.Set({1, 3, 3, 5, 4, 5, -2, -1, -3, -std::numeric_limits<double>::infinity(), -1e30, -1e30});
    ASSERT_TRUE(RunReference(ops::kArgmax, std::vector{x.host()}, out.host()));
    EXPECT_EQ(out.Values(), (std::vector<double>{1, 0, 1, 1}));
    EXPECT_TRUE(out.GapsAreUntouched());
  }
  TestTensor row(Type::kF32, {4}), one(Type::kI32, {});
  row.Set({0, 0, 7, 7});
  ASSERT_TRUE(RunReference(ops::kArgmax, std::vector{row.host()}, one.host()));
  EXPECT_EQ(one.At({}), 2);
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  for (const Storage storage : kStorages)
    for (const bool weighted : {false, true}) {
      TestTensor x(Type::kF32, {2, 3, 5}, storage), out(Type::kF32, {2, 3, 5}, storage);
      TestTensor weight(Type::kF32, {5}, storage);
      x.Random(1, -3, 3);
      weight.Random(2);
      ASSERT_TRUE(RunReference(ops::kRmsNorm,
                               std::vector{x.host(), weighted ? weight.host() : Absent()},
                               out.host(), {0.25}));
      for (int64_t i = 0; i < 2; ++i)
        for (int64_t j = 0; j < 3; ++j) {
          double mean = 0;
          for (int64_t k = 0; k < 5; ++k) mean += x.At({i, j, k}) * x.At({i, j, k}) / 5;
          for (int64_t k = 0; k < 5; ++k)
            EXPECT_NEAR(out.At({i, j, k}),
                        x.At({i, j, k}) / std::sqrt(mean + 0.25) * (weighted ? weight.At({k}) : 1),
                        1e-6);
        }
      EXPECT_TRUE(out.GapsAreUntouched());
    }
}

// A pair is a complex number that is turned by the angle.
TEST(Rope, TurnsPairs) {
  for (const Storage storage : kStorages)
    for (const int64_t dims : {0, 4, 6})
      for (const bool halves : {false, true})
        for (const bool with_factors : {false, true}) {
          const int64_t rotated = dims == 0 ? 8 : dims, pairs = rotated / 2;
          TestTensor x(Type::kF32, {3, 2, 8}, storage), out(Type::kF32, {3, 2, 8}, storage);
          TestTensor positions(Type::kI32, {3}, storage), factors(Type::kF32, {pairs}, storage);
          x.Random(1);
          positions.Set({0, 5, 1000});
          factors.Random(2, 1, 4);
          ASSERT_TRUE(RunReference(
              ops::kRope,
              std::vector{x.host(), positions.host(), with_factors ? factors.host() : Absent()},
              out.host(), {static_cast<double>(dims), 500.0, 0.25, halves ? 1.0 : 0.0}));
          for (int64_t t = 0; t < 3; ++t)
            for (int64_t h = 0; h < 2; ++h) {
              for (int64_t i = 0; i < pairs; ++i) {
                const double angle =
                    positions.At({t}) * 0.25 /
                    std::pow(500.0, static_cast<double>(2 * i) / static_cast<double>(rotated)) /
                    (with_factors ? factors.At({i}) : 1);
                const int64_t a = halves ? i : 2 * i, b = halves ? i + pairs : 2 * i + 1;
                EXPECT_NEAR(out.At({t, h, a}),
                            x.At({t, h, a}) * std::cos(angle) - x.At({t, h, b}) * std::sin(angle),
                            1e-6);
                EXPECT_NEAR(out.At({t, h, b}),
                            x.At({t, h, b}) * std::cos(angle) + x.At({t, h, a}) * std::sin(angle),
                            1e-6);
              }
              for (int64_t i = rotated; i < 8; ++i) EXPECT_EQ(out.At({t, h, i}), x.At({t, h, i}));
            }
          EXPECT_TRUE(out.GapsAreUntouched());
        }
}

TEST(Rope, InPlaceIsTheSame) {
  TestTensor x(Type::kF32, {2, 2, 4}), positions(Type::kI32, {2}), out(Type::kF32, {2, 2, 4});
  x.Random(1);
  positions.Set({3, 4});
  const std::vector inputs = {x.host(), positions.host(), Absent()};
  ASSERT_TRUE(RunReference(ops::kRope, inputs, out.host()));
  ASSERT_TRUE(RunReference(ops::kRope, inputs, x.host()));
  EXPECT_EQ(x.Values(), out.Values());
}

TEST(RowOps, ZeroSizesAreNoOps) {
  TestTensor none(Type::kF32, {0, 2, 4}), no_positions(Type::kI32, {0});
  EXPECT_TRUE(RunReference(ops::kRope, std::vector{none.host(), no_positions.host(), Absent()},
                           none.host()));
  EXPECT_TRUE(RunReference(ops::kRmsNorm, std::vector{none.host(), Absent()}, none.host()));
  EXPECT_TRUE(RunReference(ops::kSoftmax, std::vector{none.host(), Absent()}, none.host()));
  EXPECT_TRUE(RunReference(ops::kCopy, std::vector{none.host()}, none.host(), {-1}));
  TestTensor ids(Type::kI32, {0, 2});
  EXPECT_TRUE(RunReference(ops::kArgmax, std::vector{none.host()}, ids.host()));
  TestTensor no_width(Type::kF32, {3, 0});
  EXPECT_TRUE(RunReference(ops::kRmsNorm, std::vector{no_width.host(), Absent()}, no_width.host()));
  EXPECT_TRUE(RunReference(ops::kSoftmax, std::vector{no_width.host(), Absent()}, no_width.host()));
}

}  // namespace
}  // namespace tandem
