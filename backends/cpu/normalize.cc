// rms_norm, softmax, argmax: what looks at a whole row before it can answer.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kChunk = 8192;  // Elements of one chunk.
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// step(begin, n) over a row in blocks; the whole row is one block if all rows are in place.
template <class Step>
void Blocks(int64_t length, bool whole, const Step& step) {
  if (whole) {
    step(0, length);
    return;
  }
  for (int64_t i = 0; i < length; i += kRowBlock) step(i, std::min(kRowBlock, length - i));
}

Result<void> RunRmsNorm(const KernelContext& context, const KernelCall& call) {
  const Simd& simd = context.simd;
  const TensorArg& x = call.inputs[0];
  const Layout& shape = call.output.layout;
  const int64_t length = LastDim(shape);
  const double epsilon = call.attributes[ops::kRmsNormEpsilon];
  const bool weighted = call.inputs.size() > 1 && call.inputs[1].buffer != nullptr;
  const TensorArg& weight = weighted ? call.inputs[1] : x;
  const RowReader reader(simd, x.layout, Data(x), length);
  const RowReader weights(simd, weight.layout, Data(weight), length);
  const RowWriter writer(simd, shape, Data(call.output));
  const bool whole = reader.in_place() && writer.in_place() && (!weighted || weights.in_place());
  RunRanges(context.team, RowCount(shape), length, kChunk, [&](int64_t first, int64_t end) {
    RowWalk<2> walk(shape, {&x.layout, &shape}, first);
    float in[kRowBlock], w[kRowBlock], out[kRowBlock];
    for (int64_t row = first; row < end; ++row, walk.Next()) {
      double squares = 0;
      Blocks(length, whole, [&](int64_t i, int64_t n) {
        squares += simd.sum_squares(reader.Read(walk.offset(0), i, n, in), n);
      });
      const float factor =
          static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(length) + epsilon));
      Blocks(length, whole, [&](int64_t i, int64_t n) {
        const float* values = reader.Read(walk.offset(0), i, n, in);
        float* target = writer.Target(walk.offset(1), i, out);
        if (weighted)
          simd.scale_weighted(values, factor, weights.Read(0, i, n, w), target, n);
        else
          simd.scale(values, factor, 0.0f, target, n);
        writer.Write(walk.offset(1), i, n, target);
      });
    }
  });
  return {};
}

Result<void> RunSoftmax(const KernelContext& context, const KernelCall& call) {
  const Simd& simd = context.simd;
  const TensorArg& x = call.inputs[0];
  const Layout& shape = call.output.layout;
  const int64_t length = LastDim(shape);
  const float scale = static_cast<float>(call.attributes[ops::kSoftmaxScale]);
  const bool masked = call.inputs.size() > 1 && call.inputs[1].buffer != nullptr;
  const TensorArg& mask = masked ? call.inputs[1] : x;
  const RowReader reader(simd, x.layout, Data(x), length);
  const RowReader masks(simd, mask.layout, Data(mask), length);
  const RowWriter writer(simd, shape, Data(call.output));
  const bool whole = reader.in_place() && writer.in_place() && (!masked || masks.in_place());
  RunRanges(context.team, RowCount(shape), length * 4, kChunk, [&](int64_t first, int64_t end) {
    RowWalk<3> walk(shape, {&x.layout, &shape, &mask.layout}, first);
    float in[kRowBlock], m[kRowBlock], out[kRowBlock];
    for (int64_t row = first; row < end; ++row, walk.Next()) {
      // x * scale + mask of one block, where the result goes.
      const auto scores = [&](int64_t i, int64_t n) {
        float* target = writer.Target(walk.offset(1), i, out);
        simd.scale(reader.Read(walk.offset(0), i, n, in), scale, 0.0f, target, n);
        if (masked) simd.add(target, masks.Read(walk.offset(2), i, n, m), target, n);
        return target;
      };
      float largest = kHidden;
      double sum = 0;
      if (whole) {
        float* row_out = scores(0, length);
        largest = simd.largest(row_out, length);
        if (largest == kHidden) {
          std::memset(row_out, 0, static_cast<size_t>(length) * 4);
          continue;
        }
        sum = simd.exp_sum(row_out, length, largest);
        simd.scale(row_out, static_cast<float>(1.0 / sum), 0.0f, row_out, length);
        continue;
      }
      // Nothing is written before the row was read for the last time but one; a block that is
      // written is not read again, so working in place is fine.
      float scratch[kRowBlock];
      const auto values = [&](int64_t i, int64_t n) {
        simd.scale(reader.Read(walk.offset(0), i, n, in), scale, 0.0f, scratch, n);
        if (masked) simd.add(scratch, masks.Read(walk.offset(2), i, n, m), scratch, n);
      };
      Blocks(length, false, [&](int64_t i, int64_t n) {
        values(i, n);
        largest = std::max(largest, simd.largest(scratch, n));
      });
      // A row of which the mask hides everything becomes zeros.
      const bool hidden = largest == kHidden;
      if (hidden) largest = 0;
      Blocks(length, false, [&](int64_t i, int64_t n) {
        values(i, n);
        sum += simd.exp_sum(scratch, n, largest);
      });
      if (hidden) sum = 1;
      Blocks(length, false, [&](int64_t i, int64_t n) {
        values(i, n);
        simd.exp_sum(scratch, n, largest);
        float* target = writer.Target(walk.offset(1), i, out);
        simd.scale(scratch, static_cast<float>(1.0 / sum), 0.0f, target, n);
        writer.Write(walk.offset(1), i, n, target);
      });
    }
  });
  return {};
}

Result<void> RunArgmax(const KernelContext& context, const KernelCall& call) {
  const Simd& simd = context.simd;
  const TensorArg& x = call.inputs[0];
  const int64_t length = LastDim(x.layout);
  const RowReader reader(simd, x.layout, Data(x), length);
  std::byte* result = Data(call.output);
  RunRanges(context.team, RowCount(x.layout), length, 4 * kChunk, [&](int64_t first, int64_t end) {
    float in[kRowBlock];
    for (int64_t row = first; row < end; ++row) {
      const int64_t offset = RowOffset(x.layout, row);
      // Blocks are looked through for their maximum; only where that is a new one is
      // its place looked for.
      float best = kHidden;
      int64_t best_at = 0;
      Blocks(length, false, [&](int64_t i, int64_t n) {
        const float* values = reader.Read(offset, i, n, in);
        const float largest = simd.largest(values, n);
        if (!(largest > best)) return;
        best = largest;
        best_at = i + (std::find(values, values + n, largest) - values);
      });
      const int32_t index = static_cast<int32_t>(best_at);
      std::memcpy(result + ElementOffset(call.output.layout, row), &index, 4);
    }
  });
  return {};
}

}  // namespace

const CpuKernel kRmsNormKernel = {"rms_norm", RunRmsNorm};
const CpuKernel kSoftmaxKernel = {"softmax", RunSoftmax};
const CpuKernel kArgmaxKernel = {"argmax", RunArgmax};

}  // namespace tandem::cpu
