// Shapes whose sizes may be symbols, and the same once the symbols have values.
//
// A dimension is a constant or a constant times one symbol ("tokens", "3*kv"). Dimensions are
// written outermost first; the last one is contiguous in memory. GGUF files and ggml list them
// the other way round.
//
// A Shape belongs to a graph and knows no strides. A Layout is what a Shape becomes at a run:
// plain numbers, with strides in bytes. For a block type the last stride is that of one block.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/types.h"

namespace tandem {

inline constexpr int kMaxRank = 4;
using SymbolIndex = int32_t;  // Into the graph's list of symbols.
inline constexpr SymbolIndex kNoSymbol = -1;

struct Dim {
  int64_t factor = 1;  // The size, or what multiplies the symbol.
  SymbolIndex symbol = kNoSymbol;

  Dim() = default;
  Dim(int64_t size) : factor(size) {}  // NOLINT: a number is a dimension.
  static Dim Of(SymbolIndex symbol, int64_t factor = 1) {
    Dim d(factor);
    d.symbol = symbol;
    return d;
  }
  bool IsConstant() const { return symbol == kNoSymbol; }
  int64_t At(std::span<const int64_t> symbols) const {
    return symbol == kNoSymbol ? factor : factor * symbols[symbol];
  }
  bool operator==(const Dim&) const = default;
};

struct Shape {
  int rank = 0;                    // 0 is a scalar: one element.
  std::array<Dim, kMaxRank> dims;  // [0, rank).

  Shape() = default;
  Shape(std::initializer_list<Dim> list);
  Dim operator[](int i) const { return dims[i]; }
  Dim& operator[](int i) { return dims[i]; }
  Dim Last() const { return rank == 0 ? Dim(1) : dims[rank - 1]; }
  bool IsConstant() const;
  bool operator==(const Shape& other) const;
};

// "[tokens, 9, 64]"; symbols are named from `names`.
std::string ToString(const Shape& shape, std::span<const std::string> names);

struct Layout {
  Type type = Type::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};     // In elements.
  std::array<int64_t, kMaxRank> strides{};  // In bytes; the last is that of one block.

  int64_t Elements() const;
  // Bytes of the elements themselves, without gaps.
  int64_t PackedBytes() const { return BytesOf(type, Elements()); }
  // Bytes from the first to past the last element; 0 if there is none.
  int64_t SpanBytes() const;
  bool IsContiguous() const;  // Row-major with no gaps; zero-size is contiguous.
  bool operator==(const Layout& other) const;
};

// Row-major and packed.
Layout Contiguous(Type type, std::span<const int64_t> dims);
Layout Bind(Type type, const Shape& shape, std::span<const int64_t> symbols);
std::string ToString(const Layout& layout);

}  // namespace tandem
