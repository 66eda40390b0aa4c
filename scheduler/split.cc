#include "scheduler/split.h"

namespace tandem {

std::vector<Split> SplitNodes(std::span<const NodeId> order,
                              std::span<const NodePlacement> placement) {
  std::vector<Split> splits;
  for (size_t i = 0; i < order.size(); ++i) {
    const DeviceIndex device = placement[order[i]].device;
    if (splits.empty() || splits.back().device != device)
      splits.push_back({device, static_cast<int32_t>(i), 0});
    ++splits.back().count;
  }
  return splits;
}

}  // namespace tandem
