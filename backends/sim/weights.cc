#include "backends/sim/weights.h"

#include <cstring>

namespace tandem::sim {
namespace {

constexpr int64_t kHeader = 64;
constexpr std::byte kMask{0xA5};
constexpr std::string_view kName = "sim.masked";

}  // namespace

WeightLayout PackedLayout(int64_t plain_bytes) {
  return {std::string(kName), plain_bytes + kHeader};
}

bool IsPacked(const WeightLayout& layout) { return layout.name == kName; }

void PackBytes(const WeightLayout& layout, const std::byte* plain, std::byte* packed) {
  std::memset(packed, 0, kHeader);
  for (int64_t i = 0; i < layout.bytes - kHeader; ++i) packed[kHeader + i] = plain[i] ^ kMask;
}

void UnpackBytes(const WeightLayout& layout, const std::byte* packed, std::byte* plain) {
  for (int64_t i = 0; i < layout.bytes - kHeader; ++i) plain[i] = packed[kHeader + i] ^ kMask;
}

}  // namespace tandem::sim
