// matmul: x [..., M, K] times w [..., N, K] transposed.
//
// Four ways. Weights that were packed into tiles are multiplied by activations in 8 bits
// (block formats, unless the node asks for exactness) or by floats, and any other w is read row by
// row where it lies. Each has a form for few tokens, which streams w once, and one for many, which
// unpacks a panel of w and keeps it in the cache for all of them.
#include <algorithm>
#include <cstring>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kFewTokens = 4;             // Up to here w is streamed.
constexpr int64_t kQuantizedTileTokens = 43;  // Token tiles that share a panel: fit the L2 cache.
constexpr int64_t kTokenChunkBytes = int64_t{600} << 10;
constexpr int64_t kPanelDepth = 768;   // Of a panel of floats: 64 columns of it, 192 KB.
constexpr int64_t kFloatTokens = 126;  // That share one.
constexpr int64_t kStreamDepth = 128;  // Of a tile unpacked for few tokens: 8 KB.
constexpr int64_t kChunkBytes = int64_t{16} << 10, kLargestChunkBytes = int64_t{256} << 10;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t Ceil(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Rows of a matrix: uniform where the strides allow, so that finding one costs a multiplication.
class MatrixRows {
 public:
  explicit MatrixRows(const Layout& layout) : layout_(layout), count_(RowCount(layout)) {
    stride_ = layout.rank >= 2 ? layout.strides[layout.rank - 2] : 0;
    int64_t expected = stride_;
    for (int d = layout.rank - 2; d >= 0; --d) {
      if (layout.dims[d] != 1 && layout.strides[d] != expected) uniform_ = false;
      expected *= layout.dims[d];
    }
    if (layout.rank >= 2 && layout.dims[layout.rank - 2] == 1 && count_ > 1) uniform_ = false;
  }
  int64_t count() const { return count_; }
  int64_t Offset(int64_t row) const { return uniform_ ? row * stride_ : RowOffset(layout_, row); }

 private:
  const Layout& layout_;
  const int64_t count_;
  int64_t stride_ = 0;
  bool uniform_ = true;
};

// One product of the call: tokens times one matrix of w.
struct Problem {
  int64_t tokens = 0, rows = 0, k = 0;
  // Contiguous floats of a token, and where its results go.
  const std::byte* x = nullptr;
  const MatrixRows* x_rows = nullptr;  // Null: rows of k floats, packed.
  int64_t first_x = 0;
  std::byte* y = nullptr;
  const MatrixRows* y_rows = nullptr;
  int64_t first_y = 0;

  const float* X(int64_t token) const {
    const int64_t offset =
        x_rows != nullptr ? x_rows->Offset(first_x + token) : (first_x + token) * k * 4;
    return reinterpret_cast<const float*>(x + offset);
  }
  float* Y(int64_t token) const {
    return reinterpret_cast<float*>(y + y_rows->Offset(first_y + token));
  }
};

// The scratch of a call: what all members share, then a part for each member.
struct ScratchPlan {
  int64_t shared = 0, each = 0;
  int64_t Bytes(int members) const { return shared + each * members; }
};

// Bytes of x as packed floats, if its rows are not.
int64_t GatheredBytes(const Layout& x) {
  return HasFloatRows(x) ? 0 : RoundUp(x.Elements() * 4, 64);
}

int64_t VectorBytes(int64_t k) { return RoundUp(k + k / kBlock * 20, 64); }
// Token tiles of one chunk.
int64_t ChunkTiles(int64_t blocks) {
  return std::clamp<int64_t>(kTokenChunkBytes / std::max<int64_t>(1, TokenTileBytes(blocks)), 4,
                             kQuantizedTileTokens);
}

ScratchPlan QuantizedScratch(int64_t tokens, int64_t k) {
  const int64_t blocks = k / kBlock;
  ScratchPlan plan;
  plan.shared = std::min(tokens, kFewTokens) * VectorBytes(k);
  if (tokens > kFewTokens) {
    plan.shared =
        std::max(plan.shared, RoundUp(Ceil(tokens, kTokens) * TokenTileBytes(blocks), 64));
    plan.each = RoundUp(PanelBytes(blocks), 64);
  }
  return plan;
}
ScratchPlan FloatScratch(int64_t tokens, int64_t k) {
  ScratchPlan plan;
  if (tokens > kFewTokens) plan.each = kColumns * std::min(k, kPanelDepth) * 4;
  return plan;
}

// Members for whom a call's scratch has room.
int Members(const KernelCall& call, int64_t used, int64_t each) {
  if (each == 0) return INT32_MAX;
  return static_cast<int>(std::clamp<int64_t>((call.scratch_bytes - used) / each, 1, INT32_MAX));
}

// Tiles of one chunk when w is streamed: enough chunks for members to even out, none too small.
int64_t StreamedTiles(int64_t tiles, int64_t tile_bytes, int threads) {
  if (threads == 1) return std::max<int64_t>(1, tiles);
  const int64_t bytes =
      std::clamp(tiles * tile_bytes / (4 * threads), kChunkBytes, kLargestChunkBytes);
  return std::max<int64_t>(1, bytes / std::max<int64_t>(1, tile_bytes));
}

// ---- Packed block weights, activations in 8 bits ----------------------------------------------

void QuantizedFew(const KernelContext& context, const Problem& p, TileFormat format,
                  const std::byte* w, std::byte* scratch) {
  const Simd& simd = context.simd;
  const int64_t blocks = p.k / kBlock, tiles = Ceil(p.rows, kTileRows);
  const int64_t tile_bytes = TileBytes(format, p.k);
  QuantizedVector x[kFewTokens];
  for (int64_t t = 0; t < p.tokens; ++t) {
    std::byte* at = scratch + t * VectorBytes(p.k);
    int8_t* q = reinterpret_cast<int8_t*>(at);
    float* scale = reinterpret_cast<float*>(at + p.k);
    float* scaled_sum = scale + 2 * blocks;
    int32_t* sum = reinterpret_cast<int32_t*>(scaled_sum + blocks);
    simd.quantize(p.X(t), blocks, q, scale, scaled_sum, sum);
    x[t] = {q, scale, scaled_sum, sum};
  }
  const int64_t step = StreamedTiles(tiles, tile_bytes, context.team.threads());
  const int64_t whole_tiles = p.rows / kTileRows;
  context.team.Run(Ceil(tiles, step), [&](int, int64_t chunk) {
    const int64_t begin = chunk * step, end = std::min(tiles, begin + step);
    // With one token a chunk is one stream; with more, each tile is used for all of them.
    const int64_t stride = p.tokens == 1 ? end - begin : 1;
    for (int64_t tile = begin; tile < end; tile += stride) {
      const int64_t whole = std::min(tile + stride, whole_tiles) - tile;
      const std::byte* at = w + tile * tile_bytes;
      for (int64_t t = 0; t < p.tokens; ++t) {
        float* y = p.Y(t) + tile * kTileRows;
        if (whole > 0) simd.gemv(format, at, whole, blocks, x[t], y, at + stride * tile_bytes);
        if (whole < stride && tile + stride > whole_tiles) {
          float last[kTileRows];
          simd.gemv(format, at + whole * tile_bytes, 1, blocks, x[t], last, at);
          std::memcpy(p.Y(t) + whole_tiles * kTileRows, last,
                      static_cast<size_t>(p.rows - whole_tiles * kTileRows) * 4);
        }
      }
    }
  });
}

void QuantizedMany(const KernelContext& context, const Problem& p, TileFormat format,
                   const std::byte* w, std::byte* scratch, int members, int64_t panel_bytes,
                   std::byte* panels) {
  const Simd& simd = context.simd;
  const int64_t blocks = p.k / kBlock, tiles = Ceil(p.rows, kTileRows);
  const int64_t tile_bytes = TileBytes(format, p.k), token_tile = TokenTileBytes(blocks);
  const int64_t token_tiles = Ceil(p.tokens, kTokens);
  RunRanges(context.team, token_tiles, kTokens * p.k, 16384, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      const int count = static_cast<int>(std::min<int64_t>(kTokens, p.tokens - i * kTokens));
      const float* rows[kTokens];
      for (int t = 0; t < count; ++t) rows[t] = p.X(i * kTokens + t);
      simd.quantize_tile(rows, count, blocks, scratch + i * token_tile);
    }
  });
  const int64_t chunk_tiles = ChunkTiles(blocks), chunks = Ceil(token_tiles, chunk_tiles);
  const int64_t pairs = Ceil(tiles, 2);
  context.team.Run(chunks * pairs, members, [&](int member, int64_t i) {
    const int64_t pair = i % pairs, first_token = i / pairs * chunk_tiles * kTokens;
    const int64_t tokens = std::min(chunk_tiles * kTokens, p.tokens - first_token);
    const int64_t row = pair * 2 * kTileRows, valid = std::min(2 * kTileRows, p.rows - row);
    const std::byte* tile = w + pair * 2 * tile_bytes;
    const std::byte* second = pair * 2 + 1 < tiles ? tile + tile_bytes : nullptr;
    const std::byte* acts = scratch + first_token / kTokens * token_tile;
    std::byte* panel = panels + member * panel_bytes;
    float* y = p.Y(first_token) + row;
    const int64_t y_stride = tokens > 1 ? p.Y(first_token + 1) + row - y : 0;
    const bool even = p.Y(first_token + tokens - 1) + row == y + (tokens - 1) * y_stride;
    if (valid == 2 * kTileRows && even) {
      simd.gemm(format, tile, second, blocks, acts, tokens, y, y_stride, panel);
      return;
    }
    // The last rows, or results that are not evenly spaced: through a buffer.
    for (int64_t t = 0; t < tokens; t += kTokens) {
      float out[kTokens][2 * kTileRows];
      const int64_t count = std::min<int64_t>(kTokens, tokens - t);
      simd.gemm(format, tile, second, blocks, acts + t / kTokens * token_tile, count, out[0],
                2 * kTileRows, panel);
      for (int64_t j = 0; j < count; ++j)
        std::memcpy(p.Y(first_token + t + j) + row, out[j], static_cast<size_t>(valid) * 4);
    }
  });
}

