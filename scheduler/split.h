// split(): cuts the nodes into runs that one device does without a transfer between.
//
// Nodes keep the graph's order, so a split ends only where the next node is on another device:
// what a node reads from elsewhere was made in an earlier split, and can be copied before this one
// begins. No number of inputs forces a cut. Pure, linear.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

std::vector<Split> SplitNodes(std::span<const NodeId> order,
                              std::span<const NodePlacement> placement);

}  // namespace tandem
