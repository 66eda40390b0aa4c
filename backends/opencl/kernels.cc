#include "backends/opencl/kernels.h"

#include <algorithm>
#include <cmath>

#include "backends/opencl/memory.h"
#include "graph/ops.h"

namespace tandem::opencl {
namespace {

// The constants of kernels/*.cl that a launch must know.
constexpr int64_t kMatmulTokens = 8, kMatmulRowsOfMany = 2;
constexpr int64_t MatmulRowsOfOne(int lanes) { return lanes > 1 ? 2 : 4; }
constexpr int64_t kChunk = 2048;
constexpr int64_t kAttentionKeys = 64;
enum ElementwiseOp : int32_t { kSilu, kSwiglu, kAdd, kMultiply, kScale };

// Numbers of kernels/tensor.cl.
static_assert(static_cast<int>(Type::kF32) == 0 && static_cast<int>(Type::kF16) == 1 &&
              static_cast<int>(Type::kBF16) == 2 && static_cast<int>(Type::kI32) == 3 &&
              static_cast<int>(Type::kI64) == 4 && static_cast<int>(Type::kQ4_0) == 5 &&
              static_cast<int>(Type::kQ4_1) == 6 && static_cast<int>(Type::kQ8_0) == 7);

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- Tensors of a call ------------------------------------------------------------------------

// The dimensions from `from` on stand at the end of the four, those before it at the start; what is
// between is of size 1. 0: all at the end.
DeviceTensor TensorOf(const TensorArg& arg, int from = 0) {
  DeviceTensor tensor;
  const Layout& layout = arg.layout;
  tensor.parameter.type = static_cast<int64_t>(layout.type);
  tensor.parameter.offset = arg.offset;
  if (arg.buffer != nullptr) tensor.buffer = static_cast<const ClBuffer*>(arg.buffer)->handle();
  for (int i = 0; i < layout.rank; ++i) {
    const int at = i < from ? i : i + kMaxRank - layout.rank;
    tensor.size(at) = layout.dims[i];
    tensor.stride(at) = layout.strides[i];
  }
  return tensor;
}

// As TensorOf, with the dimensions moved one to the front and a last one of size 1: for tensors
// with one element where another has a row.
DeviceTensor PerRow(const TensorArg& arg) {
  DeviceTensor tensor = TensorOf(arg);
  for (int i = 0; i < 3; ++i) {
    tensor.size(i) = tensor.size(i + 1);
    tensor.stride(i) = tensor.stride(i + 1);
  }
  tensor.size(3) = 1;
  tensor.stride(3) = 0;
  return tensor;
}

void Broadcast(DeviceTensor& tensor, const DeviceTensor& to) {
  for (int i = 0; i < 4; ++i) {
    if (tensor.size(i) == 1) tensor.stride(i) = 0;
    tensor.size(i) = to.size(i);
  }
}

bool IsGiven(const KernelCall& call, size_t input) {
  return input < call.inputs.size() && call.inputs[input].buffer != nullptr;
}

// Absent inputs are tensors that nobody reads.
DeviceTensor OptionalTensor(const KernelCall& call, size_t input) {
  return IsGiven(call, input) ? TensorOf(call.inputs[input]) : DeviceTensor();
}

// One long row, if each is: the fewer rows, the longer the loops.
template <class... Tensors>
void JoinRows(const KernelCall& call, DeviceTensor& first, Tensors&... others) {
  bool contiguous = call.output.layout.IsContiguous();
  for (const TensorArg& input : call.inputs)
    contiguous = contiguous && input.layout.IsContiguous() &&
                 input.layout.Elements() == call.output.layout.Elements();
  if (!contiguous) return;
  const auto join = [](DeviceTensor& tensor, int64_t elements, int64_t stride) {
    tensor.parameter.size = {1, 1, 1, elements};
    tensor.parameter.stride = {0, 0, 0, stride};
  };
  const int64_t elements = call.output.layout.Elements();
  const auto bytes = [](const DeviceTensor& tensor) {
    return Info(static_cast<Type>(tensor.parameter.type)).block_bytes;
  };
  join(first, elements, bytes(first));
  (join(others, elements, bytes(others)), ...);
}

// --- Launches ---------------------------------------------------------------------------------

cl_int LaunchMatmul(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor x = TensorOf(call.inputs[0]), y = TensorOf(call.output);
  DeviceTensor w = TensorOf(call.inputs[1]);
  const Type type = call.inputs[1].layout.type;
  const int64_t tokens = y.size(2), rows = y.size(3), batches = y.size(0) * y.size(1);
  const bool side_by_side =
      (x.stride(3) == 4 || x.size(3) <= 1) &&
      (w.stride(3) == Info(type).block_bytes || x.size(3) <= Info(type).block_elements);
  const auto launch = [&](KernelId id, std::array<int64_t, 3> groups) {
    launcher.Begin(id);
    launcher.Tensor(w);
    launcher.Tensor(x);
    launcher.Tensor(y);
    return launcher.Enqueue(groups);
  };
  if (!side_by_side) return launch(KernelId::kMatmulAny, {tokens, batches, 1});
  const auto of_type = [&](KernelId f32) {
    // In the order of the enumerators: F32, F16, BF16, Q4_0, Q4_1, Q8_0.
    const int index = static_cast<int>(type) - (Info(type).is_block ? 2 : 0);
    return static_cast<KernelId>(static_cast<int>(f32) + index);
  };
  if (tokens == 1)
    return launch(of_type(KernelId::kMatmulF32One),
                  {CeilDiv(rows, MatmulRowsOfOne(launcher.lanes())), 1, batches});
  return launch(of_type(KernelId::kMatmulF32),
                {CeilDiv(rows, kMatmulRowsOfMany), CeilDiv(tokens, kMatmulTokens), batches});
}

cl_int LaunchRows(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor y = TensorOf(call.output);
  launcher.Begin(KernelId::kRows);
  launcher.Tensor(TensorOf(call.inputs[0]));
  launcher.Tensor(PerRow(call.inputs[1]));
  launcher.Tensor(y);
  launcher.Faults();
  return launcher.Enqueue({y.rows(), 1, 1});
}

cl_int LaunchUpdateRows(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor rows = TensorOf(call.inputs[1], 1);
  launcher.Begin(KernelId::kUpdateRows);
  launcher.Tensor(TensorOf(call.output, 1));
  launcher.Tensor(rows);
  launcher.Tensor(TensorOf(call.inputs[2]));
  launcher.Faults();
  return launcher.Enqueue({rows.size(0), 1, 1});
}

cl_int LaunchRmsNorm(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor y = TensorOf(call.output);
  DeviceTensor weight = OptionalTensor(call, 1);
  if (!IsGiven(call, 1)) weight.stride(3) = 4;
  launcher.Begin(KernelId::kRmsNorm);
  launcher.Tensor(TensorOf(call.inputs[0]));
  launcher.Tensor(weight);
  launcher.Tensor(y);
  launcher.Number(int32_t{IsGiven(call, 1)});
  launcher.Number(static_cast<float>(call.attributes[ops::kRmsNormEpsilon]));
  return launcher.Enqueue({y.rows(), 1, 1});
}

cl_int LaunchSoftmax(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor y = TensorOf(call.output);
  DeviceTensor mask = OptionalTensor(call, 1);
  Broadcast(mask, y);
  launcher.Begin(KernelId::kSoftmax);
  launcher.Tensor(TensorOf(call.inputs[0]));
  launcher.Tensor(mask);
  launcher.Tensor(y);
  launcher.Number(int32_t{IsGiven(call, 1)});
  launcher.Number(static_cast<float>(call.attributes[ops::kSoftmaxScale]));
  return launcher.Enqueue({y.rows(), 1, 1});
}

cl_int LaunchRope(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor x = TensorOf(call.inputs[0]), positions = TensorOf(call.inputs[1]);
  const DeviceTensor factors = OptionalTensor(call, 2), y = TensorOf(call.output);
  auto rotated = static_cast<int64_t>(call.attributes[ops::kRopeDims]);
  if (rotated == 0) rotated = y.size(3);
  const int64_t pairs = rotated / 2;
  const bool halves = call.attributes[ops::kRopeHalves] != 0;
  const bool in_place =
      call.inputs[0].buffer == call.output.buffer && call.inputs[0].offset == call.output.offset;
  int64_t first = 0;
  for (const RopeTurns& turns : launcher.TurnsFor(call.attributes[ops::kRopeBase],
                                                  call.attributes[ops::kRopeScale], rotated)) {
    launcher.Begin(KernelId::kRope);
    launcher.Tensor(x);
    launcher.Tensor(positions);
    launcher.Tensor(factors);
    launcher.Tensor(y);
    launcher.Number(int32_t{IsGiven(call, 2)});
    launcher.Number(int32_t{halves});
    launcher.Number(static_cast<int32_t>(first));
    launcher.Number(static_cast<int32_t>(std::min<int64_t>(kRopePairs, pairs - first)));
    launcher.Number(static_cast<int32_t>(pairs));
    // What is not rotated is copied once, and need not be in place.
    launcher.Number(static_cast<int32_t>(first > 0 || in_place ? y.size(3) : rotated));
    launcher.Turns(turns);
    if (const cl_int status = launcher.Enqueue({y.size(1), 1, 1}); status != CL_SUCCESS)
      return status;
    first += kRopePairs;
  }
  return CL_SUCCESS;
}

cl_int LaunchAttention(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor q = TensorOf(call.inputs[0]), k = TensorOf(call.inputs[1]);
  const DeviceTensor v = TensorOf(call.inputs[2]), y = TensorOf(call.output);
  const Type k_type = call.inputs[1].layout.type, v_type = call.inputs[2].layout.type;
  const bool side_by_side = k_type == v_type && k.stride(3) == Info(k_type).block_bytes &&
                            v.stride(3) == Info(v_type).block_bytes;
  double scale = call.attributes[ops::kAttentionScale];
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  launcher.Begin(!side_by_side          ? KernelId::kAttentionAny
                 : k_type == Type::kF16 ? KernelId::kAttentionF16
                                        : KernelId::kAttentionF32);
  launcher.Tensor(q);
  launcher.Tensor(k);
  launcher.Tensor(v);
  launcher.Tensor(OptionalTensor(call, 3));
  launcher.Tensor(y);
  launcher.Number(int32_t{IsGiven(call, 3)});
  launcher.Number(static_cast<float>(scale));
  launcher.Local(std::max<int64_t>(1, q.size(3)) * 4);
  launcher.Local(std::max<int64_t>(1, y.size(3)) * 4);
  return launcher.Enqueue({y.size(2), y.size(1), 1});
}

cl_int LaunchElementwise(Launcher& launcher, const KernelCall& call, ElementwiseOp op,
                         double factor = 0, double bias = 0) {
  DeviceTensor y = TensorOf(call.output), a = TensorOf(call.inputs[0]);
  DeviceTensor b = call.inputs.size() > 1 ? TensorOf(call.inputs[1]) : a;
  Broadcast(b, y);
  JoinRows(call, y, a, b);
  launcher.Begin(KernelId::kElementwise);
  launcher.Tensor(a);
  launcher.Tensor(b);
  launcher.Tensor(y);
  launcher.Number(int32_t{op});
  launcher.Number(static_cast<float>(factor));
  launcher.Number(static_cast<float>(bias));
  return launcher.Enqueue({CeilDiv(y.size(3), kChunk), y.rows(), 1});
}
cl_int LaunchSilu(Launcher& launcher, const KernelCall& call) {
  return LaunchElementwise(launcher, call, kSilu);
}
cl_int LaunchSwiglu(Launcher& launcher, const KernelCall& call) {
  return LaunchElementwise(launcher, call, kSwiglu);
}
cl_int LaunchAdd(Launcher& launcher, const KernelCall& call) {
  return LaunchElementwise(launcher, call, kAdd);
}
cl_int LaunchMul(Launcher& launcher, const KernelCall& call) {
  return LaunchElementwise(launcher, call, kMultiply);
}
cl_int LaunchScale(Launcher& launcher, const KernelCall& call) {
  return LaunchElementwise(launcher, call, kScale, call.attributes[ops::kScaleFactor],
                           call.attributes[ops::kScaleBias]);
}

cl_int LaunchCopy(Launcher& launcher, const KernelCall& call) {
  DeviceTensor x = TensorOf(call.inputs[0]), y = TensorOf(call.output);
  JoinRows(call, y, x);
  launcher.Begin(KernelId::kCopy);
  launcher.Tensor(x);
  launcher.Tensor(y);
  return launcher.Enqueue({CeilDiv(y.size(3), kChunk), y.rows(), 1});
}

cl_int LaunchArgmax(Launcher& launcher, const KernelCall& call) {
  const DeviceTensor x = TensorOf(call.inputs[0]);
  launcher.Begin(KernelId::kArgmax);
  launcher.Tensor(x);
  launcher.Tensor(PerRow(call.output));
  return launcher.Enqueue({x.rows(), 1, 1});
}

// --- What is supported ------------------------------------------------------------------------

constexpr OpKernel kOpKernels[] = {
    {"matmul", LaunchMatmul},    {"rows", LaunchRows, 1},
    {"rms_norm", LaunchRmsNorm}, {"rope", LaunchRope},
    {"softmax", LaunchSoftmax},  {"attention", LaunchAttention},
    {"silu", LaunchSilu},        {"swiglu", LaunchSwiglu},
    {"add", LaunchAdd},          {"mul", LaunchMul},
    {"scale", LaunchScale},      {"copy", LaunchCopy},
    {"argmax", LaunchArgmax},    {"update_rows", LaunchUpdateRows, 2},
};

bool IsReal(Type type) { return Info(type).is_float; }
bool IsInteger(Type type) { return type == Type::kI32 || type == Type::kI64; }

// The types that an op's kernel takes; "" if these are among them.
std::string WrongType(const KernelQuery& query) {
  const std::string_view op = query.op->name;
  const auto is_weight = [](Type type) { return IsReal(type) || Info(type).is_block; };
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    if (!query.present[i]) continue;
    const Type type = query.inputs[i].type;
    bool fits = type == Type::kF32;
    if (op == "matmul") fits = i == 1 ? is_weight(type) : fits;
    if (op == "rows") fits = i == 0 ? is_weight(type) : IsInteger(type);
    if (op == "rope" && i == 1) fits = type == Type::kI32;
    if (op == "attention")
      fits = i == 3 ? type == Type::kI32 : fits || (i > 0 && type == Type::kF16);
    if (op == "copy") fits = IsReal(type) ? IsReal(query.output.type) : type == query.output.type;
    if (op == "copy" && Info(type).is_block) fits = false;
    if (op == "update_rows") fits = i == 2 ? IsInteger(type) : IsReal(type);
    if (!fits) return fmt::format("{} as input {}", Info(type).name, i);
  }
  const Type type = query.output.type;
  const bool any_real = op == "copy" || op == "update_rows";
  const bool fits = op == "argmax" ? type == Type::kI32 : any_real || type == Type::kF32;
  return fits ? "" : fmt::format("{} as output", Info(type).name);
}

}  // namespace