// ---- Floats -----------------------------------------------------------------------------------

void PackedFew(const KernelContext& context, const Problem& p, TileFormat format,
               const std::byte* w) {
  const Simd& simd = context.simd;
  const int64_t tiles = Ceil(p.rows, kTileRows), tile_bytes = TileBytes(format, p.k);
  const int64_t step = StreamedTiles(tiles, tile_bytes, context.team.threads());
  context.team.Run(Ceil(tiles, step), [&](int, int64_t chunk) {
    for (int64_t tile = chunk * step; tile < std::min(tiles, (chunk + 1) * step); ++tile) {
      alignas(64) float panel[kStreamDepth * kTileRows];
      alignas(64) float sums[kFewTokens][kTileRows] = {};
      for (int64_t k = 0; k < p.k; k += kStreamDepth) {
        const int64_t end = std::min(p.k, k + kStreamDepth);
        simd.unpack(format, w + tile * tile_bytes, k, end, panel, kTileRows);
        for (int64_t t = 0; t < p.tokens; ++t) simd.accumulate(panel, end - k, p.X(t) + k, sums[t]);
      }
      const int64_t valid = std::min(kTileRows, p.rows - tile * kTileRows);
      for (int64_t t = 0; t < p.tokens; ++t)
        std::memcpy(p.Y(t) + tile * kTileRows, sums[t], static_cast<size_t>(valid) * 4);
    }
  });
}

