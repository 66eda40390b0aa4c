// Every op against the reference kernels, with each instruction set that this machine has.
#include "backends/cpu/cpu.h"
#include "backends/cpu/kernel_case.h"
#include "backends/cpu/simd.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

constexpr Arrangement kArrangements[] = {Arrangement::kPacked, Arrangement::kPadded,
                                         Arrangement::kTransposed};
constexpr Type kReals[] = {Type::kF32, Type::kF16, Type::kBF16};
constexpr Type kWeights[] = {Type::kF32,  Type::kF16,  Type::kBF16,
                             Type::kQ4_0, Type::kQ4_1, Type::kQ8_0};

class KernelsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (FindSimd(GetParam()) == nullptr) GTEST_SKIP() << "this machine has no " << GetParam();
    backend_ = MakeCpuBackend({.threads = 2, .isa = GetParam()});
    ASSERT_EQ(backend_->devices().size(), 1u) << backend_->unavailable();
    device_ = backend_->devices()[0];
  }
  void Check(const Case& c, double bound = 2e-6) {
    const Result<TestTensor> want = Reference(c);
    ASSERT_TRUE(want) << want.error().message;
    const Result<TestTensor> got = RunOn(*device_, c);
    ASSERT_TRUE(got) << got.error().message;
    ExpectClose(*got, *want, bound);
  }

  std::unique_ptr<Backend> backend_;
  Device* device_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, testing::Values("portable", "avx2", "avx512"),
                         [](const auto& info) { return info.param; });

