// rope: rotates pairs of each head by an angle that grows with the position.
#include <algorithm>
#include <cstring>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kChunk = 8192;     // Elements of one chunk.
constexpr int64_t kPairBlock = 256;  // Pairs whose angles are kept at once.

Result<void> RunRope(const KernelContext& context, const KernelCall& call) {
  const Simd& simd = context.simd;
  const TensorArg &x = call.inputs[0], &positions = call.inputs[1];
  const Layout &in = x.layout, &out = call.output.layout;
  const int64_t tokens = in.dims[0], heads = in.dims[1], width = in.dims[2];
  const double base = call.attributes[ops::kRopeBase], scale = call.attributes[ops::kRopeScale];
  const int64_t asked = static_cast<int64_t>(call.attributes[ops::kRopeDims]);
  const int64_t dims = asked == 0 ? width : asked, pairs = dims / 2;
  const bool halves = call.attributes[ops::kRopeHalves] != 0;
  const TensorArg* factors =
      call.inputs.size() > 2 && call.inputs[2].buffer != nullptr ? &call.inputs[2] : nullptr;
  const std::span<const double> frequencies = context.rope.Frequencies(base, dims);
  const bool in_place = HasFloatRows(in) && HasFloatRows(out);
  const bool moves = Data(x) != Data(call.output);

  // What a pair's angle is for position 1.
  const auto frequency = [&](int64_t i) {
    const double f =
        frequencies.empty() ? RopeTable::Of(base, dims, i) : frequencies[static_cast<size_t>(i)];
    if (factors == nullptr) return f * scale;
    return f * scale /
           ReadElement(factors->layout.type, Data(*factors) + i * LastStride(factors->layout));
  };
  // Rotates pairs [first, first + n) of one head, from and to any layout.
  const auto rotate_any = [&](const std::byte* from, std::byte* to, int64_t first, int64_t n,
                              const float* cosines, const float* sines) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t left = halves ? first + i : 2 * (first + i);
      const int64_t right = halves ? left + pairs : left + 1;
      const double a = ReadElement(in.type, from + left * in.strides[2]);
      const double b = ReadElement(in.type, from + right * in.strides[2]);
      WriteElement(out.type, a * cosines[i] - b * sines[i], to + left * out.strides[2]);
      WriteElement(out.type, b * cosines[i] + a * sines[i], to + right * out.strides[2]);
    }
  };
  RunRanges(context.team, tokens, heads * width, kChunk, [&](int64_t begin, int64_t end) {
    double angles[kPairBlock];
    float cosines[kPairBlock], sines[kPairBlock];
    for (int64_t t = begin; t < end; ++t) {
      const double position =
          ReadElement(positions.layout.type, Data(positions) + t * positions.layout.strides[0]);
      const std::byte* from = Data(x) + t * in.strides[0];
      std::byte* to = Data(call.output) + t * out.strides[0];
      for (int64_t first = 0; first < pairs; first += kPairBlock) {
        const int64_t n = std::min(kPairBlock, pairs - first);
        for (int64_t i = 0; i < n; ++i) angles[i] = position * frequency(first + i);
        simd.cos_sin(angles, n, cosines, sines);
        for (int64_t h = 0; h < heads; ++h) {
          const std::byte* head = from + h * in.strides[1];
          std::byte* head_out = to + h * out.strides[1];
          if (in_place && pairs <= kPairBlock) {
            simd.rotate(reinterpret_cast<const float*>(head), cosines, sines, n, halves,
                        reinterpret_cast<float*>(head_out));
          } else {
            rotate_any(head, head_out, first, n, cosines, sines);
          }
        }
      }
      if (dims == width || !moves) continue;
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = dims; i < width; ++i)
          WriteElement(out.type, ReadElement(in.type, from + h * in.strides[1] + i * in.strides[2]),
                       to + h * out.strides[1] + i * out.strides[2]);
    }
  });
  return {};
}

}  // namespace

const CpuKernel kRopeKernel = {"rope", RunRope};

}  // namespace tandem::cpu