// fill(group, begin, end, panel): k in [begin, end) of rows 64 * group... as a panel of kColumns.
template <class Fill>
void PanelMany(const KernelContext& context, const Problem& p, int members, std::byte* panels,
               const Fill& fill) {
  const Simd& simd = context.simd;
  const int64_t groups = Ceil(p.rows, kColumns), chunks = Ceil(p.tokens, kFloatTokens);
  const int64_t depth = std::min(p.k, kPanelDepth);
  context.team.Run(chunks * groups, members, [&](int member, int64_t i) {
    const int64_t group = i % groups, first = i / groups * kFloatTokens;
    const int64_t end = std::min(p.tokens, first + kFloatTokens);
    const int64_t row = group * kColumns, valid = std::min(kColumns, p.rows - row);
    float* panel = reinterpret_cast<float*>(panels + member * kColumns * depth * 4);
    for (int64_t k = 0; k < p.k; k += depth) {
      const int64_t k_end = std::min(p.k, k + depth);
      fill(group, k, k_end, panel);
      for (int64_t t = first; t < end; t += kTokens) {
        const int count = static_cast<int>(std::min<int64_t>(kTokens, end - t));
        const float* x[kTokens];
        for (int j = 0; j < kTokens; ++j) x[j] = p.X(t + std::min(j, count - 1)) + k;
        float* y0 = p.Y(t) + row;
        const int64_t y_stride = count > 1 ? p.Y(t + 1) + row - y0 : 0;
        if (valid == kColumns && p.Y(t + count - 1) + row == y0 + (count - 1) * y_stride) {
          simd.multiply(x, panel, k_end - k, y0, y_stride, count, k > 0);
          continue;
        }
        float out[kTokens][kColumns];
        simd.multiply(x, panel, k_end - k, out[0], kColumns, count, false);
        for (int j = 0; j < count; ++j) {
          float* y = p.Y(t + j) + row;
          if (k == 0)
            std::memcpy(y, out[j], static_cast<size_t>(valid) * 4);
          else
            simd.add(y, out[j], y, valid);
        }
      }
    }
  });
}

