// Every op's kernels against the op's reference: as a processor runs them, and with the lanes and
// barriers of a GPU.
#include <cmath>

#include "backends/opencl/test_device.h"

namespace tandem::opencl {
namespace {

enum class Values { kNormal, kIds, kPositions, kMask, kTies, kFactors };

struct Operand {
  Type type = Type::kF32;
  std::vector<int64_t> dims;
  Arrangement arrangement = Arrangement::kPacked;
  Values values = Values::kNormal;
  int64_t range = 0;  // kIds, kPositions.
  bool present = true;
};

constexpr Type kReals[] = {Type::kF32, Type::kF16, Type::kBF16};
constexpr Type kWeights[] = {Type::kF32,  Type::kF16,  Type::kBF16,
                             Type::kQ4_0, Type::kQ4_1, Type::kQ8_0};
constexpr Arrangement kViews[] = {Arrangement::kPacked, Arrangement::kSliced,
                                  Arrangement::kPermuted, Arrangement::kTransposed};

Operand Of(Type type, std::vector<int64_t> dims, Arrangement arrangement = Arrangement::kPacked) {
  return {.type = type, .dims = std::move(dims), .arrangement = arrangement};
}
Operand F32(std::vector<int64_t> dims, Arrangement arrangement = Arrangement::kPacked) {
  return Of(Type::kF32, std::move(dims), arrangement);
}
Operand With(Operand operand, Values values, int64_t range = 0) {
  operand.values = values;
  operand.range = range;
  return operand;
}
Operand Absent() {
  Operand operand;
  operand.present = false;
  return operand;
}

class OpsTest : public testing::TestWithParam<int> {
 protected:
  // Built once for each number of lanes.
  static TestDevice& Shared(int lanes) {
    static std::unique_ptr<TestDevice> one, many;
    auto& device = lanes == 1 ? one : many;
    if (device == nullptr) device = std::make_unique<TestDevice>(lanes);
    return *device;
  }

  void SetUp() override {
    if (!Shared(GetParam()).is_there()) GTEST_SKIP() << Shared(GetParam()).missing();
    stream_ = Shared(GetParam()).Open();
  }
  void TearDown() override { stream_.reset(); }

  HostArray Generate(const Operand& operand) {
    HostArray array = Arrange(operand.type, operand.dims, operand.arrangement);
    std::vector<double> values(static_cast<size_t>(array.layout.Elements()));
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<double>(i);
      const uint64_t random = random_();
      switch (operand.values) {
        case Values::kNormal:
          values[i] = normal(random_);
          break;
        case Values::kIds:  // Each once, in no order.
          values[i] = std::fmod(at * 7 + 3, static_cast<double>(operand.range));
          break;
        case Values::kPositions:
          values[i] = static_cast<double>(operand.range) - static_cast<double>(values.size()) + at;
          break;
        case Values::kMask:
          values[i] = i % 3 == 1 ? -INFINITY : 0.5 * static_cast<double>(random % 3);
          break;
        case Values::kTies:
          values[i] = static_cast<double>(random % 4);
          break;
        case Values::kFactors:
          values[i] = 1 + static_cast<double>(random % 8);
          break;
      }
    }
    Encode(array, values);
    return array;
  }

