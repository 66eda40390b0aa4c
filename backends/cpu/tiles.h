// How weights are packed at load, and how activations are laid out for prompts.
//
// A tile is 16 rows of the matrix and all of K. Lane r of a 512-bit register is row r, and its 4
// bytes are 4 consecutive k: what one VPDPBUSD (or a pair of 256-bit VPMADDUBSW) multiplies by one
// broadcast dword of activations. No horizontal sum is needed, and each tile is one forward
// stream with its scales inline. Rows are padded to 16 with zeros.
//
//   F32, F16, BF16   [K][16]
//   Q4_1, 32 k       4 x 64 B nibbles | 16 half d | 16 half m                        320 B
//                    nibble register v: byte 4r+c holds q[r][8v+c] low, q[r][8v+4+c] high
//   Q4_0, 64 k       2 x 4 x 64 B nibbles | 2 x 16 half d                            576 B
//   Q8_0, 64 k       2 x 8 x 64 B (q+128, unsigned) | 2 x 16 half d                 1088 B
//
// The offset of Q4_0 (8) and of packed Q8_0 (128) costs nothing: the kernel starts its sum at
// -offset * sum(x). An odd number of blocks is padded to a pair with zero scales; the bytes are
// otherwise as many as in the file.
//
// A token tile is kTokens activations of one prompt; for each 32 k: [8][kTokens] dwords of 4
// int8, then scale[2][kTokens], scaled_sum[kTokens], sum[2][kTokens]: scales and sums are of the
// halves of 16, because a large activation then spoils the precision of half as many others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backends/device.h"
#include "graph/types.h"

namespace tandem::cpu {

inline constexpr int64_t kTileRows = 16, kBlock = 32;
inline constexpr int kTokens = 6;
inline constexpr int64_t kTokenBlockBytes = (8 + 5) * kTokens * 4;
inline constexpr int64_t kColumns = 64;  // Of a panel of floats: 4 tiles.

enum class TileFormat : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0 };
inline constexpr int kTileFormats = 6;

// Always inlined where they are used by the simd_*.cc files: see vector.h.
[[gnu::always_inline]] inline bool IsBlockFormat(TileFormat format) {
  return format >= TileFormat::kQ4_0;
}
inline constexpr int64_t kQ41Bytes = 320, kQ40PairBytes = 576, kQ80PairBytes = 1088;

// Bytes of a tile with k elements in each row.
[[gnu::always_inline]] inline int64_t TileBytes(TileFormat format, int64_t k) {
  switch (format) {
    case TileFormat::kF32:
      return k * 64;
    case TileFormat::kF16:
    case TileFormat::kBF16:
      return k * 32;
    case TileFormat::kQ4_0:
      return (k + 63) / 64 * kQ40PairBytes;
    case TileFormat::kQ4_1:
      return k / 32 * kQ41Bytes;
    case TileFormat::kQ8_0:
      return (k + 63) / 64 * kQ80PairBytes;
  }
  return 0;
}
// Of the scratch for two tiles with their quants a byte each, any instruction set.
[[gnu::always_inline]] inline int64_t PanelBytes(int64_t blocks) {
  return blocks * (8 * 2 * 64 + 256);
}
[[gnu::always_inline]] inline int64_t TokenTileBytes(int64_t blocks) {
  return blocks * kTokenBlockBytes;
}

// None for types that are no weights (integers).
std::optional<TileFormat> TileFormatOf(Type type);

// The layout of a packed [..., N, K] constant.
WeightLayout TileLayout(TileFormat format, std::span<const int64_t> dims);
// Whether a layout has a name that TileLayout gives.
std::optional<TileFormat> TileFormatOf(const WeightLayout& layout);
// `source` holds the plain tensor, `target` the layout's bytes.
void PackTiles(TileFormat format, std::span<const int64_t> dims, const std::byte* source,
               std::byte* target);

}  // namespace tandem::cpu