void PackedMany(const KernelContext& context, const Problem& p, TileFormat format,
                const std::byte* w, int members, std::byte* panels) {
  const int64_t tiles = Ceil(p.rows, kTileRows), tile_bytes = TileBytes(format, p.k);
  PanelMany(context, p, members, panels,
            [&](int64_t group, int64_t begin, int64_t end, float* panel) {
              for (int64_t i = 0; i < 4 && group * 4 + i < tiles; ++i)
                context.simd.unpack(format, w + (group * 4 + i) * tile_bytes, begin, end,
                                    panel + i * kTileRows, kColumns);
            });
}

void PlainFew(const KernelContext& context, const Problem& p, const Layout& w_layout,
              const std::byte* w) {
  const Simd& simd = context.simd;
  const RowReader reader(simd, w_layout, w, p.k);
  const int64_t stride = w_layout.rank >= 2 ? w_layout.strides[w_layout.rank - 2] : 0;
  RunRanges(context.team, p.rows, p.k, 8192, [&](int64_t first, int64_t end) {
    float buffer[kRowBlock];
    for (int64_t row = first; row < end; ++row) {
      float sums[kFewTokens] = {};
      const int64_t depth = reader.in_place() ? p.k : kRowBlock;
      for (int64_t k = 0; k < p.k; k += depth) {
        const int64_t n = std::min(depth, p.k - k);
        const float* values = reader.Read(row * stride, k, n, buffer);
        for (int64_t t = 0; t < p.tokens; ++t) sums[t] += simd.dot(values, p.X(t) + k, n);
      }
      for (int64_t t = 0; t < p.tokens; ++t) p.Y(t)[row] = sums[t];
    }
  });
}

