// That the suite finds what it is there to find: kernels that are wrong in a known way, on a
// simulated device, must fail; and cases are what they say.

#include "tests/conformance/runner.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "tests/conformance/bounds.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/device_test.h"

namespace tandem::conformance {
namespace {

Result<OpOutput> InferLike(const InferenceContext& context) {
  return OpOutput{context.inputs[0].type, context.inputs[0].shape};
}

Result<void> Double(std::span<const HostTensor> inputs, const HostTensor& output) {
  std::vector<double> values = Decode(inputs[0]);
  for (double& v : values) v *= 2;
  Encode(values, output);
  return {};
}

// A kernel goes wrong only on the device, where its output has guards around it.
bool g_is_on_device = false;

Result<void> WriteBehind(std::span<const HostTensor> inputs, const HostTensor& output,
                         std::span<const double>) {
  if (g_is_on_device) output.data[output.layout.PackedBytes()] = std::byte{0};
  return Double(inputs, output);
}
Result<void> WriteBefore(std::span<const HostTensor> inputs, const HostTensor& output,
                         std::span<const double>) {
  if (g_is_on_device) output.data[-1] = std::byte{0};
  return Double(inputs, output);
}
Result<void> LeaveTheLastOut(std::span<const HostTensor> inputs, const HostTensor& output,
                             std::span<const double>) {
  std::byte* last = output.data + output.layout.PackedBytes() - sizeof(float);
  float before = 0;
  std::memcpy(&before, last, sizeof(float));
  const Result<void> done = Double(inputs, output);
  if (g_is_on_device) std::memcpy(last, &before, sizeof(float));
  return done;
}
Result<void> ChangeAnInput(std::span<const HostTensor> inputs, const HostTensor& output,
                           std::span<const double>) {
  const Result<void> done = Double(inputs, output);
  if (g_is_on_device) inputs[0].data[0] ^= std::byte{1};
  return done;
}
Result<void> BeOffByAnUlpOrTwo(std::span<const HostTensor> inputs, const HostTensor& output,
                               std::span<const double>) {
  std::vector<double> values = Decode(inputs[0]);
  for (double& v : values) v *= g_is_on_device ? 2 * (1 + 0x1p-20) : 2;
  Encode(values, output);
  return {};
}
Result<void> Fail_(std::span<const HostTensor> inputs, const HostTensor& output,
                   std::span<const double>) {
  if (g_is_on_device) return Fail(ErrorCode::kInvalid, "nothing goes");
  return Double(inputs, output);
}
Result<void> BeRight(std::span<const HostTensor> inputs, const HostTensor& output,
                     std::span<const double>) {
  return Double(inputs, output);
}

Outcome RunWith(decltype(OpDefinition::reference) reference) {
  OpDefinition op;
  op.name = "doubled";
  op.infer = InferLike;
  op.reference = reference;
  Case c;
  c.op = &op;
  c.inputs.resize(1);
  c.inputs[0].dims = {3, 37};
  auto prepared = Prepare(c);
  EXPECT_OK(prepared);
  const auto subject = std::find_if(Subjects().begin(), Subjects().end(),
                                    [](const Subject& s) { return s.name == "sim_plain"; });
  auto runner = Runner::Create(*subject->device, *subject->host);
  EXPECT_OK(runner);
  g_is_on_device = true;
  const Outcome outcome = (*runner)->Run(c, *prepared);
  g_is_on_device = false;
  // The runner is as good as new, whatever happened.
  op.reference = BeRight;
  EXPECT_EQ((*runner)->Run(c, *prepared).verdict, Verdict::kPassed);
  return outcome;
}

TEST(Runner, PassesWhatIsRight) {
  const Outcome outcome = RunWith(BeRight);
  EXPECT_EQ(outcome.verdict, Verdict::kPassed) << outcome.message;
}

TEST(Runner, FindsWhatIsWrong) {
  struct {
    decltype(OpDefinition::reference) reference;
    const char* says;
  } const wrong[] = {
      {WriteBehind, "byte 444 of output"}, {WriteBefore, "byte -1 of output"},
      {LeaveTheLastOut, "1 of 111"},       {ChangeAnInput, "input 0 was changed"},
      {BeOffByAnUlpOrTwo, "111 elements"}, {Fail_, "nothing goes"},
  };
  for (const auto& [reference, says] : wrong) {
    const Outcome outcome = RunWith(reference);
    EXPECT_EQ(outcome.verdict, Verdict::kFailed) << says;
    EXPECT_NE(outcome.message.find(says), std::string::npos) << outcome.message;
  }
}

// Each bound must be small enough to find what kernels get wrong.
std::vector<double> Reference(const Case& c, std::vector<Arranged>& inputs, const Layout& layout) {
  std::vector<HostTensor> tensors;
  for (Arranged& input : inputs) tensors.push_back(input.host());
  Arranged output;
  output.layout = layout;
  output.bytes.resize(static_cast<size_t>(layout.PackedBytes()));
  EXPECT_OK(c.op->reference(tensors, output.host(), c.attributes));
  return Decode(output.host());
}

// How many elements are outside of their bound once `change` was made to input `index`.
int64_t Outside(const Case& c, size_t index,
                const std::function<void(std::vector<double>&)>& change) {
  auto prepared = Prepare(c);
  EXPECT_OK(prepared);
  std::vector<double> values = Decode(prepared->inputs[index].host());
  change(values);
  Encode(values, prepared->inputs[index].host());
  const std::vector<double> got = Reference(c, prepared->inputs, prepared->want.layout);
  const std::vector<double> want = Decode(prepared->want.host());
  int64_t outside = 0;
  for (size_t i = 0; i < got.size(); ++i)
    outside += std::fabs(got[i] - want[i]) <= prepared->bound[i] ? 0 : 1;
  return outside;
}

Case FirstLike(const OpDefinition& op, const std::function<bool(const Case&)>& fits) {
  for (const Case& c : CasesFor(op, 1))
    if (fits(c)) return c;
  ADD_FAILURE() << "no such case of " << op.name;
  return {};
}

TEST(Bounds, AreTightEnoughToFindAMissingBlock) {
  for (const double exact : {1.0, 0.0})
    for (const Type type : {Type::kF32, Type::kF16, Type::kQ4_0, Type::kQ4_1, Type::kQ8_0}) {
      const Case c = FirstLike(ops::kMatmul, [&](const Case& c) {
        return c.attributes[0] == exact && c.inputs[1].type == type &&
               c.inputs[1].dims == std::vector<int64_t>{40, 1536};
      });
      // The last block of x does not count: many results are off.
      const int64_t outside =
          Outside(c, 0, [](std::vector<double>& x) { std::fill(x.end() - 32, x.end(), 0.0); });
      EXPECT_GE(outside, 10) << c.Name();
      EXPECT_EQ(Outside(c, 0, [](std::vector<double>&) {}), 0) << c.Name();
    }
}

TEST(Bounds, AreTightEnoughToFindWhatRoundsTooMuch) {
  const auto to_half = [](std::vector<double>& values) {
    for (double& v : values) v = HalfToFloat(FloatToHalf(static_cast<float>(v)));
  };
  // Exact is no place for F16 activations.
  const Case matmul = FirstLike(ops::kMatmul, [](const Case& c) {
    return c.attributes[0] == 1 && c.inputs[1].type == Type::kQ4_0 &&
           c.inputs[0].dims == std::vector<int64_t>{33, 160};
  });
  EXPECT_GE(Outside(matmul, 0, to_half), 400) << matmul.Name();
  for (const OpDefinition* op : {&ops::kSoftmax, &ops::kRmsNorm, &ops::kSilu, &ops::kAttention,
                                 &ops::kRope, &ops::kAdd, &ops::kMul, &ops::kScale, &ops::kCopy}) {
    const Case c = FirstLike(*op, [](const Case& c) {
      return c.inputs[0].dims.size() >= 2 && c.inputs[0].dims.back() > 8 &&
             std::all_of(c.inputs[0].dims.begin(), c.inputs[0].dims.end(),
                         [](int64_t dim) { return dim > 0; }) &&
             !c.in_place;
    });
    EXPECT_GT(Outside(c, 0, to_half), 0) << c.Name();
  }
}

TEST(Bounds, FindAKeyTooManyOrTooFew) {
  for (const Type type : {Type::kF32, Type::kF16}) {
    const Case c = FirstLike(ops::kAttention, [&](const Case& c) {
      return c.inputs[3].present && c.inputs[0].dims == std::vector<int64_t>{7, 6, 40} &&
             c.inputs[1].type == type && c.inputs[2].type == type;
    });
    for (const double by : {-1.0, 1.0})
      EXPECT_GE(Outside(c, 3,
                        [&](std::vector<double>& p) {
                          for (double& v : p) v += by;
                        }),
                200)
          << c.Name();
  }
}

TEST(Cases, ComeFromTheirSeedAlone) {
  for (const OpDefinition* op : ops::All()) {
    const std::vector<Case> first = CasesFor(*op, 5), second = CasesFor(*op, 5),
                            other = CasesFor(*op, 6);
    ASSERT_GE(first.size(), 12u) << op->name;
    const auto one = Prepare(first[0]), same = Prepare(second[0]), differs = Prepare(other[0]);
    ASSERT_OK(one);
    EXPECT_EQ(first[0].Name(), second[0].Name());
    EXPECT_EQ(one->inputs[0].bytes, same->inputs[0].bytes);
    EXPECT_NE(one->inputs[0].bytes, differs->inputs[0].bytes) << first[0].Name();
  }
}

TEST(Cases, CoverZeroOneOddStridedAndLarge) {
  for (const OpDefinition* op : ops::All()) {
    bool zero = false, one = false, odd = false, strided = false, large = false, planned = false;
    for (const Case& c : CasesFor(*op, 1)) {
      large = large || c.extent != Extent::kSmall;
      for (const Operand& operand : c.inputs) {
        strided = strided || operand.arrangement != Arrangement::kPacked;
        planned = planned || !operand.largest.empty();
        for (const int64_t dim : operand.dims) {
          zero = zero || dim == 0;
          one = one || dim == 1;
          odd = odd || (dim > 1 && dim % 2 == 1);
        }
      }
    }
    EXPECT_TRUE(zero && one && odd && strided && large && planned) << op->name;
  }
}

TEST(Arrange, MakesViews) {
  const std::vector<int64_t> dims{2, 3, 4};
  std::vector<double> values;
  for (int i = 0; i < 24; ++i) values.push_back(i);
  for (const Arrangement arrangement : {Arrangement::kPacked, Arrangement::kSliced,
                                        Arrangement::kPermuted, Arrangement::kTransposed}) {
    Arranged arranged = Arrange(Type::kF32, dims, arrangement);
    Encode(values, arranged.host());
    EXPECT_EQ(Decode(arranged.host()), values);
    EXPECT_EQ(arranged.layout.IsContiguous(), arrangement == Arrangement::kPacked);
    EXPECT_LE(arranged.offset + arranged.layout.SpanBytes(),
              static_cast<int64_t>(arranged.bytes.size()));
  }
  EXPECT_EQ(Arrange(Type::kF32, dims, Arrangement::kPermuted).layout.strides[0], 16);
  EXPECT_EQ(Arrange(Type::kF32, dims, Arrangement::kTransposed).layout.strides[2], 12);
  EXPECT_EQ(Arrange(Type::kQ4_0, {3, 64}, Arrangement::kSliced).layout.strides[0], 4 * 18);
}

}  // namespace
}  // namespace tandem::conformance