// Activations that 8 bits hold exactly: whole numbers up to 127, with 127 in each half of a block.
TestTensor ExactActivations(std::vector<int64_t> dims, uint32_t seed,
                            Arrangement arrangement = Arrangement::kPacked) {
  TestTensor t = Blank(Type::kF32, std::move(dims), arrangement);
  std::mt19937 random(seed);
  std::vector<double> values(static_cast<size_t>(t.layout.Elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 16 == 5 ? -127 : static_cast<double>(random() % 255) - 127;
  for (double& v : values) v /= 64;
  t.SetValues(values);
  return t;
}

Case Matmul(TestTensor x, TestTensor w, bool exact, std::vector<int64_t> out) {
  return {&ops::kMatmul,
          {std::move(x), std::move(w)},
          {exact ? 1.0 : 0.0},
          Blank(Type::kF32, std::move(out))};
}

TEST_P(KernelsTest, MatmulWithPackedWeights) {
  for (Type type : kWeights)
    for (bool exact : {false, true})
      for (int64_t k : {32, 96, 800})
        for (int64_t rows : {1, 33, 80})
          for (int64_t tokens : {1, 3, 13}) {
            SCOPED_TRACE(fmt::format("{} exact {} k {} rows {} tokens {}", Info(type).name, exact,
                                     k, rows, tokens));
            TestTensor x = ExactActivations({tokens, k}, static_cast<uint32_t>(k + tokens));
            TestTensor w = Constant(Random(type, {rows, k}, static_cast<uint32_t>(rows)));
            Check(Matmul(x, w, exact, {tokens, rows}));
            if (HasFatalFailure()) return;
          }
}

TEST_P(KernelsTest, MatmulLongPromptsInChunks) {
  for (Type type : {Type::kQ4_0, Type::kQ4_1, Type::kQ8_0, Type::kF16}) {
    SCOPED_TRACE(Info(type).name);
    Check(Matmul(ExactActivations({401, 64}, 1), Constant(Random(type, {80, 64}, 2)), false,
                 {401, 80}));
  }
}

TEST_P(KernelsTest, MatmulRoundsActivationsToEightBits) {
  for (Type type : {Type::kQ4_0, Type::kQ4_1, Type::kQ8_0})
    for (int64_t tokens : {1, 9}) {
      SCOPED_TRACE(fmt::format("{} tokens {}", Info(type).name, tokens));
      const Case c = Matmul(Random(Type::kF32, {tokens, 576}, 1),
                            Constant(Random(type, {48, 576}, 2)), false, {tokens, 48});
      Check(c, 2e-2);
    }
}

TEST_P(KernelsTest, MatmulWithTheMostNegativeByte) {
  Case c = Matmul(ExactActivations({7, 64}, 1), Constant(Random(Type::kQ8_0, {16, 64}, 2)), false,
                  {7, 16});
  for (size_t i = 0; i < c.inputs[1].bytes.size(); ++i)
    if (i % 34 >= 2) c.inputs[1].bytes[i] = std::byte{0x80};
  Check(c);
}

TEST_P(KernelsTest, MatmulWithStridedOperands) {
  for (Type type : kWeights)
    for (Arrangement xs : kArrangements)
      for (Arrangement ws : kArrangements)
        for (int64_t tokens : {2, 11}) {
          SCOPED_TRACE(fmt::format("{} x {} w {} tokens {}", Info(type).name, static_cast<int>(xs),
                                   static_cast<int>(ws), tokens));
          Check(Matmul(Random(Type::kF32, {tokens, 1056}, 1, xs), Random(type, {37, 1056}, 2, ws),
                       true, {tokens, 37}));
          if (HasFatalFailure()) return;
        }
  for (Arrangement xs : kArrangements) {
    Check(Matmul(ExactActivations({9, 64}, 1, xs), Constant(Random(Type::kQ4_1, {37, 64}, 2)),
                 false, {9, 37}));
    Check(Matmul(ExactActivations({2, 64}, 1, xs), Constant(Random(Type::kQ8_0, {37, 64}, 2)),
                 false, {2, 37}));
  }
}

TEST_P(KernelsTest, MatmulBroadcastsAndGroupsBatches) {
  for (bool constant : {false, true})
    for (Type type : {Type::kF32, Type::kQ4_1}) {
      const auto w = [&](std::vector<int64_t> dims) {
        TestTensor t = Random(type, std::move(dims), 2);
        t.constant = constant;
        return t;
      };
      SCOPED_TRACE(fmt::format("{} constant {}", Info(type).name, constant));
      Check(Matmul(Random(Type::kF32, {6, 5, 64}, 1), w({20, 64}), true, {6, 5, 20}));
      Check(Matmul(Random(Type::kF32, {6, 5, 64}, 1), w({1, 20, 64}), true, {6, 5, 20}));
      Check(Matmul(Random(Type::kF32, {6, 5, 64}, 1), w({2, 20, 64}), true, {6, 5, 20}));
      Check(Matmul(Random(Type::kF32, {2, 6, 7, 64}, 1), w({1, 3, 20, 64}), true, {2, 6, 7, 20}));
      Check(Matmul(Random(Type::kF32, {4, 6, 2, 64}, 1), w({2, 6, 20, 64}), true, {4, 6, 2, 20}));
      Check(Matmul(Random(Type::kF32, {2, 3, 9, 64}, 1, Arrangement::kPadded), w({3, 20, 64}), true,
                   {2, 3, 9, 20}));
    }
}

TEST_P(KernelsTest, MatmulOfNothing) {
  Check(Matmul(Random(Type::kF32, {3, 0}, 1), Constant(Random(Type::kF32, {5, 0}, 2)), false,
               {3, 5}));
  Check(Matmul(Random(Type::kF32, {0, 32}, 1), Constant(Random(Type::kQ8_0, {5, 32}, 2)), false,
               {0, 5}));
}

TEST_P(KernelsTest, ScratchServesSmallerSizes) {
  // Asked at the largest size, run at a smaller one.
  for (bool exact : {false, true})
    for (int64_t tokens : {1, 4, 5, 60}) {
      Case largest = Matmul(ExactActivations({64, 96}, 1),
                            Constant(Random(Type::kQ4_1, {40, 96}, 2)), exact, {64, 40});
      Case small = largest;
      small.inputs[0] = ExactActivations({tokens, 96}, 3);
      small.output = Blank(Type::kF32, {tokens, 40});
      const auto scratch = [&](const Case& c) {
        std::vector<Layout> layouts;
        std::unique_ptr<bool[]> present, constant;
        return device_->FindKernel(QueryOf(c, layouts, present, constant))->scratch_bytes;
      };
      EXPECT_LE(scratch(small), scratch(largest));
    }
}

TEST_P(KernelsTest, Rows) {
  for (Type type : kWeights)
    for (Type id : {Type::kI32, Type::kI64})
      for (int64_t k : {32, 64, 1024 + 64}) {
        SCOPED_TRACE(fmt::format("{} {} {}", Info(type).name, Info(id).name, k));
        Case c{&ops::kRows,
               {Constant(Random(type, {50, k}, 1)), Ids(id, {49, 0, 7, 7, 20})},
               {},
               Blank(Type::kF32, {5, k})};
        Check(c, 0);
      }
  Case strided{&ops::kRows,
               {Random(Type::kF16, {50, 40}, 1, Arrangement::kTransposed),
                Ids(Type::kI32, {3, 2, 1, 0, 49, 48})},
               {},
               Blank(Type::kF32, {2, 3, 40})};
  strided.inputs[1].layout = Contiguous(Type::kI32, std::vector<int64_t>{2, 3});
  Check(strided, 0);
}

TEST_P(KernelsTest, IdsOutOfRangeAreErrorsThatNameThem) {
  for (int64_t id : {-1, 50, 1 << 30}) {
    Case rows{&ops::kRows,
              {Random(Type::kF32, {50, 8}, 1), Ids(Type::kI32, {3, id})},
              {},
              Blank(Type::kF32, {2, 8})};
    const Result<TestTensor> got = RunOn(*device_, rows);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kInvalid);
    for (const std::string& part : {std::string("node"), std::to_string(id), std::string("50")})
      EXPECT_NE(got.error().message.find(part), std::string::npos) << got.error().message;
    Case update{
        &ops::kUpdateRows,
        {Random(Type::kF32, {50, 8}, 1), Random(Type::kF32, {2, 8}, 2), Ids(Type::kI64, {3, id})},
        {},
        Blank(Type::kF32, {50, 8})};
    EXPECT_FALSE(RunOn(*device_, update));
  }
}

TEST_P(KernelsTest, UpdateRows) {
  for (Type state : kReals)
    for (Type rows : kReals)
      for (Arrangement arrangement : kArrangements) {
        SCOPED_TRACE(fmt::format("{} {} {}", Info(state).name, Info(rows).name,
                                 static_cast<int>(arrangement)));
        for (const std::vector<int64_t>& shape :
             {std::vector<int64_t>{}, {1}, {40}, {3, 70}, {2, 3, 5}}) {
          std::vector<int64_t> s = {20}, r = {4};
          s.insert(s.end(), shape.begin(), shape.end());
          r.insert(r.end(), shape.begin(), shape.end());
          Case c{&ops::kUpdateRows,
                 {Random(state, s, 1, arrangement), Random(rows, r, 2, arrangement),
                  Ids(Type::kI32, {19, 0, 5, 0})},
                 {},
                 Blank(state, s, arrangement)};
          Check(c, 0);
        }
      }
  Case none{&ops::kUpdateRows,
            {Random(Type::kF16, {5, 8}, 1), Random(Type::kF32, {0, 8}, 2), Ids(Type::kI32, {})},
            {},
            Blank(Type::kF16, {5, 8})};
  Check(none, 0);
}

TEST_P(KernelsTest, HalvesAreRoundedToEven) {
  const std::vector<double> values = {1 + 0x1p-11,
                                      1 + 0x3p-11,
                                      1 + 0x1p-11 + 0x1p-20,
                                      65504,
                                      65519.996,
                                      65520,
                                      -65520,
                                      0x1p-24,
                                      0x1p-25,
                                      0x1.000002p-25,
                                      0x1.8p-24,
                                      -0x1.ffcp-15,
                                      0x1.ffep-15,
                                      0x1p-14 - 0x1p-25,
                                      0,
                                      -0.0,
                                      3e38,
                                      -1e-40};
  const int64_t n = static_cast<int64_t>(values.size());
  Case c{&ops::kUpdateRows,
         {Random(Type::kF16, {1, n}, 1), Blank(Type::kF32, {1, n}), Ids(Type::kI32, {0})},
         {},
         Blank(Type::kF16, {1, n})};
  c.inputs[1].SetValues(values);
  const Result<TestTensor> want = Reference(c), got = RunOn(*device_, c);
  ASSERT_TRUE(want && got);
  EXPECT_EQ(want->bytes, got->bytes);
}

TEST_P(KernelsTest, Copy) {
  for (Type from : kReals)
    for (Type to : kReals)
      for (Arrangement arrangement : kArrangements)
        for (const std::vector<int64_t>& dims :
             {std::vector<int64_t>{7}, {3, 50}, {2, 3, 600}, {2, 2, 3, 17}}) {
          SCOPED_TRACE(fmt::format("{} {} {} rank {}", Info(from).name, Info(to).name,
                                   static_cast<int>(arrangement), dims.size()));
          Check({&ops::kCopy,
                 {Random(from, dims, 1, arrangement)},
                 {static_cast<double>(to)},
                 Blank(to, dims)},
                0);
        }
}

TEST_P(KernelsTest, Elementwise) {
  for (const OpDefinition* op : {&ops::kSilu, &ops::kSwiglu, &ops::kAdd, &ops::kMul, &ops::kScale})
    for (Arrangement arrangement : kArrangements)
      for (const std::vector<int64_t>& dims :
           {std::vector<int64_t>{}, {1}, {37}, {5, 1}, {3, 1100}, {2, 3, 19}, {2, 3, 4, 33}}) {
        SCOPED_TRACE(
            fmt::format("{} {} rank {}", op->name, static_cast<int>(arrangement), dims.size()));
        Case c{
            op, {Random(Type::kF32, dims, 1, arrangement)}, Defaults(*op), Blank(Type::kF32, dims)};
        if (op == &ops::kScale) c.attributes = {0.3, -1.5};
        if (op->required_inputs == 2)
          c.inputs.push_back(Random(Type::kF32, dims, 2, Arrangement::kPacked));
        Check(c);
      }
}

TEST_P(KernelsTest, LargeElementwiseInChunks) {
  Check({&ops::kSwiglu,
         {Random(Type::kF32, {200, 999}, 1), Random(Type::kF32, {200, 999}, 2)},
         {},
         Blank(Type::kF32, {200, 999})});
  Check({&ops::kAdd,
         {Random(Type::kF32, {200, 999}, 1), Random(Type::kF32, {999}, 2)},
         {},
         Blank(Type::kF32, {200, 999})});
}

TEST_P(KernelsTest, SiluOfLargeNumbers) {
  Case c{&ops::kSilu, {Blank(Type::kF32, {8})}, {}, Blank(Type::kF32, {8})};
  c.inputs[0].SetValues({-1e4, -100, -88, -20, 20, 88, 100, 1e4});
  Check(c, 1e-7);
}

TEST_P(KernelsTest, AddAndMulBroadcast) {
  for (const OpDefinition* op : {&ops::kAdd, &ops::kMul})
    for (const std::vector<int64_t>& b : {std::vector<int64_t>{},
                                          {1},
                                          {40},
                                          {3, 40},
                                          {1, 40},
                                          {3, 1},
                                          {5, 1, 40},
                                          {5, 3, 1},
                                          {2, 1, 3, 1},
                                          {2, 5, 3, 40}})
      for (Arrangement arrangement : kArrangements) {
        SCOPED_TRACE(fmt::format("{} b rank {}", op->name, b.size()));
        Check({op,
               {Random(Type::kF32, {2, 5, 3, 40}, 1), Random(Type::kF32, b, 2, arrangement)},
               {},
               Blank(Type::kF32, {2, 5, 3, 40})});
      }
}

TEST_P(KernelsTest, RmsNorm) {
  for (Arrangement arrangement : kArrangements)
    for (int64_t k : {1, 17, 576, 1300})
      for (bool weighted : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(arrangement), k, weighted));
        Check({&ops::kRmsNorm,
               {Random(Type::kF32, {3, 7, k}, 1, arrangement),
                weighted ? Random(Type::kF32, {k}, 2) : Absent()},
               {1e-5},
               Blank(Type::kF32, {3, 7, k})});
      }
}

