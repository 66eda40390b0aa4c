#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/ops.h"
#include "graph/testing_tensors.h"

namespace tandem {
namespace {

using namespace testing_tensors;  // NOLINT: it is for tests only.

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

TEST(Softmax, IsTheShareOfTheExponential) {
  for (const Storage storage : kStorages)
    for (const bool masked : {false, true}) {
      TestTensor x(Type::kF32, {2, 3, 5}, storage), out(Type::kF32, {2, 3, 5}, storage);
      TestTensor mask(Type::kF32, {3, 5}, storage);
      x.Random(1, -3, 3);
      mask.Random(2, -2, 0);
      ASSERT_TRUE(RunReference(ops::kSoftmax,
                               std::vector{x.host(), masked ? mask.host() : Absent()}, out.host(),
                               {0.7}));
      for (int64_t a = 0; a < 2; ++a)
        for (int64_t t = 0; t < 3; ++t) {
          const auto weight = [&](int64_t s) {
            return std::exp(0.7 * x.At({a, t, s}) + (masked ? mask.At({t, s}) : 0));
          };
          double sum = 0;
          for (int64_t s = 0; s < 5; ++s) sum += weight(s);
          for (int64_t s = 0; s < 5; ++s) EXPECT_NEAR(out.At({a, t, s}), weight(s) / sum, 1e-7);
        }
      EXPECT_TRUE(out.GapsAreUntouched());
    }
}

TEST(Softmax, LargeNumbersDoNotOverflow) {
  TestTensor x(Type::kF32, {3}), out(Type::kF32, {3});
  x.Set({1e4, 1e4, -1e4});
  ASSERT_TRUE(RunReference(ops::kSoftmax, std::vector{x.host(), Absent()}, out.host()));
  EXPECT_EQ(out.Values(), (std::vector<double>{0.5, 0.5, 0}));
}

TEST(Softmax, WhatIsHiddenHasNoShare) {
  TestTensor x(Type::kF32, {3, 3}), mask(Type::kF32, {3, 3}), out(Type::kF32, {3, 3});
  x.Set({1, 1, 1, 1, 1, 1, 1, 1, 1});
  mask.Set({0, -kInfinity, -kInfinity, 0, 0, -kInfinity, -kInfinity, -kInfinity, -kInfinity});
  ASSERT_TRUE(RunReference(ops::kSoftmax, std::vector{x.host(), mask.host()}, out.host()));
  EXPECT_EQ(out.Values(), (std::vector<double>{1, 0, 0, 0.5, 0.5, 0, 0, 0, 0}));
}

TEST(Softmax, WhatIsNotANumberShowsInItsRowOnly) {
  TestTensor x(Type::kF32, {4, 2}), out(Type::kF32, {4, 2});
  x.Set({kNotANumber, kNotANumber, 1, kNotANumber, kNotANumber, 1, 1, 1});
  ASSERT_TRUE(RunReference(ops::kSoftmax, std::vector{x.host(), Absent()}, out.host()));
  const std::vector<double> values = out.Values();
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
  EXPECT_EQ(values[6], 0.5);
  EXPECT_EQ(values[7], 0.5);
}

// Attention from its formula, with grouped heads.
struct Attention {
  int64_t tokens = 3, heads = 6, groups = 2, keys = 7, width = 4, values = 5;
  double scale = 0;
  Type type = Type::kF32;

