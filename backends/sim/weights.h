// The layout in which a simulated device wants constants, if it is told to want one: every byte is
// changed, and 64 bytes that say nothing go before. So a plain weight that is taken for a packed
// one, or the other way round, gives a wrong result and not a lucky one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/device.h"

namespace tandem::sim {

WeightLayout PackedLayout(int64_t plain_bytes);
bool IsPacked(const WeightLayout& layout);
// `plain` has layout.bytes less the 64 that go before.
void PackBytes(const WeightLayout& layout, const std::byte* plain, std::byte* packed);
void UnpackBytes(const WeightLayout& layout, const std::byte* packed, std::byte* plain);

}  // namespace tandem::sim
