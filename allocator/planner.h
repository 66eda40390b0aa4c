// Offsets from lifetimes: static memory planning, also called dynamic storage allocation.
//
// Integers only: the planner knows no device and no graph. A buffer is live over a half-open
// interval [begin, end) of positions; two buffers whose intervals meet must not share bytes.
// The height (the highest byte in use) is to be small.
//
// A portfolio of strategies runs in order of cost and stops at the lower bound, the largest sum
// of sizes that is live at one position. Everything here is pure and thread safe. The same input
// gives the same offsets, since work is limited by counting it and not by the clock (but where
// the caller asks for seconds): n log n, some ten milliseconds up to 2000 lifetimes, and half a
// microsecond for each beyond. The first strategy alone takes less than 0.1 us for each.
//
//   TANDEM_ASSIGN(OffsetPlan plan, PlanOffsets(lifetimes, {.alignment = 256}));
//   TANDEM_CHECK(ValidateOffsets(lifetimes, {.alignment = 256}, plan));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/result.h"

namespace tandem {

using Position = int64_t;  // An instant of the plan.
using Offset = int64_t;    // Bytes from the start of the arena.

struct Lifetime {
  Position begin = 0;  // First instant at which the bytes are needed.
  Position end = 0;    // First instant at which they are not; begin >= end is never live.
  int64_t bytes = 0;   // Zero is fine: any offset does.
};

struct OffsetLimits {
  int64_t alignment = 1;               // Of each offset; a power of two.
  int64_t largest_buffer = INT64_MAX;  // Nothing straddles a multiple of chunks of this size.
  double search_seconds = 0;           // Beyond the first strategy; 0: a fixed amount of work.
};

// One buffer of the device. An offset o lies in chunk chunk[i] at offset[i] within it.
struct OffsetPlan {
  std::vector<Offset> offsets;       // Parallel to the lifetimes; within the chunk.
  std::vector<int32_t> chunks;       // Parallel; all 0 where one buffer is enough.
  std::vector<int64_t> chunk_bytes;  // Height of each chunk, aligned; empty if no bytes.
  int64_t height = 0;                // Sum of chunk_bytes.
  int64_t lower_bound = 0;           // No plan can be lower (aligned sizes).
  std::string_view strategy;         // That won.
};

// Strategies by name, cheapest first; the first always succeeds.
std::span<const std::string_view> StrategyNames();

// Best of the portfolio. Errors: a bad alignment, a negative size, a lifetime larger than the
// largest buffer in whole units of the alignment (named by its index), a sum of all sizes above
// a quarter of the largest offset.
Result<OffsetPlan> PlanOffsets(std::span<const Lifetime> lifetimes,
                               const OffsetLimits& limits = {});
// One strategy only, for tests, for comparing, and for callers that want only the cheapest. The
// last two, `core` and `search`, improve on the first one's plan; where they find no lower one,
// that plan stands with its own name.
Result<OffsetPlan> PlanOffsetsWith(std::string_view strategy, std::span<const Lifetime> lifetimes,
                                   const OffsetLimits& limits = {});

}  // namespace tandem
