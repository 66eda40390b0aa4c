// copy(): which bytes are where, and which transfers bring them there.
//
// Each tensor that a node reads is found in a replica that its device can read. The original is
// used in place where it can be reached; else the tensor is copied once for each version and
// memory, and only the region that is read there, packed. Several slices of one tensor are one
// transfer when their union is dense. A copy that no device makes directly goes through the host
// in two halves. A state is updated at home; an update made elsewhere is brought back at once.
// Constants are no copies: the weight store materialises them at load. Where an op allows it and
// memory is reused, an output takes the replica of an input that nobody reads afterwards.
//
// Fills replicas, operands, copies (in the order in which they are handed over), outputs and the
// sizes of scratch. Pure. Linear in nodes and inputs, but for a sort of the copies.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

// `plan` has graph, box, placement, order and splits. Errors: an output that is a version of a
// state which the graph itself overwrites.
Result<void> RouteCopies(const Machine& machine, const StateHomes& homes,
                         const PlanOptions& options, Plan& plan);

}  // namespace tandem