Result<KernelChoice> FindOpKernel(std::string_view device, const KernelLimits& limits,
                                  const KernelQuery& query) {
  const std::string_view op = query.op->name;
  const auto* found = std::find_if(std::begin(kOpKernels), std::end(kOpKernels),
                                   [&](const OpKernel& kernel) { return kernel.op == op; });
  if (found == std::end(kOpKernels))
    return Fail(ErrorCode::kUnsupported, "{}: no kernel for op {}", device, op);
  if (const std::string wrong = WrongType(query); !wrong.empty())
    return Fail(ErrorCode::kUnsupported, "{}: {} does not take {}", device, op, wrong);
  // Kernels count the elements of a dimension in 32 bits.
  const auto too_long = [](const Layout& layout) {
    return std::any_of(layout.dims.begin(), layout.dims.begin() + layout.rank,
                       [](int64_t size) { return size > INT32_MAX - 4096; });
  };
  if (too_long(query.output) || std::any_of(query.inputs.begin(), query.inputs.end(), too_long))
    return Fail(ErrorCode::kUnsupported, "{}: {} of more than 2^31 elements a dimension", device,
                op);
  if (op == "attention") {
    const int64_t bytes = 4 * (query.inputs[0].dims[2] + query.output.dims[2] + kAttentionKeys);
    if (bytes > limits.local_bytes)
      return Fail(ErrorCode::kUnsupported,
                  "{}: attention over heads of {} needs {} bytes of local memory; there are {}",
                  device, query.inputs[0].dims[2], bytes, limits.local_bytes);
  }
  KernelChoice choice;
  choice.kernel = found;
  choice.weights.reserve(query.inputs.size());
  for (size_t i = 0; i < query.inputs.size(); ++i)
    choice.weights.push_back(
        {.name = {}, .bytes = query.present[i] ? query.inputs[i].PackedBytes() : 0});
  return choice;
}

const OpKernel* OpKernelOf(const KernelCall& call) {
  for (const OpKernel& kernel : kOpKernels)
    if (&kernel == call.kernel && call.op != nullptr && kernel.op == call.op->name) return &kernel;
  return nullptr;
}

}  // namespace tandem::opencl
