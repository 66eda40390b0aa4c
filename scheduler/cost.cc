#include "scheduler/cost.h"

#include <algorithm>

namespace tandem {

double EstimateSeconds(const DeviceProperties& device, const OpCost& cost) {
  return device.launch_seconds +
         std::max(cost.flops / device.flops, cost.bytes / device.memory_bandwidth);
}

double EstimateTransfer(const Machine& machine, MemoryIndex from, DeviceIndex to, double bytes) {
  if (machine.CanRead(to, from)) return 0;
  double slowest = machine.devices[to]->properties().link_bandwidth;
  for (size_t d = 0; d < machine.devices.size(); ++d)
    if (machine.memory_of[d] == from)
      slowest = std::min(slowest, machine.devices[d]->properties().link_bandwidth);
  return machine.devices[to]->properties().launch_seconds + bytes / slowest;
}

}  // namespace tandem
