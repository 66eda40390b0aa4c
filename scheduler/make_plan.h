// A plan for one graph and one size box: place, split, copy, order, reserve, validate.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

// `homes` gains the homes of states that no earlier plan fixed; unchanged on failure. Pure: no
// memory of a device is touched. Errors: those of the steps, or a box that does not fit the graph.
Result<std::shared_ptr<const Plan>> MakePlan(const Machine& machine, const GraphSpec& spec,
                                             const SizeBox& box, const PlanOptions& options,
                                             StateHomes& homes);

}  // namespace tandem
