// rows, update_rows, copy: elements that go elsewhere, decoded or rounded on the way.
#include <algorithm>
#include <cstring>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kChunk = 16384;  // Elements of one chunk.

// One row of any type to one of any type. Equal types keep their bits.
class RowCopier {
 public:
  RowCopier(const Simd& simd, const Layout& from, const std::byte* source, const Layout& to,
            std::byte* target)
      : from_(from),
        to_(to),
        source_(source),
        target_(target),
        length_(LastDim(to)),
        reader_(simd, from, source, length_),
        writer_(simd, to, target) {
    const TypeInfo& info = Info(from.type);
    blocks_ = length_ / info.block_elements;
    block_bytes_ = info.block_bytes;
    bits_ = from.type == to.type;
    dense_ = bits_ &&
             (blocks_ == 1 || (LastStride(from) == block_bytes_ && LastStride(to) == block_bytes_));
    const auto is_integer = [](Type type) { return type == Type::kI32 || type == Type::kI64; };
    exact_ = is_integer(from.type) || is_integer(to.type);
  }

  // Offsets of the rows in bytes.
  void Copy(int64_t from, int64_t to) const {
    if (dense_) {
      std::memcpy(target_ + to, source_ + from, static_cast<size_t>(blocks_ * block_bytes_));
    } else if (bits_) {
      for (int64_t i = 0; i < blocks_; ++i)
        std::memcpy(target_ + to + i * LastStride(to_), source_ + from + i * LastStride(from_),
                    static_cast<size_t>(block_bytes_));
    } else if (exact_) {  // Floats would not hold every integer.
      for (int64_t i = 0; i < length_; ++i)
        WriteElement(to_.type, ReadElement(from_.type, source_ + from + i * LastStride(from_)),
                     target_ + to + i * LastStride(to_));
    } else {
      float buffer[kRowBlock];
      for (int64_t i = 0; i < length_; i += kRowBlock) {
        const int64_t n = std::min(kRowBlock, length_ - i);
        // A reader in place means that the writer is not: the types differ.
        writer_.Write(to, i, n, reader_.Read(from, i, n, writer_.Target(to, i, buffer)));
      }
    }
  }

 private:
  const Layout &from_, &to_;
  const std::byte* const source_;
  std::byte* const target_;
  const int64_t length_;
  const RowReader reader_;
  const RowWriter writer_;
  int64_t blocks_, block_bytes_;
  bool bits_, dense_, exact_;
};

// All ids are looked at before any row is touched.
Result<void> CheckIds(const KernelCall& call, const TensorArg& ids, int64_t bound) {
  const int64_t count = ids.layout.Elements();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ReadInteger(ids.layout.type, Data(ids) + ElementOffset(ids.layout, i));
    if (id < 0 || id >= bound)
      return Fail(ErrorCode::kInvalid, "node {}: {}: id {} at {} is not in [0, {})", call.name,
                  call.op->name, id, i, bound);
  }
  return {};
}

Result<void> RunRows(const KernelContext& context, const KernelCall& call) {
  const TensorArg &table = call.inputs[0], &ids = call.inputs[1];
  TANDEM_CHECK(CheckIds(call, ids, table.layout.dims[0]));
  const Layout& out = call.output.layout;
  const RowCopier copier(context.simd, table.layout, Data(table), out, Data(call.output));
  RunRanges(context.team, RowCount(out), LastDim(out), kChunk, [&](int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row) {
      const int64_t id = ReadInteger(ids.layout.type, Data(ids) + ElementOffset(ids.layout, row));
      copier.Copy(id * table.layout.strides[0], RowOffset(out, row));
    }
  });
  return {};
}

// A vector as a matrix of one column.
Layout AtLeastMatrix(Layout layout) {
  if (layout.rank == 1) {
    layout.rank = 2;
    layout.dims[1] = 1;
    layout.strides[1] = Info(layout.type).block_bytes;
  }
  return layout;
}

Result<void> RunUpdateRows(const KernelContext& context, const KernelCall& call) {
  const TensorArg &state = call.inputs[0], &rows = call.inputs[1], &ids = call.inputs[2];
  TANDEM_CHECK(CheckIds(call, ids, state.layout.dims[0]));
  const Layout out = AtLeastMatrix(call.output.layout), in = AtLeastMatrix(rows.layout);
  if (Data(state) != Data(call.output))
    return Fail(ErrorCode::kInternal,
                "node {}: update_rows: the state's next version must be in the state's own bytes",
                call.name);
  if (in.Elements() == 0) return {};
  // A row of the state may itself have several dimensions; ids may repeat, and then the last one
  // counts, so the rows of one id are written in order: chunks split what is within a row.
  const int64_t tokens = in.dims[0];
  const int64_t inner = RowCount(in) / tokens;
  const RowCopier copier(context.simd, in, Data(rows), out, Data(call.output));
  Layout inside = out;  // One row of the state.
  inside.dims[0] = 1;
  const auto update = [&](int64_t first, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t id = ReadInteger(ids.layout.type, Data(ids) + t * LastStride(ids.layout));
      for (int64_t i = first; i < end; ++i)
        copier.Copy(RowOffset(in, t * inner + i), id * out.strides[0] + RowOffset(inside, i));
    }
  };
  RunRanges(context.team, inner, LastDim(in) * tokens, 4 * kChunk, update);
  return {};
}

Result<void> RunCopy(const KernelContext& context, const KernelCall& call) {
  const TensorArg& x = call.inputs[0];
  const Layout& out = call.output.layout;
  if (x.layout.type == out.type && x.layout.IsContiguous() && out.IsContiguous()) {
    const int64_t bytes = out.PackedBytes();
    RunRanges(context.team, bytes, 1, 16 * kChunk, [&](int64_t first, int64_t end) {
      std::memcpy(Data(call.output) + first, Data(x) + first, static_cast<size_t>(end - first));
    });
    return {};
  }
  const RowCopier copier(context.simd, x.layout, Data(x), out, Data(call.output));
  RunRanges(context.team, RowCount(out), LastDim(out), kChunk, [&](int64_t first, int64_t end) {
    RowWalk<2> walk(out, {&x.layout, &out}, first);
    for (int64_t row = first; row < end; ++row, walk.Next())
      copier.Copy(walk.offset(0), walk.offset(1));
  });
  return {};
}

}  // namespace

const CpuKernel kRowsKernel = {"rows", RunRows};
const CpuKernel kUpdateRowsKernel = {"update_rows", RunUpdateRows};
const CpuKernel kCopyKernel = {"copy", RunCopy};

}  // namespace tandem::cpu
