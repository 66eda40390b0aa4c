// Buffers in a given order, each at the lowest offset that is free for its whole lifetime.
//
// Slower than filling valleys, but it can also fit buffers around others that have their places.
#pragma once

#include <optional>

#include "allocator/budget.h"
#include "allocator/timeline.h"

namespace tandem::planning {

inline constexpr Units kNoPlace = -1;

// Places those of `order` whose offset is kNoPlace around all others. Nothing if the plan would
// be `ceiling` high or more, or if the budget is used up.
std::optional<Offsets> PlanFirstFit(const Problem& problem, const Timeline& timeline,
                                    const Order& order, Offsets offsets, Units ceiling,
                                    Budget* budget);

}  // namespace tandem::planning
