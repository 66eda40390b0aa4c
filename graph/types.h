// Element types, as entries of a table.
//
// A block type stores `block_elements` consecutive elements of the last dimension in
// `block_bytes` bytes (scales and quants together); for a plain type a block is one element.
// To add a type: one enumerator, one row in types.cc. Formats are those of the GGUF
// specification: Q4_0 {f16 d; u8 q[16]}: d*(q-8); Q4_1 {f16 d, m; u8 q[16]}: d*q+m;
// Q8_0 {f16 d; i8 q[32]}: d*q. Byte i of a Q4 block holds element i in its low and element
// i+16 in its high nibble.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

enum class Type : uint8_t { kF32, kF16, kBF16, kI32, kI64, kQ4_0, kQ4_1, kQ8_0 };
inline constexpr int kTypeCount = 8;

struct TypeInfo {
  Type type;
  std::string_view name;   // As in GGUF and in messages: "F32", "Q4_1".
  int64_t block_elements;  // 1, or 32 for the quantised types.
  int64_t block_bytes;     // Bytes of one block.
  int32_t gguf_id;         // ggml_type number in a GGUF file.
  bool is_float;           // A real number each: F32, F16, BF16.
  bool is_block;           // Quantised in blocks; only weights have such types.
  // Decodes `blocks` consecutive blocks into blocks * block_elements doubles. Exact.
  void (*decode)(const std::byte* source, int64_t blocks, double* out);
  // Encodes blocks * block_elements doubles, rounding to nearest. Quantised types use the
  // plain rule (largest magnitude, or minimum and range, mapped to the ends of the code).
  void (*encode)(const double* source, int64_t blocks, std::byte* out);
};

// Never fails: every enumerator has a row.
const TypeInfo& Info(Type type);
// By the number that a GGUF file uses, or by name ("Q4_1").
std::optional<Type> TypeFromGguf(int32_t gguf_id);
std::optional<Type> TypeFromName(std::string_view name);

// Bytes of `elements` consecutive elements; elements must be a multiple of the block.
inline int64_t BytesOf(Type type, int64_t elements) {
  const TypeInfo& info = Info(type);
  return elements / info.block_elements * info.block_bytes;
}

// IEEE 754 binary16 and bfloat16 as bits, to and from float; round to nearest even.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

}  // namespace tandem