  void Check(Storage storage, const std::vector<double>* positions) const {
    TestTensor q(Type::kF32, {tokens, heads, width}, storage);
    TestTensor k(type, {keys, groups, width}, storage), v(type, {keys, groups, values}, storage);
    TestTensor at(Type::kI32, {tokens}, storage);
    TestTensor out(Type::kF32, {tokens, heads, values}, storage);
    q.Random(1, -2, 2);
    k.Random(2, -2, 2);
    v.Random(3, -2, 2);
    if (positions != nullptr) at.Set(*positions);
    ASSERT_TRUE(RunReference(
        ops::kAttention,
        std::vector{q.host(), k.host(), v.host(), positions != nullptr ? at.host() : Absent()},
        out.host(), {scale}));
    const double factor = scale == 0 ? 1 / std::sqrt(static_cast<double>(width)) : scale;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t g = h * groups / heads;
        std::vector<double> shares(static_cast<size_t>(keys), 0.0);
        double sum = 0;
        for (int64_t s = 0; s < keys; ++s) {
          if (positions != nullptr && static_cast<double>(s) > (*positions)[static_cast<size_t>(t)])
            continue;
          double dot = 0;
          for (int64_t i = 0; i < width; ++i) dot += q.At({t, h, i}) * k.At({s, g, i});
          sum += shares[static_cast<size_t>(s)] = std::exp(dot * factor);
        }
        for (int64_t e = 0; e < values; ++e) {
          double expected = 0;
          for (int64_t s = 0; s < keys && sum > 0; ++s)
            expected += shares[static_cast<size_t>(s)] / sum * v.At({s, g, e});
          EXPECT_NEAR(out.At({t, h, e}), expected, 1e-6) << t << " " << h << " " << e;
        }
      }
    EXPECT_TRUE(out.GapsAreUntouched());
  }
};

TEST(AttentionReference, AllKeysAreSeenWithoutPositions) {
  for (const Storage storage : kStorages) Attention().Check(storage, nullptr);
}
TEST(AttentionReference, KeysUpToThePositionAreSeen) {
  const std::vector<double> middle = {2, 3, 4}, beyond = {0, 6, 100};
  for (const Storage storage : kStorages) {
    Attention().Check(storage, &middle);
    Attention().Check(storage, &beyond);
  }
}
TEST(AttentionReference, ATokenThatSeesNothingGetsZeros) {
  const std::vector<double> positions = {-1, 0, -5};
  Attention().Check(Storage::kPacked, &positions);
}
TEST(AttentionReference, HalfPrecisionCachesAndAScale) {
  for (const Storage storage : kStorages)
    Attention{.scale = 0.3, .type = Type::kF16}.Check(storage, nullptr);
}
TEST(AttentionReference, GroupsOfOneAndOfAll) {
  Attention{.groups = 6}.Check(Storage::kPacked, nullptr);
  Attention{.groups = 1}.Check(Storage::kPacked, nullptr);
}
TEST(AttentionReference, ZeroSizes) {
  Attention{.tokens = 0}.Check(Storage::kPacked, nullptr);
  Attention{.keys = 0}.Check(Storage::kPacked, nullptr);
  Attention{.values = 0}.Check(Storage::kPacked, nullptr);
  Attention{.heads = 0, .groups = 0}.Check(Storage::kPacked, nullptr);
  Attention{.width = 0, .scale = 1}.Check(Storage::kPacked, nullptr);
}
TEST(AttentionReference, NoWidthWeighsAllKeysAlike) {
  TestTensor q(Type::kF32, {1, 1, 0}), k(Type::kF32, {2, 1, 0}), v(Type::kF32, {2, 1, 1});
  TestTensor out(Type::kF32, {1, 1, 1});
  v.Set({1, 4});
  ASSERT_TRUE(RunReference(ops::kAttention, std::vector{q.host(), k.host(), v.host(), Absent()},
                           out.host()));
  EXPECT_EQ(out.At({0, 0, 0}), 2.5);
}

// Keys beyond the position are not read: a cache's rest may be anything.
TEST(AttentionReference, WhatIsNotSeenIsNotRead) {
  TestTensor q(Type::kF32, {1, 1, 1}), k(Type::kF32, {2, 1, 1}), v(Type::kF32, {2, 1, 1});
  TestTensor at(Type::kI32, {1}), out(Type::kF32, {1, 1, 1});
  q.Set({1});
  k.Set({1, kNotANumber});
  v.Set({3, kNotANumber});
  const std::vector inputs = {q.host(), k.host(), v.host(), at.host()};
  at.Set({0});
  ASSERT_TRUE(RunReference(ops::kAttention, inputs, out.host()));
  EXPECT_EQ(out.At({0, 0, 0}), 3);
  at.Set({1});
  ASSERT_TRUE(RunReference(ops::kAttention, inputs, out.host()));
  EXPECT_TRUE(std::isnan(out.At({0, 0, 0})));
}

TEST(AttentionReference, CostsCountScoresAndSums) {
  const Layout q = Contiguous(Type::kF32, std::array<int64_t, 3>{3, 6, 4});
  const Layout k = Contiguous(Type::kF16, std::array<int64_t, 3>{7, 2, 4});
  const Layout v = Contiguous(Type::kF16, std::array<int64_t, 3>{7, 2, 5});
  const Layout out = Contiguous(Type::kF32, std::array<int64_t, 3>{3, 6, 5});
  const OpCost cost = ops::kAttention.cost(std::vector{q, k, v, Layout()}, out);
  EXPECT_EQ(cost.flops, 3 * 6 * 7 * 2 * (4 + 5));
  EXPECT_EQ(cost.bytes, 3 * 6 * 4 * 4 + 7 * 2 * (4 + 5) * 2 + 3 * 6 * 5 * 4);
}

}  // namespace
}  // namespace tandem
