// The orders in which strategies take buffers.
#pragma once

#include "allocator/timeline.h"

namespace tandem::planning {

enum class Key {
  kBirth,     // Program order.
  kSize,      // Largest first.
  kDuration,  // Most sections first.
  kArea,      // Largest size times duration first.
  kBreadth,   // Largest live sum during the lifetime first: the peak before what is around it.
};

Order OrderBy(Key key, const Problem& problem, const Timeline& timeline);

}  // namespace tandem::planning