TEST_P(KernelsTest, Softmax) {
  for (Arrangement arrangement : kArrangements)
    for (int64_t k : {1, 17, 600, 1300})
      for (bool masked : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(arrangement), k, masked));
        Case c{&ops::kSoftmax,
               {Random(Type::kF32, {2, 5, k}, 1, arrangement),
                masked ? Random(Type::kF32, {5, k}, 2) : Absent()},
               {3.5},
               Blank(Type::kF32, {2, 5, k})};
        if (masked && k > 2) {
          std::vector<double> mask = c.inputs[1].Values();
          for (size_t i = 0; i < mask.size(); i += 3) mask[i] = -INFINITY;
          c.inputs[1].SetValues(mask);
        }
        Check(c, 4e-6);
      }
}

TEST_P(KernelsTest, RowsThatAMaskHidesEntirely) {
  Case c{&ops::kSoftmax,
         {Random(Type::kF32, {2, 40}, 1), Blank(Type::kF32, {2, 40})},
         {1.0},
         Blank(Type::kF32, {2, 40})};
  c.inputs[1].SetValues(std::vector<double>(80, -INFINITY));
  Check(c, 1e-6);
}

TEST_P(KernelsTest, Rope) {
  for (Arrangement arrangement : kArrangements)
    for (bool halves : {false, true})
      for (int64_t width : {2, 10, 64, 96, 1100})
        for (bool factors : {false, true}) {
          const int64_t dims = width == 96 ? 64 : 0, pairs = (dims == 0 ? width : dims) / 2;
          SCOPED_TRACE(fmt::format("{} halves {} width {} factors {}",
                                   static_cast<int>(arrangement), halves, width, factors));
          Case c{&ops::kRope,
                 {Random(Type::kF32, {5, 3, width}, 1, arrangement),
                  Ids(Type::kI32, {0, 1, 17, 4095, 123456}),
                  factors ? Random(Type::kF32, {pairs}, 2) : Absent()},
                 {static_cast<double>(dims), 10000, 0.5, halves ? 1.0 : 0.0},
                 Blank(Type::kF32, {5, 3, width})};
          if (factors) {
            std::vector<double> f = c.inputs[2].Values();
            for (double& v : f) v = 1.5 + std::abs(v);
            c.inputs[2].SetValues(f);
          }
          Check(c);
        }
}

