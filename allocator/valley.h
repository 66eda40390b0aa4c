// Bottom up: the bottom of a valley of the skyline gets, of the buffers whose whole lifetime fits
// into it, the first by a given order. Where none fits, the valley is given up to its lower bank.
//
// Fills holes before they arise, so it is the better family where peaks are tight. n log n.
#pragma once

#include <optional>

#include "allocator/budget.h"
#include "allocator/span_index.h"

namespace tandem::planning {

// `index` is over all buffers. Nothing if the plan would be `ceiling` high or more, or if the
// budget is used up.
std::optional<Offsets> PlanValleys(const Problem& problem, const Timeline& timeline,
                                   const Order& order, SpanIndex* index, Units ceiling,
                                   Budget* budget);

}  // namespace tandem::planning
