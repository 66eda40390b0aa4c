// Sorting by time in linear time.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::planning {

// The indices of `times` in ascending order; equal times keep their order. A radix sort: a plan's
// positions are small numbers, so two or three passes do what comparing does in sixteen.
std::vector<int32_t> TimeOrder(const std::vector<int64_t>& times);

}  // namespace tandem::planning