TEST_P(KernelsTest, Argmax) {
  for (Arrangement arrangement : kArrangements)
    for (int64_t k : {1, 17, 513, 5000}) {
      Case c{&ops::kArgmax,
             {Random(Type::kF32, {2, 4, k}, 1, arrangement)},
             {},
             Blank(Type::kI32, {2, 4})};
      Check(c, 0);
      c.inputs[0].SetValues(std::vector<double>(static_cast<size_t>(8 * k), -2.0));
      Check(c, 0);  // The first of equals.
      c.inputs[0].SetValues(std::vector<double>(static_cast<size_t>(8 * k), -INFINITY));
      Check(c, 0);
    }
}

Case Attention(int64_t tokens, int64_t heads, int64_t groups, int64_t width, int64_t value_width,
               int64_t keys, Type cache, Arrangement arrangement, bool positions) {
  Case c{
      &ops::kAttention,
      {Random(Type::kF32, {tokens, heads, width}, 1),
       Random(cache, {keys, groups, width}, 2, arrangement),
       Random(cache, {keys, groups, value_width}, 3, arrangement),
       positions ? Ids(Type::kI32, std::vector<int64_t>(static_cast<size_t>(tokens))) : Absent()},
      {0.0},
      Blank(Type::kF32, {tokens, heads, value_width})};
  if (positions) {
    std::vector<double> at;
    for (int64_t t = 0; t < tokens; ++t)
      at.push_back(static_cast<double>(std::max<int64_t>(0, keys - tokens + t)));
    c.inputs[3].SetValues(at);
  }
  return c;
}