  // Compares with |got - want| <= tolerance * (1 + |want|).
  void Check(const OpDefinition& op, const std::vector<Operand>& operands, double tolerance,
             std::vector<double> attributes = {}, bool in_place = false) {
    for (size_t i = attributes.size(); i < op.attributes.size(); ++i)
      attributes.push_back(op.attributes[i].value);
    std::string name(op.name);
    for (const Operand& operand : operands)
      name += fmt::format(" {}[{}]{}", operand.present ? Info(operand.type).name : "none",
                          fmt::join(operand.dims, ","), static_cast<int>(operand.arrangement));
    SCOPED_TRACE(name);
    TestDevice& test = Shared(GetParam());
    std::vector<HostArray> arrays;
    std::vector<OpInput> infer;
    std::vector<Layout> layouts;
    const auto present = std::make_unique<bool[]>(operands.size());
    const auto constant = std::make_unique<bool[]>(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      present[i] = operands[i].present;
      arrays.push_back(operands[i].present ? Generate(operands[i]) : HostArray());
      layouts.push_back(arrays.back().layout);
      OpInput& input = infer.emplace_back();
      input.type = operands[i].type;
      input.present = operands[i].present;
      input.shape.rank = static_cast<int>(operands[i].dims.size());
      std::copy(operands[i].dims.begin(), operands[i].dims.end(), input.shape.dims.begin());
    }
    const auto made = op.infer({.inputs = infer, .attributes = attributes, .symbols = {}});
    ASSERT_TRUE(made) << made.error().message;
    const Layout output = Bind(made->type, made->shape, {});
    HostArray want{output, 0, std::vector<std::byte>(output.PackedBytes() + 1)};
    HostArray got = want;
    const int shared = in_place ? op.in_place_input : op.state_input;

    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<TensorArg> inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      buffers.push_back(operands[i].present ? test.Upload(*stream_, arrays[i].bytes) : nullptr);
      inputs.push_back(
          {.layout = arrays[i].layout, .buffer = buffers.back().get(), .offset = arrays[i].offset});
    }
    auto poisoned =
        test.Upload(*stream_, std::vector<std::byte>(got.bytes.size(), std::byte{0xFF}));
    Buffer* target = shared < 0 ? poisoned.get() : buffers[static_cast<size_t>(shared)].get();
    const auto choice = test.device().FindKernel({.op = &op,
                                                  .attributes = attributes,
                                                  .inputs = layouts,
                                                  .present = {present.get(), operands.size()},
                                                  .constant = {constant.get(), operands.size()},
                                                  .output = output});
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_EQ(choice->scratch_bytes, 0);
    const KernelCall call{.kernel = choice->kernel,
                          .op = &op,
                          .attributes = attributes,
                          .inputs = inputs,
                          .output = {.layout = output, .buffer = target},
                          .name = "tested"};
    ASSERT_TRUE(stream_->Run({&call, 1}));
    const auto outcome = stream_->Synchronize(stream_->Record());
    ASSERT_TRUE(outcome) << outcome.error().message;
    const std::vector<std::byte> bytes = test.Download(*stream_, *target);
    std::copy_n(bytes.begin(), output.PackedBytes(), got.bytes.begin());

    std::vector<HostTensor> tensors;
    for (HostArray& array : arrays)
      tensors.push_back(array.bytes.empty() ? HostTensor() : array.tensor());
    HostTensor result = want.tensor();
    if (op.state_input >= 0) {
      want.bytes = arrays[static_cast<size_t>(op.state_input)].bytes;
      result.data = want.bytes.data();
      tensors[static_cast<size_t>(op.state_input)].data = want.bytes.data();
    }
    ASSERT_TRUE(op.reference(tensors, result, attributes));
    const std::vector<double> expected = Decode(want), values = Decode(got);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (values[i] == expected[i]) continue;
      ASSERT_LE(std::fabs(values[i] - expected[i]), tolerance * (1 + std::fabs(expected[i])))
          << "element " << i << ": " << values[i] << " instead of " << expected[i];
    }
  }

  std::mt19937_64 random_{42};
  std::unique_ptr<Stream> stream_;
};