void PlainMany(const KernelContext& context, const Problem& p, const Layout& w_layout,
               const std::byte* w, int members, std::byte* panels) {
  const RowReader reader(context.simd, w_layout, w, p.k);
  const int64_t stride = w_layout.rank >= 2 ? w_layout.strides[w_layout.rank - 2] : 0;
  PanelMany(context, p, members, panels,
            [&](int64_t group, int64_t begin, int64_t end, float* panel) {
              float buffer[kRowBlock];
              const int64_t rows = std::min(kColumns, p.rows - group * kColumns);
              for (int64_t r = 0; r < rows; ++r)
                for (int64_t k = begin; k < end;) {
                  // Blocks that a reader hands out start at multiples of kRowBlock.
                  const int64_t block = k / kRowBlock * kRowBlock;
                  const int64_t n = std::min(kRowBlock, p.k - block);
                  const int64_t stop = std::min(end, block + n);
                  const float* values =
                      reader.Read((group * kColumns + r) * stride, block, n, buffer) - block;
                  for (; k < stop; ++k) panel[(k - begin) * kColumns + r] = values[k];
                }
            });
}

// ---- The call ---------------------------------------------------------------------------------

enum class Way { kQuantized, kPacked, kPlain };

Result<void> Multiply(const KernelContext& context, const KernelCall& call, Way way) {
  const TensorArg &x = call.inputs[0], &w = call.inputs[1];
  const Layout &x_layout = x.layout, &w_layout = w.layout, &y_layout = call.output.layout;
  TileFormat format = TileFormat::kF32;
  if (way != Way::kPlain) {
    if (w.packed == nullptr)
      return Fail(ErrorCode::kInternal, "node {}: matmul: the weights are not packed", call.name);
    const std::optional<TileFormat> packed = TileFormatOf(*w.packed);
    if (!packed)
      return Fail(ErrorCode::kInternal, "node {}: matmul: no weight layout named {}", call.name,
                  w.packed->name);
    format = *packed;
  }
  const int64_t k = LastDim(x_layout);
  const MatrixRows x_rows(x_layout), y_rows(y_layout);
  const int64_t w_rows = w_layout.rank >= 2 ? w_layout.dims[w_layout.rank - 2] : 1;
  int64_t matrices = 1;
  for (int d = 0; d + 2 < w_layout.rank; ++d) matrices *= w_layout.dims[d];

  std::byte* scratch = Scratch(call);
  int64_t used = 0;
  Problem p;
  p.rows = w_rows;
  p.k = k;
  p.x = Data(x);
  p.x_rows = &x_rows;
  p.y = Data(call.output);
  p.y_rows = &y_rows;
  if (!HasFloatRows(x_layout)) {
    float* gathered = reinterpret_cast<float*>(scratch);
    const RowReader reader(context.simd, x_layout, Data(x), k);
    RunRanges(context.team, x_rows.count(), k, 16384, [&](int64_t first, int64_t end) {
      for (int64_t row = first; row < end; ++row)
        for (int64_t i = 0; i < k; i += kRowBlock) {
          const int64_t n = std::min(kRowBlock, k - i);
          float* to = gathered + row * k + i;
          const float* values = reader.Read(x_rows.Offset(row), i, n, to);
          if (values != to) std::memcpy(to, values, static_cast<size_t>(n) * 4);
        }
    });
    p.x = scratch;
    p.x_rows = nullptr;
    used = GatheredBytes(x_layout);
  }
  // One matrix serves all tokens; several are taken in turn by the batches of x.
  const int64_t batch_tokens = x_layout.rank >= 2 ? x_layout.dims[x_layout.rank - 2] : 1;
  const int64_t batches = matrices == 1 ? 1 : x_rows.count() / batch_tokens;
  p.tokens = matrices == 1 ? x_rows.count() : batch_tokens;

  for (int64_t batch = 0; batch < batches; ++batch) {
    p.first_x = p.first_y = batch * batch_tokens;
    // The matrix of this batch: dimensions of w divide those of x.
    int64_t matrix = 0, matrix_offset = 0;
    int64_t rest = batch, scale = 1;
    if (matrices > 1)
      for (int d = x_layout.rank - 3, e = w_layout.rank - 3; d >= 0; --d, --e) {
        const int64_t i = rest % x_layout.dims[d];
        rest /= x_layout.dims[d];
        if (e < 0) continue;
        const int64_t j = i / (x_layout.dims[d] / w_layout.dims[e]);
        matrix += j * scale;
        scale *= w_layout.dims[e];
        matrix_offset += j * w_layout.strides[e];
      }
    std::byte* free_scratch = scratch + used;
    const bool few = p.tokens <= kFewTokens;
    if (way == Way::kPlain) {
      const std::byte* at = Data(w) + matrix_offset;
      if (few)
        PlainFew(context, p, w_layout, at);
      else
        PlainMany(context, p, w_layout, at, Members(call, used, FloatScratch(p.tokens, k).each),
                  free_scratch);
      continue;
    }
    const std::byte* at = Data(w) + matrix * Ceil(w_rows, kTileRows) * TileBytes(format, k);
    if (way == Way::kPacked) {
      if (few)
        PackedFew(context, p, format, at);
      else
        PackedMany(context, p, format, at, Members(call, used, FloatScratch(p.tokens, k).each),
                   free_scratch);
    } else if (few) {
      QuantizedFew(context, p, format, at, free_scratch);
    } else {
      const ScratchPlan plan = QuantizedScratch(p.tokens, k);
      QuantizedMany(context, p, format, at, free_scratch,
                    Members(call, used + plan.shared, plan.each), plan.each,
                    free_scratch + plan.shared);
    }
  }
  return {};
}

