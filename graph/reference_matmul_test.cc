#include <gtest/gtest.h>

#include <cmath>

#include "graph/ops.h"
#include "graph/testing_tensors.h"

namespace tandem {
namespace {

using namespace testing_tensors;  // NOLINT: it is for tests only.

// Sums in double are the same but for their order; the result is rounded to a float.
void ExpectClose(double got, double expected) {
  EXPECT_NEAR(got, expected, 1e-6 * std::max(1.0, std::abs(expected)));
}

class MatmulOfTypes : public testing::TestWithParam<Type> {};

TEST_P(MatmulOfTypes, IsTheSumOfProductsInAnyStorage) {
  for (const Storage x_storage : kStorages)
    for (const Storage w_storage : kStorages) {
      TestTensor x(Type::kF32, {3, 96}, x_storage), w(GetParam(), {5, 96}, w_storage);
      TestTensor out(Type::kF32, {3, 5}, x_storage);
      x.Random(1);
      w.Random(2);
      ASSERT_TRUE(
          RunReference(ops::kMatmul, std::vector{x.host(), w.host()}, out.host()).has_value());
      for (int64_t m = 0; m < 3; ++m)
        for (int64_t n = 0; n < 5; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < 96; ++k) sum += x.At({m, k}) * w.At({n, k});
          ExpectClose(out.At({m, n}), sum);
        }
      EXPECT_TRUE(out.GapsAreUntouched());
    }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulOfTypes,
                         testing::Values(Type::kF32, Type::kF16, Type::kBF16, Type::kQ4_0,
                                         Type::kQ4_1, Type::kQ8_0),
                         [](const auto& info) { return std::string(Info(info.param).name); });

// Widths around the number of sums that run side by side.
TEST(Matmul, EveryWidth) {
  for (int64_t width = 0; width < 20; ++width) {
    TestTensor x(Type::kF32, {2, width}), w(Type::kF32, {3, width}), out(Type::kF32, {2, 3});
    x.Random(3);
    w.Random(4);
    out.Random(5);
    ASSERT_TRUE(RunReference(ops::kMatmul, std::vector{x.host(), w.host()}, out.host()));
    for (int64_t m = 0; m < 2; ++m)
      for (int64_t n = 0; n < 3; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < width; ++k) sum += x.At({m, k}) * w.At({n, k});
        ExpectClose(out.At({m, n}), sum);
      }
  }
}

// w has no batch, one, its own for each of x, and one for each group of three.
TEST(Matmul, BatchesBroadcastAndGroup) {
  for (const Storage storage : kStorages)
    for (const int64_t batches : {1, 2, 6}) {
      TestTensor x(Type::kF32, {6, 2, 7}, storage), w(Type::kF32, {batches, 4, 7}, storage);
      TestTensor out(Type::kF32, {6, 2, 4}, storage);
      x.Random(1);
      w.Random(2);
      ASSERT_TRUE(RunReference(ops::kMatmul, std::vector{x.host(), w.host()}, out.host()));
      for (int64_t b = 0; b < 6; ++b)
        for (int64_t m = 0; m < 2; ++m)
          for (int64_t n = 0; n < 4; ++n) {
            double sum = 0;
            for (int64_t k = 0; k < 7; ++k)
              sum += x.At({b, m, k}) * w.At({b / (6 / batches), n, k});
            ExpectClose(out.At({b, m, n}), sum);
          }
      EXPECT_TRUE(out.GapsAreUntouched());
    }
}

TEST(Matmul, TwoBatchDimensionsOfWhichTheWeightsLackOne) {
  TestTensor x(Type::kF32, {3, 4, 2, 5}), w(Type::kF32, {2, 6, 5}), out(Type::kF32, {3, 4, 2, 6});
  x.Random(1);
  w.Random(2);
  ASSERT_TRUE(RunReference(ops::kMatmul, std::vector{x.host(), w.host()}, out.host()));
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 4; ++b)
      for (int64_t m = 0; m < 2; ++m)
        for (int64_t n = 0; n < 6; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < 5; ++k) sum += x.At({a, b, m, k}) * w.At({b / 2, n, k});
          ExpectClose(out.At({a, b, m, n}), sum);
        }
}

TEST(Matmul, ZeroSizesAreNoOps) {
  TestTensor w(Type::kQ4_1, {5, 64}), none(Type::kF32, {0, 64}), nothing(Type::kF32, {0, 5});
  w.Random(1);
  EXPECT_TRUE(RunReference(ops::kMatmul, std::vector{none.host(), w.host()}, nothing.host()));
  TestTensor x(Type::kF32, {3, 64}), no_rows(Type::kQ4_1, {0, 64}), empty(Type::kF32, {3, 0});
  x.Random(1);
  EXPECT_TRUE(RunReference(ops::kMatmul, std::vector{x.host(), no_rows.host()}, empty.host()));
  TestTensor no_batch(Type::kF32, {0, 2, 4}), of_none(Type::kF32, {0, 3, 4});
  TestTensor out(Type::kF32, {0, 2, 3});
  EXPECT_TRUE(RunReference(ops::kMatmul, std::vector{no_batch.host(), of_none.host()}, out.host()));
}

TEST(Matmul, CostsAreTwoForEachProduct) {
  const Layout x = Contiguous(Type::kF32, std::array<int64_t, 2>{3, 64});
  const Layout w = Contiguous(Type::kQ4_1, std::array<int64_t, 2>{5, 64});
  const Layout out = Contiguous(Type::kF32, std::array<int64_t, 2>{3, 5});
  const OpCost cost = ops::kMatmul.cost(std::vector{x, w}, out);
  EXPECT_EQ(cost.flops, 2 * 3 * 5 * 64);
  EXPECT_EQ(cost.bytes, 3 * 64 * 4 + 5 * 2 * 20 + 3 * 5 * 4);
}

}  // namespace
}  // namespace tandem
