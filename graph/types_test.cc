#include "graph/types.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace tandem {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Decode(Type type, const std::vector<uint8_t>& bytes) {
  const TypeInfo& info = Info(type);
  const auto blocks = static_cast<int64_t>(bytes.size()) / info.block_bytes;
  std::vector<double> out(static_cast<size_t>(blocks * info.block_elements));
  info.decode(reinterpret_cast<const std::byte*>(bytes.data()), blocks, out.data());
  return out;
}
std::vector<uint8_t> Encode(Type type, const std::vector<double>& values) {
  const TypeInfo& info = Info(type);
  const auto blocks = static_cast<int64_t>(values.size()) / info.block_elements;
  std::vector<uint8_t> out(static_cast<size_t>(blocks * info.block_bytes));
  info.encode(values.data(), blocks, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

TEST(Types, TableIsInOrderAndFoundByNameAndNumber) {
  for (int i = 0; i < kTypeCount; ++i) {
    const TypeInfo& info = Info(static_cast<Type>(i));
    EXPECT_EQ(static_cast<int>(info.type), i);
    EXPECT_EQ(TypeFromName(info.name), info.type);
    EXPECT_EQ(TypeFromGguf(info.gguf_id), info.type);
    EXPECT_FALSE(info.is_float && info.is_block);
    EXPECT_EQ(info.is_block, info.block_elements > 1);
  }
  EXPECT_EQ(TypeFromName("Q4_2"), std::nullopt);
  EXPECT_EQ(TypeFromGguf(4), std::nullopt);
  EXPECT_EQ(TypeFromGguf(-1), std::nullopt);
}

// Numbers and sizes of the GGUF specification.
TEST(Types, GgufNumbersAndSizes) {
  struct Row {
    std::string_view name;
    int gguf, elements, bytes;
  };
  for (const Row& row : {Row{"F32", 0, 1, 4}, Row{"F16", 1, 1, 2}, Row{"Q4_0", 2, 32, 18},
                         Row{"Q4_1", 3, 32, 20}, Row{"Q8_0", 8, 32, 34}, Row{"I32", 26, 1, 4},
                         Row{"I64", 27, 1, 8}, Row{"BF16", 30, 1, 2}}) {
    const auto type = TypeFromName(row.name);
    ASSERT_TRUE(type) << row.name;
    EXPECT_EQ(Info(*type).gguf_id, row.gguf) << row.name;
    EXPECT_EQ(Info(*type).block_elements, row.elements) << row.name;
    EXPECT_EQ(Info(*type).block_bytes, row.bytes) << row.name;
    EXPECT_EQ(BytesOf(*type, 96), 96 / row.elements * row.bytes) << row.name;
    EXPECT_EQ(BytesOf(*type, 0), 0) << row.name;
  }
}

// The value that the bits stand for, from the definition of binary16.
double HalfByDefinition(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? kNotANumber : sign * kInfinity;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Half, EveryValueAndBack) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = HalfToFloat(bits);
    const double expected = HalfByDefinition(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << i;
      continue;
    }
    ASSERT_EQ(value, expected) << i;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    ASSERT_EQ(FloatToHalf(value), bits) << i;
  }
}

// Between neighbours: below the middle down, above it up, in the middle to even.
TEST(Half, RoundsToNearestEven) {
  for (int i = 0; i < 0x7C00; ++i) {
    const auto bits = static_cast<uint16_t>(i), next = static_cast<uint16_t>(i + 1);
    const float low = HalfToFloat(bits);
    const float high = next == 0x7C00 ? 65536.0f : HalfToFloat(next);
    const float middle = (low + high) / 2;
    ASSERT_EQ(FloatToHalf(middle), i % 2 == 0 ? bits : next) << i;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), bits) << i;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), next) << i;
    ASSERT_EQ(FloatToHalf(-middle), 0x8000 | (i % 2 == 0 ? bits : next)) << i;
  }
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(BFloat16, EveryValueAndBack) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = BFloat16ToFloat(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(value), static_cast<uint32_t>(i) << 16);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value)))) << i;
    else
      ASSERT_EQ(FloatToBFloat16(value), bits) << i;
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7F80; ++i) {
    const uint32_t middle = i << 16 | 0x8000;
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle)), i % 2 == 0 ? i : i + 1);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle - 1)), i);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle + 1)), i + 1);
  }
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x7F800001u)) & 0x7FC0, 0x7FC0);
}

// A double between two floats must not be rounded twice.
TEST(Types, EncodeRoundsDoublesOnce) {
  const double above = 1 + 0x1p-11 + 0x1p-40;  // A float would make a tie of it, then 1.
  EXPECT_EQ(Decode(Type::kF16, Encode(Type::kF16, {above}))[0], 1 + 0x1p-10);
  EXPECT_EQ(Decode(Type::kBF16, Encode(Type::kBF16, {1 + 0x1p-8 + 0x1p-40}))[0], 1 + 0x1p-7);
  EXPECT_EQ(Decode(Type::kF16, Encode(Type::kF16, {0x1p-25 + 0x1p-60}))[0], 0x1p-24);
  EXPECT_EQ(Decode(Type::kF16, Encode(Type::kF16, {0x1p-25}))[0], 0);
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16}) {
    EXPECT_EQ(Decode(type, Encode(type, {kInfinity}))[0], kInfinity);
    EXPECT_EQ(Decode(type, Encode(type, {-1e300}))[0], -kInfinity);
    EXPECT_TRUE(std::isnan(Decode(type, Encode(type, {kNotANumber}))[0]));
    EXPECT_TRUE(std::signbit(Decode(type, Encode(type, {-0.0}))[0]));
  }
}