TEST_P(OpsTest, MatmulOfEveryType) {
  for (const Type type : kWeights) {
    const double tolerance = 2e-5;
    for (const int64_t tokens : {0, 1, 3, 8, 9})
      for (const int64_t rows : {1, 7, 32})
        Check(ops::kMatmul, {F32({tokens, 96}), Of(type, {rows, 96})}, tolerance, {1});
    Check(ops::kMatmul, {F32({2, 1536}), Of(type, {5, 1536})}, tolerance, {0});
    // Batches: shared, in groups, in groups of two dimensions.
    Check(ops::kMatmul, {F32({3, 2, 64}), Of(type, {5, 64})}, tolerance);
    Check(ops::kMatmul, {F32({4, 3, 64}), Of(type, {2, 5, 64})}, tolerance);
    Check(ops::kMatmul, {F32({2, 6, 1, 64}), Of(type, {1, 3, 5, 64})}, tolerance);
    for (const Arrangement view : kViews) {
      Check(ops::kMatmul, {F32({4, 3, 64}, view), Of(type, {2, 5, 64})}, tolerance);
      if (!Info(type).is_block || view != Arrangement::kTransposed)
        Check(ops::kMatmul, {F32({4, 3, 64}), Of(type, {2, 5, 64}, view)}, tolerance);
    }
    if (Info(type).is_block) continue;
    Check(ops::kMatmul, {F32({3, 37}), Of(type, {5, 37})}, tolerance);
    Check(ops::kMatmul, {F32({2, 0}), Of(type, {3, 0})}, tolerance);
  }
}

TEST_P(OpsTest, RowsOfEveryType) {
  for (const Type type : kWeights)
    for (const Type ids : {Type::kI32, Type::kI64})
      for (const auto& dims : std::vector<std::vector<int64_t>>{{}, {3}, {0}, {2, 3}, {2, 1, 4}}) {
        const Operand numbers = With(Of(ids, dims), Values::kIds, 11);
        Check(ops::kRows, {Of(type, {11, 64}), numbers}, 1e-6);
        Check(ops::kRows, {Of(type, {11, 64}, Arrangement::kSliced), numbers}, 1e-6);
        if (!Info(type).is_block) Check(ops::kRows, {Of(type, {11, 37}), numbers}, 0);
      }
}

TEST_P(OpsTest, UpdateRowsOfEveryType) {
  for (const Type state : kReals)
    for (const Type rows : kReals)
      for (const Type ids : {Type::kI32, Type::kI64}) {
        const Operand numbers = With(Of(ids, {4}), Values::kIds, 9);
        Check(ops::kUpdateRows, {Of(state, {9, 37}), Of(rows, {4, 37}), numbers}, 0);
        for (const Arrangement view : kViews)
          Check(ops::kUpdateRows, {Of(state, {9, 3, 32}), Of(rows, {4, 3, 32}, view), numbers}, 0);
        Check(ops::kUpdateRows,
              {Of(state, {9, 37}), Of(rows, {0, 37}), With(Of(ids, {0}), Values::kIds, 9)}, 0);
      }
}

TEST_P(OpsTest, OfTwoRowsForTheSamePlaceTheLastStays) {
  // The reference goes from first to last.
  Check(ops::kUpdateRows,
        {F32({3, 40}), F32({70, 40}), With(Of(Type::kI32, {70}), Values::kIds, 3)}, 0);
}

TEST_P(OpsTest, RmsNorm) {
  for (const Arrangement view : kViews)
    for (const auto& dims : std::vector<std::vector<int64_t>>{{576}, {3, 37}, {2, 3, 64}, {0, 5}}) {
      Check(ops::kRmsNorm, {F32(dims, view), Absent()}, 1e-5);
      Check(ops::kRmsNorm, {F32(dims, view), F32({dims.back()})}, 1e-5, {0.5});
    }
  Check(ops::kRmsNorm, {F32({5, 96}), F32({96})}, 1e-5, {}, true);
}

TEST_P(OpsTest, Rope) {
  for (const double halves : {0.0, 1.0})
    for (const Arrangement view : kViews) {
      const Operand positions = With(Of(Type::kI32, {5}), Values::kPositions, 3000);
      Check(ops::kRope, {F32({5, 3, 64}, view), positions, Absent()}, 2e-5, {0, 10000, 1, halves});
      Check(ops::kRope, {F32({5, 3, 80}, view), positions, Absent()}, 2e-5,
            {48, 500, 0.25, halves});
      // More pairs than a launch takes.
      Check(ops::kRope, {F32({5, 2, 256}, view), positions, Absent()}, 2e-5, {200, 1e6, 1, halves});
      Check(ops::kRope, {F32({5, 3, 64}, view), positions, With(F32({32}), Values::kFactors)}, 2e-5,
            {0, 10000, 1, halves});
      if (view == Arrangement::kPacked)
        Check(ops::kRope, {F32({5, 3, 80}), positions, Absent()}, 2e-5, {48, 500, 1, halves}, true);
    }
}