// Nothing to sum: zeros.
bool FillEmptySums(const KernelCall& call) {
  if (LastDim(call.inputs[0].layout) != 0) return false;
  const Layout& out = call.output.layout;
  const int64_t rows = RowCount(out);
  for (int64_t row = 0; row < rows; ++row)
    std::memset(Data(call.output) + RowOffset(out, row), 0, static_cast<size_t>(LastDim(out)) * 4);
  return true;
}

template <Way kWay>
Result<void> RunMatmul(const KernelContext& context, const KernelCall& call) {
  if (FillEmptySums(call)) return {};
  return Multiply(context, call, kWay);
}

const CpuKernel kQuantizedMatmul = {"matmul", RunMatmul<Way::kQuantized>};
const CpuKernel kPackedMatmul = {"matmul", RunMatmul<Way::kPacked>};
const CpuKernel kPlainMatmul = {"matmul", RunMatmul<Way::kPlain>};

}  // namespace

Result<KernelChoice> FindMatmul(const KernelQuery& query, int members) {
  const Layout &x = query.inputs[0], &w = query.inputs[1];
  if (!HasFloatRows(query.output))
    return Fail(ErrorCode::kUnsupported, "cpu: matmul writes rows of F32 without gaps, not {}",
                ToString(query.output));
  const std::optional<TileFormat> format = TileFormatOf(w.type);
  if (!format)
    return Fail(ErrorCode::kUnsupported, "cpu: matmul has no kernel for weights of type {}",
                Info(w.type).name);
  KernelChoice choice;
  choice.weights.resize(query.inputs.size());
  const bool packed = query.constant[1] && w.IsContiguous();
  const bool quantized =
      packed && IsBlockFormat(*format) && query.attributes[ops::kMatmulExact] == 0;
  const int64_t k = LastDim(x);
  int64_t matrices = 1;
  for (int d = 0; d + 2 < w.rank; ++d) matrices *= w.dims[d];
  const int64_t tokens =
      matrices <= 1 ? RowCount(x) : (x.rank >= 2 ? x.dims[x.rank - 2] : int64_t{1});
  const ScratchPlan plan = quantized ? QuantizedScratch(tokens, k) : FloatScratch(tokens, k);
  choice.scratch_bytes = GatheredBytes(x) + plan.Bytes(members);
  if (packed) {
    choice.weights[1] = TileLayout(*format, std::span(w.dims).first(static_cast<size_t>(w.rank)));
    choice.kernel = quantized ? &kQuantizedMatmul : &kPackedMatmul;
  } else {
    choice.kernel = &kPlainMatmul;
  }
  return choice;
}

}  // namespace tandem::cpu