TEST(Types, IntegersRoundAndSaturate) {
  EXPECT_EQ(Decode(Type::kI32, Encode(Type::kI32, {-7, 2.5, 3.5, 2147483646.9, 2147483647.9, 1e300,
                                                   -1e300, kNotANumber})),
            (std::vector<double>{-7, 2, 4, 2147483647, 2147483647, 2147483647, -2147483648.0, 0}));
  EXPECT_EQ(Decode(Type::kI64, Encode(Type::kI64, {-0x1p53, 1e300, -1e300})),
            (std::vector<double>{-0x1p53, 0x1p63, -0x1p63}));
}

// Hand-made blocks: the half 0x3800 is 0.5, 0xC000 is -2.
TEST(Blocks, Q40) {
  std::vector<uint8_t> block = {0x00, 0x38};
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<uint8_t>((15 - i) << 4 | i));
  const std::vector<double> values = Decode(Type::kQ4_0, block);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5 * (static_cast<double>(i) - 8));
    EXPECT_EQ(values[i + 16], 0.5 * (7 - static_cast<double>(i)));
  }
}

TEST(Blocks, Q41) {
  std::vector<uint8_t> block = {0x00, 0x38, 0x00, 0xC0};
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<uint8_t>((15 - i) << 4 | i));
  const std::vector<double> values = Decode(Type::kQ4_1, block);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5 * static_cast<double>(i) - 2);
    EXPECT_EQ(values[i + 16], 0.5 * (15 - static_cast<double>(i)) - 2);
  }
}

TEST(Blocks, Q80) {
  std::vector<uint8_t> block = {0x00, 0x38};
  for (int i = 0; i < 32; ++i) block.push_back(static_cast<uint8_t>(i * 8 - 128));
  const std::vector<double> values = Decode(Type::kQ8_0, block);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], 0.5 * (8 * static_cast<double>(i) - 128));
}

TEST(Blocks, SeveralBlocksAreConsecutive) {
  for (const Type type : {Type::kQ4_0, Type::kQ4_1, Type::kQ8_0}) {
    std::vector<double> values(96);
    for (size_t i = 0; i < 96; ++i)
      values[i] = std::sin(static_cast<double>(i)) * (1 + static_cast<double>(i / 32));
    const std::vector<uint8_t> bytes = Encode(type, values);
    const std::vector<double> all = Decode(type, bytes);
    for (size_t b = 0; b < 3; ++b) {
      const std::vector<double> part(values.begin() + static_cast<long>(32 * b),
                                     values.begin() + static_cast<long>(32 * b + 32));
      const std::vector<double> alone = Decode(type, Encode(type, part));
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + static_cast<long>(32 * b)));
    }
  }
}

// Half a step is the most that a value may be away, and the ends of the code are in use.
TEST(Blocks, EncodeIsWithinHalfAStep) {
  for (const double size : {1e-3, 1.0, 400.0}) {
    std::vector<double> values(32);
    for (size_t i = 0; i < 32; ++i) values[i] = size * std::sin(7.0 * static_cast<double>(i) + 1);
    double low = values[0], high = values[0], most = 0;
    for (const double value : values) {
      low = std::min(low, value);
      high = std::max(high, value);
      most = std::max(most, std::abs(value));
    }
    // The scale is itself rounded to a half: one part in 2048, over at most 16 or 127 steps.
    const auto check = [&](Type type, double step, double rounding) {
      const std::vector<double> decoded = Decode(type, Encode(type, values));
      for (size_t i = 0; i < 32; ++i)
        EXPECT_LE(std::abs(decoded[i] - values[i]), step / 2 + rounding)
            << Info(type).name << " " << i;
    };
    check(Type::kQ4_1, (high - low) / 15, (high - low) / 1024 + most / 1024);
    check(Type::kQ8_0, most / 127, most / 1024);
    // The end that has the other sign can lie a step beyond the code.
    check(Type::kQ4_0, most / 4, most / 1024);
  }
}

TEST(Blocks, WhatIsRepresentableIsKept) {
  std::vector<double> q8(32), q40(32), q41(32);
  for (size_t i = 0; i < 32; ++i) {
    const auto n = static_cast<double>(i);
    q8[i] = 0.25 * (i == 0 ? -127 : 4 * n - 64);
    q40[i] = 0.5 * (static_cast<double>(i % 16) - 8);
    q41[i] = 0.5 * static_cast<double>(i % 16) - 3;
  }
  EXPECT_EQ(Decode(Type::kQ8_0, Encode(Type::kQ8_0, q8)), q8);
  EXPECT_EQ(Decode(Type::kQ4_0, Encode(Type::kQ4_0, q40)), q40);
  EXPECT_EQ(Decode(Type::kQ4_1, Encode(Type::kQ4_1, q41)), q41);
  for (const Type type : {Type::kQ4_0, Type::kQ4_1, Type::kQ8_0}) {
    const std::vector<double> zeros(32, 0.0);
    EXPECT_EQ(Decode(type, Encode(type, zeros)), zeros) << Info(type).name;
  }
}

// Nothing to represent them with, but encoding must stay defined.
TEST(Blocks, NumbersOutOfRangeAreEncodedSomehow) {
  for (const Type type : {Type::kQ4_0, Type::kQ4_1, Type::kQ8_0})
    for (const double odd : {kNotANumber, kInfinity, -kInfinity, 1e30}) {
      std::vector<double> values(32, 0.5);
      values[3] = odd;
      EXPECT_EQ(Encode(type, values).size(), static_cast<size_t>(Info(type).block_bytes));
    }
}

}  // namespace
}  // namespace tandem
