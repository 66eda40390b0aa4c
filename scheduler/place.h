// place(): a device, a kernel and a reason for each node.
//
// The rules, strongest first:
//   1. a node pin that is no preference;
//   2. a pattern that matches the node's name, or that of a constant or state that it uses;
//   3. a node pin that is a preference (the device of a layer);
//   4. where its weights and states are: the device whose memory holds most of the bytes that the
//      node reads, states and results of earlier nodes counted; without any, the host.
// A device that declines the op is no candidate: then the cheapest device that can takes the node,
// by estimated time of computing and of moving its inputs, and the reason says who declined, why,
// and what the runner-up would have cost.
//
// Pure. Linear in nodes. Errors: no device has a kernel (all reasons are given); an index or a
// pattern that is wrong.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

// `homes` has the states whose home is fixed already.
Result<std::vector<NodePlacement>> Place(const Machine& machine, const GraphSpec& spec,
                                         const SizeBox& box, const StateHomes& homes);

// Adds the homes of the graph's states that `homes` lacks: where a pattern says; else with the
// node that reads most of the slice (its attention); else with the node that updates it; else the
// host. Errors: a pattern that is wrong.
Result<void> FindHomes(const Machine& machine, const GraphSpec& spec, const SizeBox& box,
                       std::span<const NodePlacement> placement, StateHomes& homes);

}  // namespace tandem