TEST_P(OpsTest, Softmax) {
  for (const Arrangement view : kViews) {
    Check(ops::kSoftmax, {F32({3, 37}, view), Absent()}, 1e-5, {0.5});
    Check(ops::kSoftmax, {F32({4, 3, 37}, view), With(F32({3, 37}, view), Values::kMask)}, 1e-5);
  }
  Check(ops::kSoftmax, {F32({50}), Absent()}, 1e-5);
  Check(ops::kSoftmax, {F32({0, 5}), Absent()}, 1e-5);
  Check(ops::kSoftmax, {F32({2, 3, 33}), With(F32({3, 33}), Values::kMask)}, 1e-5, {0.2}, true);
}

TEST_P(OpsTest, Attention) {
  for (const Type k : {Type::kF32, Type::kF16})
    for (const Type v : {Type::kF32, Type::kF16}) {
      const auto positions = [](int64_t tokens, int64_t range) {
        return With(Of(Type::kI32, {tokens}), Values::kPositions, range);
      };
      for (const Arrangement view : kViews)
        Check(ops::kAttention,
              {F32({5, 4, 32}, view), Of(k, {9, 2, 32}, view), Of(v, {9, 2, 32}, view),
               positions(5, 9)},
              2e-5);
      Check(ops::kAttention, {F32({1, 9, 64}), Of(k, {200, 3, 64}), Of(v, {200, 3, 64}), Absent()},
            2e-5);
      Check(ops::kAttention,
            {F32({3, 6, 37}), Of(k, {70, 2, 37}), Of(v, {70, 2, 21}), positions(3, 68)}, 2e-5,
            {0.3});
      Check(ops::kAttention, {F32({0, 4, 32}), Of(k, {8, 2, 32}), Of(v, {8, 2, 32}), Absent()},
            2e-5);
    }
}

TEST_P(OpsTest, ElementByElement) {
  for (const Arrangement view : kViews)
    for (const auto& dims :
         std::vector<std::vector<int64_t>>{{}, {1}, {4999}, {3, 37}, {2, 3, 4, 5}, {0, 7}}) {
      const Operand a = F32(dims, view), b = F32(dims);
      Check(ops::kSilu, {a}, 1e-6);
      Check(ops::kScale, {a}, 1e-6, {0.3, -1.7});
      Check(ops::kSwiglu, {a, b}, 1e-6);
      Check(ops::kSwiglu, {b, a}, 1e-6);
      Check(ops::kAdd, {a, b}, 1e-6);
      Check(ops::kMul, {b, a}, 1e-6);
    }
  for (const auto& dims : std::vector<std::vector<int64_t>>{
           {}, {5}, {1, 5}, {4, 1}, {3, 1, 5}, {2, 1, 4, 1}, {1, 1, 1, 1}}) {
    Check(ops::kAdd, {F32({2, 3, 4, 5}), F32(dims)}, 1e-6);
    Check(ops::kMul, {F32({2, 3, 4, 5}), F32(dims)}, 1e-6, {}, true);
  }
}

TEST_P(OpsTest, CopyOfEveryType) {
  for (const Type from : kReals)
    for (const double to : {-1.0, 0.0, 1.0, 2.0})
      for (const Arrangement view : kViews)
        for (const auto& dims :
             std::vector<std::vector<int64_t>>{{}, {4999}, {3, 37}, {2, 3, 4, 5}, {0, 7}})
          Check(ops::kCopy, {Of(from, dims, view)}, 0, {to});
}

TEST_P(OpsTest, Argmax) {
  for (const Arrangement view : kViews)
    for (const Values values : {Values::kNormal, Values::kTies})
      for (const auto& dims :
           std::vector<std::vector<int64_t>>{{1}, {4999}, {3, 37}, {2, 3, 64}, {0, 7}})
        Check(ops::kArgmax, {With(F32(dims, view), values)}, 0);
}

