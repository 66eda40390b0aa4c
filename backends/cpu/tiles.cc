#include "backends/cpu/tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace tandem::cpu {
namespace {

constexpr std::array<std::string_view, kTileFormats> kNames = {
    "cpu.f32.tile16",  "cpu.f16.tile16",  "cpu.bf16.tile16",
    "cpu.q4_0.tile16", "cpu.q4_1.tile16", "cpu.q8_0.tile16"};

struct MatrixDims {
  int64_t matrices = 1, rows = 1, k = 1;
};
MatrixDims Matrices(std::span<const int64_t> dims) {
  MatrixDims m;
  if (!dims.empty()) m.k = dims[dims.size() - 1];
  if (dims.size() >= 2) m.rows = dims[dims.size() - 2];
  for (size_t i = 0; i + 2 < dims.size(); ++i) m.matrices *= dims[i];
  return m;
}

// Nibbles of one row's block: element i < 16 is the low one of byte i, i >= 16 the high one.
void PackNibbles(const std::byte* quants, int64_t row, std::byte* out) {
  const auto q = [&](int i) {
    const int byte = static_cast<int>(quants[i % 16]);
    return i < 16 ? byte & 15 : byte >> 4;
  };
  for (int v = 0; v < 4; ++v)
    for (int c = 0; c < 4; ++c)
      out[v * 64 + row * 4 + c] = static_cast<std::byte>(q(8 * v + c) | q(8 * v + 4 + c) << 4);
}

// One block of one row of a tile, at block `b`.
void PackBlock(TileFormat format, const std::byte* source, int64_t row, int64_t b,
               std::byte* tile) {
  switch (format) {
    case TileFormat::kQ4_0: {
      std::byte* pair = tile + b / 2 * kQ40PairBytes;
      PackNibbles(source + 2, row, pair + b % 2 * 256);
      std::memcpy(pair + 512 + b % 2 * 32 + 2 * row, source, 2);
      break;
    }
    case TileFormat::kQ4_1: {
      std::byte* out = tile + b * kQ41Bytes;
      PackNibbles(source + 4, row, out);
      std::memcpy(out + 256 + 2 * row, source, 2);
      std::memcpy(out + 288 + 2 * row, source + 2, 2);
      break;
    }
    default: {
      std::byte* pair = tile + b / 2 * kQ80PairBytes;
      for (int i = 0; i < 32; ++i)
        pair[(b % 2 * 8 + i / 4) * 64 + row * 4 + i % 4] = source[2 + i] ^ std::byte{0x80};
      std::memcpy(pair + 1024 + b % 2 * 32 + 2 * row, source, 2);
    }
  }
}

void PackPlain(const std::byte* source, int64_t element_bytes, int64_t k, int64_t row,
               std::byte* tile) {
  for (int64_t i = 0; i < k; ++i)
    std::memcpy(tile + (i * kTileRows + row) * element_bytes, source + i * element_bytes,
                static_cast<size_t>(element_bytes));
}

}  // namespace

std::optional<TileFormat> TileFormatOf(Type type) {
  switch (type) {
    case Type::kF32:
      return TileFormat::kF32;
    case Type::kF16:
      return TileFormat::kF16;
    case Type::kBF16:
      return TileFormat::kBF16;
    case Type::kQ4_0:
      return TileFormat::kQ4_0;
    case Type::kQ4_1:
      return TileFormat::kQ4_1;
    case Type::kQ8_0:
      return TileFormat::kQ8_0;
    default:
      return std::nullopt;
  }
}

WeightLayout TileLayout(TileFormat format, std::span<const int64_t> dims) {
  const MatrixDims m = Matrices(dims);
  const int64_t tiles = m.matrices * ((m.rows + kTileRows - 1) / kTileRows);
  return {std::string(kNames[static_cast<size_t>(format)]), tiles * TileBytes(format, m.k)};
}

std::optional<TileFormat> TileFormatOf(const WeightLayout& layout) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (layout.name == kNames[i]) return static_cast<TileFormat>(i);
  return std::nullopt;
}

void PackTiles(TileFormat format, std::span<const int64_t> dims, const std::byte* source,
               std::byte* target) {
  const MatrixDims m = Matrices(dims);
  const int64_t tile_bytes = TileBytes(format, m.k);
  const bool block = IsBlockFormat(format);
  const int64_t element_bytes = format == TileFormat::kF32 ? 4 : 2;
  const int64_t block_bytes = format == TileFormat::kQ4_0   ? 18
                              : format == TileFormat::kQ4_1 ? 20
                                                            : 34;
  const int64_t row_bytes = block ? m.k / kBlock * block_bytes : m.k * element_bytes;
  for (int64_t matrix = 0; matrix < m.matrices; ++matrix) {
    for (int64_t row = 0; row < m.rows; row += kTileRows, target += tile_bytes) {
      const int64_t rows = std::min(kTileRows, m.rows - row);
      // Only padding needs it: what is written below covers all else.
      if (rows < kTileRows || (block && m.k / kBlock % 2 != 0))
        std::memset(target, 0, static_cast<size_t>(tile_bytes));
      for (int64_t r = 0; r < rows; ++r, source += row_bytes) {
        if (!block) {
          PackPlain(source, element_bytes, m.k, r, target);
          continue;
        }
        for (int64_t b = 0; b < m.k / kBlock; ++b)
          PackBlock(format, source + b * block_bytes, r, b, target);
      }
    }
  }
}

}  // namespace tandem::cpu
