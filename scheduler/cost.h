// Rough times, from what devices say of themselves. Data for placing, not promises.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

// Seconds that a node of this cost takes on a device, its launch included.
double EstimateSeconds(const DeviceProperties& device, const OpCost& cost);

// Seconds to move bytes between two memories (0 where it is the same or can be read in place).
double EstimateTransfer(const Machine& machine, MemoryIndex from, DeviceIndex to, double bytes);

}  // namespace tandem