TEST_P(OpsTest, HalvesAreConvertedExactly) {
  // All bit patterns, each way.
  TestDevice& test = Shared(GetParam());
  const int64_t dims[] = {65536};
  HostArray halves = Arrange(Type::kF16, {65536}, Arrangement::kPacked);
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(halves.bytes.data() + 2 * i, &bits, 2);
  }
  auto x = test.Upload(*stream_, halves.bytes), y = test.Take(65536 * 4), z = test.Take(65536 * 2);
  const Layout narrow = Contiguous(Type::kF16, dims), wide = Contiguous(Type::kF32, dims);
  const auto run = [&](Buffer& from, const Layout& source, Buffer& to, const Layout& target) {
    const bool present[] = {true}, constant[] = {false};
    const double attributes[] = {static_cast<double>(target.type)};
    const auto choice = test.device().FindKernel({.op = &ops::kCopy,
                                                  .attributes = attributes,
                                                  .inputs = {&source, 1},
                                                  .present = present,
                                                  .constant = constant,
                                                  .output = target});
    ASSERT_TRUE(choice);
    const TensorArg input{.layout = source, .buffer = &from};
    const KernelCall call{.kernel = choice->kernel,
                          .op = &ops::kCopy,
                          .attributes = attributes,
                          .inputs = {&input, 1},
                          .output = {.layout = target, .buffer = &to},
                          .name = "converted"};
    ASSERT_TRUE(stream_->Run({&call, 1}));
    ASSERT_TRUE(stream_->Synchronize(stream_->Record()));
  };
  run(*x, narrow, *y, wide);
  run(*y, wide, *z, narrow);
  const std::vector<float> floats = test.Floats(*stream_, *y);
  const std::vector<std::byte> back = test.Download(*stream_, *z);
  for (int i = 0; i < 65536; ++i) {
    const float want = HalfToFloat(static_cast<uint16_t>(i));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(floats[static_cast<size_t>(i)])) << i;
      continue;
    }
    ASSERT_EQ(floats[static_cast<size_t>(i)], want) << i;
    uint16_t bits;
    std::memcpy(&bits, back.data() + 2 * i, 2);
    ASSERT_EQ(bits, i);
  }
}

TEST_P(OpsTest, DeclinesWithTheReason) {
  Device& device = Shared(GetParam()).device();
  const Layout f32 = Contiguous(Type::kF32, std::vector<int64_t>{4, 4});
  const Layout i32 = Contiguous(Type::kI32, std::vector<int64_t>{4, 4});
  const bool present[] = {true}, constant[] = {false};
  const auto ask = [&](const OpDefinition& op, const Layout& input, const Layout& output) {
    const auto choice = device.FindKernel({.op = &op,
                                           .attributes = {},
                                           .inputs = {&input, 1},
                                           .present = present,
                                           .constant = constant,
                                           .output = output});
    if (choice) return std::string("taken");
    EXPECT_EQ(choice.error().code, ErrorCode::kUnsupported);
    return choice.error().message;
  };
  OpDefinition own = ops::kSilu;
  own.name = "convolve";
  EXPECT_EQ(ask(own, f32, f32), "opencl:0: no kernel for op convolve");
  EXPECT_EQ(ask(ops::kSilu, i32, f32), "opencl:0: silu does not take I32 as input 0");
  EXPECT_EQ(ask(ops::kCopy, i32, f32), "opencl:0: copy does not take I32 as input 0");
  EXPECT_EQ(ask(ops::kSilu, f32, f32), "taken");
  const Layout long_row = Contiguous(Type::kF32, std::vector<int64_t>{int64_t{1} << 31});
  EXPECT_NE(ask(ops::kSilu, long_row, long_row), "taken");
}

INSTANTIATE_TEST_SUITE_P(Lanes, OpsTest, testing::Values(1, 32),
                         [](const auto& info) { return fmt::format("of_{}", info.param); });

}  // namespace
}  // namespace tandem::opencl
