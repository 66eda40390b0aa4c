// silu, swiglu, add, mul, scale: one result for each element.
#include <algorithm>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

// Elements of one chunk: some microseconds of work.
constexpr int64_t kCheapChunk = 16384, kDearChunk = 4096;

// Contiguous floats of equal shape are one long row.
bool IsOneRow(const Layout& layout, const Layout& shape) {
  return layout.type == Type::kF32 && layout.rank == shape.rank && layout.dims == shape.dims &&
         layout.IsContiguous();
}

// compute(x, out, n)
template <class Compute>
void Unary(const KernelContext& context, const KernelCall& call, int64_t chunk,
           const Compute& compute) {
  const TensorArg& x = call.inputs[0];
  const Layout& shape = call.output.layout;
  if (IsOneRow(x.layout, shape) && IsOneRow(shape, shape)) {
    const float* from = reinterpret_cast<const float*>(Data(x));
    float* to = reinterpret_cast<float*>(Data(call.output));
    RunRanges(context.team, shape.Elements(), 1, chunk,
              [&](int64_t first, int64_t end) { compute(from + first, to + first, end - first); });
    return;
  }
  const int64_t length = LastDim(shape);
  const RowReader reader(context.simd, x.layout, Data(x), length);
  const RowWriter writer(context.simd, shape, Data(call.output));
  RunRanges(context.team, RowCount(shape), length, chunk, [&](int64_t first, int64_t end) {
    RowWalk<2> walk(shape, {&x.layout, &shape}, first);
    for (int64_t row = first; row < end; ++row, walk.Next())
      for (int64_t i = 0; i < length; i += kRowBlock) {
        float in[kRowBlock], out[kRowBlock];
        const int64_t n = std::min(kRowBlock, length - i);
        float* target = writer.Target(walk.offset(1), i, out);
        compute(reader.Read(walk.offset(0), i, n, in), target, n);
        writer.Write(walk.offset(1), i, n, target);
      }
  });
}

// compute(a, b, out, n); b broadcasts.
template <class Compute>
void Binary(const KernelContext& context, const KernelCall& call, int64_t chunk,
            const Compute& compute) {
  const TensorArg &a = call.inputs[0], &b = call.inputs[1];
  const Layout& shape = call.output.layout;
  if (IsOneRow(a.layout, shape) && IsOneRow(b.layout, shape) && IsOneRow(shape, shape)) {
    const float* from_a = reinterpret_cast<const float*>(Data(a));
    const float* from_b = reinterpret_cast<const float*>(Data(b));
    float* to = reinterpret_cast<float*>(Data(call.output));
    RunRanges(context.team, shape.Elements(), 1, chunk, [&](int64_t first, int64_t end) {
      compute(from_a + first, from_b + first, to + first, end - first);
    });
    return;
  }
  const int64_t length = LastDim(shape);
  const RowReader reader_a(context.simd, a.layout, Data(a), length);
  const RowReader reader_b(context.simd, b.layout, Data(b), length);
  const RowWriter writer(context.simd, shape, Data(call.output));
  RunRanges(context.team, RowCount(shape), length, chunk, [&](int64_t first, int64_t end) {
    RowWalk<3> walk(shape, {&a.layout, &b.layout, &shape}, first);
    for (int64_t row = first; row < end; ++row, walk.Next())
      for (int64_t i = 0; i < length; i += kRowBlock) {
        float in_a[kRowBlock], in_b[kRowBlock], out[kRowBlock];
        const int64_t n = std::min(kRowBlock, length - i);
        float* target = writer.Target(walk.offset(2), i, out);
        compute(reader_a.Read(walk.offset(0), i, n, in_a),
                reader_b.Read(walk.offset(1), i, n, in_b), target, n);
        writer.Write(walk.offset(2), i, n, target);
      }
  });
}

Result<void> RunSilu(const KernelContext& context, const KernelCall& call) {
  Unary(context, call, kDearChunk, context.simd.silu);
  return {};
}
Result<void> RunSwiglu(const KernelContext& context, const KernelCall& call) {
  Binary(context, call, kDearChunk, context.simd.swiglu);
  return {};
}
Result<void> RunAdd(const KernelContext& context, const KernelCall& call) {
  Binary(context, call, kCheapChunk, context.simd.add);
  return {};
}
Result<void> RunMul(const KernelContext& context, const KernelCall& call) {
  Binary(context, call, kCheapChunk, context.simd.mul);
  return {};
}
Result<void> RunScale(const KernelContext& context, const KernelCall& call) {
  const float factor = static_cast<float>(call.attributes[ops::kScaleFactor]);
  const float bias = static_cast<float>(call.attributes[ops::kScaleBias]);
  Unary(context, call, kCheapChunk, [&](const float* x, float* out, int64_t n) {
    context.simd.scale(x, factor, bias, out, n);
  });
  return {};
}

}  // namespace

const CpuKernel kSiluKernel = {"silu", RunSilu};
const CpuKernel kSwigluKernel = {"swiglu", RunSwiglu};
const CpuKernel kAddKernel = {"add", RunAdd};
const CpuKernel kMulKernel = {"mul", RunMul};
const CpuKernel kScaleKernel = {"scale", RunScale};

}  // namespace tandem::cpu
