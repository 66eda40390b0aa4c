#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "graph/ops.h"
#include "graph/testing_tensors.h"

namespace tandem {
namespace {

using namespace testing_tensors;  // NOLINT: it is for tests only.

double SiluByFormula(double x) { return x * (1 / (1 + std::exp(-x))); }

struct UnaryCase {
  const OpDefinition* op;
  std::vector<double> attributes;
  std::function<double(double)> formula;
};

TEST(Elementwise, UnaryOpsInAnyStorage) {
  const UnaryCase cases[] = {
      {&ops::kSilu, {}, SiluByFormula},
      {&ops::kScale, {}, [](double x) { return x; }},
      {&ops::kScale, {-2.5, 0.75}, [](double x) { return -2.5 * x + 0.75; }},
  };
  for (const UnaryCase& c : cases)
    for (const Storage in : kStorages)
      for (const Storage to : kStorages)
        for (const std::vector<int64_t>& dims :
             {std::vector<int64_t>{}, {7}, {2, 3}, {2, 1, 3, 4}, {3, 0}, {0, 3}}) {
          TestTensor x(Type::kF32, dims, in), out(Type::kF32, dims, to);
          x.Random(1, -20, 20);
          std::vector<double> attributes = c.attributes;
          for (size_t i = attributes.size(); i < c.op->attributes.size(); ++i)
            attributes.push_back(c.op->attributes[i].value);
          ASSERT_TRUE(c.op->reference(std::vector{x.host()}, out.host(), attributes));
          const std::vector<double> from = x.Values(), got = out.Values();
          ASSERT_EQ(got.size(), from.size());
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_NEAR(got[i], c.formula(from[i]), 1e-6 * std::abs(c.formula(from[i])));
          EXPECT_TRUE(out.GapsAreUntouched());
        }
}

TEST(Elementwise, SiluAtItsEnds) {
  TestTensor x(Type::kF32, {3}), out(Type::kF32, {3});
  x.Set({-1e30, 0, 1e30});
  ASSERT_TRUE(RunReference(ops::kSilu, std::vector{x.host()}, out.host()));
  EXPECT_EQ(out.At({0}), 0);
  EXPECT_EQ(out.At({1}), 0);
  EXPECT_EQ(out.At({2}), x.At({2}));
}

// b has every combination of whole and single sizes, and of leading sizes left out.
TEST(Elementwise, BinaryOpsBroadcastTheSecond) {
  const std::vector<int64_t> dims = {2, 3, 4};
  for (const OpDefinition* op : {&ops::kAdd, &ops::kMul})
    for (const Storage storage : kStorages)
      for (int missing = 0; missing <= 3; ++missing)
        for (int single = 0; single < 8; ++single) {
          std::vector<int64_t> b_dims;
          for (int i = missing; i < 3; ++i)
            b_dims.push_back((single >> i & 1) != 0 ? 1 : dims[static_cast<size_t>(i)]);
          TestTensor a(Type::kF32, dims, storage), b(Type::kF32, b_dims, storage);
          TestTensor out(Type::kF32, dims, storage);
          a.Random(1);
          b.Random(2);
          ASSERT_TRUE(RunReference(*op, std::vector{a.host(), b.host()}, out.host()));
          const std::vector<double> b_values = b.Values();
          for (int64_t i = 0; i < 2; ++i)
            for (int64_t j = 0; j < 3; ++j)
              for (int64_t k = 0; k < 4; ++k) {
                int64_t flat = 0;
                const int64_t index[] = {i, j, k};
                for (int d = missing; d < 3; ++d) {
                  const int64_t size = b_dims[static_cast<size_t>(d - missing)];
                  flat = flat * size + (size == 1 ? 0 : index[d]);
                }
                const double x = a.At({i, j, k}), y = b_values[static_cast<size_t>(flat)];
                EXPECT_NEAR(out.At({i, j, k}), op == &ops::kAdd ? x + y : x * y, 1e-7);
              }
          EXPECT_TRUE(out.GapsAreUntouched());
        }
}

TEST(Elementwise, BinaryOpsOnNothing) {
  TestTensor a(Type::kF32, {0, 4}), b(Type::kF32, {4}), out(Type::kF32, {0, 4});
  b.Random(1);
  for (const OpDefinition* op : {&ops::kAdd, &ops::kMul})
    EXPECT_TRUE(RunReference(*op, std::vector{a.host(), b.host()}, out.host()));
}

TEST(Elementwise, Swiglu) {
  for (const Storage storage : kStorages) {
    TestTensor gate(Type::kF32, {3, 5}, storage), up(Type::kF32, {3, 5}), out(Type::kF32, {3, 5});
    gate.Random(1, -4, 4);
    up.Random(2, -4, 4);
    ASSERT_TRUE(RunReference(ops::kSwiglu, std::vector{gate.host(), up.host()}, out.host()));
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j)
        EXPECT_NEAR(out.At({i, j}), SiluByFormula(gate.At({i, j})) * up.At({i, j}), 2e-6);
  }
}

// Ops that may overwrite their input must give the same when they do.
TEST(Elementwise, InPlaceIsTheSame) {
  for (const OpDefinition* op : ops::All()) {
    if (op->in_place_input < 0 || op->required_inputs > 2 || op == &ops::kRope) continue;
    TestTensor a(Type::kF32, {4, 6}), b(Type::kF32, {4, 6}), out(Type::kF32, {4, 6});
    a.Random(1);
    b.Random(2);
    std::vector<HostTensor> inputs = {a.host()};
    if (op->required_inputs == 2) inputs.push_back(b.host());
    while (inputs.size() < static_cast<size_t>(op->required_inputs + op->optional_inputs))
      inputs.push_back(Absent());
    ASSERT_TRUE(RunReference(*op, inputs, out.host())) << op->name;
    ASSERT_TRUE(RunReference(*op, inputs, a.host())) << op->name;
    EXPECT_EQ(a.Values(), out.Values()) << op->name;
  }
}

TEST(Elementwise, CostsCountEachTensorOnce) {
  const Layout a = Contiguous(Type::kF32, std::array<int64_t, 2>{3, 8});
  const Layout b = Contiguous(Type::kF32, std::array<int64_t, 1>{8});
  const OpCost add = ops::kAdd.cost(std::vector{a, b}, a);
  EXPECT_EQ(add.flops, 24);
  EXPECT_EQ(add.bytes, 4 * (24 + 8 + 24));
  for (const OpDefinition* op : ops::All()) EXPECT_NE(op->cost, nullptr) << op->name;
}

}  // namespace
}  // namespace tandem
