// validate(): proves that a plan is safe. Runs on every plan, always.
//
// It replays the plan with vector clocks of its own and follows the contents of every byte range:
//   - each input of a node or copy is in memory that the device can read, and its bytes were
//     written as that tensor, at that version, by something ordered before, and by nothing since;
//   - each write to a range is ordered after every earlier read and write of it;
//   - arena offsets are aligned and inside their chunk, which is inside the largest buffer;
//   - constants and inputs are never written; scratch is nobody else's;
//   - the steps that the host waits for come after all others, so that the next run may begin.
// Shares no code with order() and reserve(). Steps and operands times log n.
//
// The error (kInternal) names the graph, the node or copy, the tensor and the bytes.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

Result<void> ValidatePlan(const Machine& machine, const Plan& plan);

}  // namespace tandem