TEST_P(KernelsTest, Attention) {
  for (Type cache : {Type::kF32, Type::kF16})
    for (Arrangement arrangement : kArrangements)
      for (int64_t tokens : {1, 3, 35})
        for (int64_t keys : {7, 130, 300})
          for (bool positions : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {} tokens {} keys {} positions {}", Info(cache).name,
                                     static_cast<int>(arrangement), tokens, keys, positions));
            Check(Attention(tokens, 9, 3, 64, 64, keys, cache, arrangement, positions), 4e-6);
            if (HasFatalFailure()) return;
          }
}

TEST_P(KernelsTest, AttentionOfOddWidthsAndGroups) {
  for (int64_t tokens : {1, 20})
    for (int64_t heads : {1, 4, 5, 6, 70})
      for (int64_t width : {16, 20, 128})
        for (int64_t value_width : {16, 72, 128}) {
          SCOPED_TRACE(
              fmt::format("tokens {} heads {} widths {} {}", tokens, heads, width, value_width));
          const int64_t groups = heads == 6 ? 2 : heads == 5 ? 5 : 1;
          Check(Attention(tokens, heads, groups, width, value_width, 33, Type::kF16,
                          Arrangement::kPacked, true),
                4e-6);
          if (HasFatalFailure()) return;
        }
}

TEST_P(KernelsTest, AttentionWithPositionsBeyondTheKeys) {
  for (int64_t tokens : {2, 12}) {
    Case c = Attention(tokens, 4, 2, 32, 32, 150, Type::kF16, Arrangement::kPacked, true);
    std::vector<double> at;
    for (int64_t t = 0; t < tokens; ++t) at.push_back(t % 3 == 0 ? 100000 : t % 3 == 1 ? 0 : 140);
    c.inputs[3].SetValues(at);
    Check(c, 4e-6);
  }
}

TEST_P(KernelsTest, AttentionThatSeesNothing) {
  for (int64_t tokens : {2, 12}) {
    Case c = Attention(tokens, 4, 2, 32, 32, 9, Type::kF32, Arrangement::kPacked, true);
    c.inputs[3].SetValues(std::vector<double>(static_cast<size_t>(tokens), -1));
    Check(c);
    Check(Attention(tokens, 4, 2, 32, 32, 0, Type::kF32, Arrangement::kPacked, false));
  }
}

TEST_P(KernelsTest, AnyNumberOfThreadsGivesTheSameBits) {
  const auto w = [](Type type, int64_t rows) { return Constant(Random(type, {rows, 192}, 2)); };
  std::vector<Case> cases;
  for (int64_t tokens : {1, 4, 64})
    for (bool exact : {false, true}) {
      for (Type type : kWeights)
        cases.push_back(
            Matmul(Random(Type::kF32, {tokens, 192}, 1), w(type, 700), exact, {tokens, 700}));
      cases.push_back(Matmul(Random(Type::kF32, {tokens, 192}, 1),
                             Random(Type::kF16, {700, 192}, 3), exact, {tokens, 700}));
    }
  for (int64_t tokens : {1, 90})
    cases.push_back(Attention(tokens, 9, 3, 64, 64, 700, Type::kF16, Arrangement::kPacked, true));
  cases.push_back({&ops::kRmsNorm,
                   {Random(Type::kF32, {64, 576}, 1), Random(Type::kF32, {576}, 2)},
                   {1e-5},
                   Blank(Type::kF32, {64, 576})});
  cases.push_back(
      {&ops::kSoftmax, {Random(Type::kF32, {64, 576}, 1)}, {1.0}, Blank(Type::kF32, {64, 576})});
  for (const Case& c : cases) {
    std::vector<std::byte> first;
    for (int threads : {1, 2, 3, 4}) {
      const auto backend = MakeCpuBackend({.threads = threads, .isa = GetParam()});
      const Result<TestTensor> got = RunOn(*backend->devices()[0], c);
      ASSERT_TRUE(got) << got.error().message;
      if (threads == 1)
        first = got->bytes;
      else
        EXPECT_EQ(first, got->bytes) << c.op->name << " with " << threads << " threads";
    }
  }
}

TEST_P(KernelsTest, OpsOfUsersRunTheirReferenceKernel) {
  OpDefinition doubled = ops::kScale;
  doubled.name = "doubled";
  doubled.attributes = {};
  doubled.reference = [](std::span<const HostTensor> inputs, const HostTensor& output,
                         std::span<const double>) -> Result<void> {
    for (int64_t i = 0; i < output.layout.Elements(); ++i)
      reinterpret_cast<float*>(output.data)[i] =
          2 * reinterpret_cast<const float*>(inputs[0].data)[i];
    return {};
  };
  Case c{&doubled, {Random(Type::kF32, {3, 5}, 1)}, {}, Blank(Type::kF32, {3, 5})};
  Check(c, 0);
  doubled.reference = nullptr;
  const Result<TestTensor> got = RunOn(*device_, c);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(got.error().message, "cpu: no kernel named doubled");
}

}  // namespace
}  // namespace tandem::cpu
