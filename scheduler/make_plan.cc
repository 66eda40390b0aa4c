#include "scheduler/make_plan.h"

#include <numeric>

#include "scheduler/copy.h"
#include "scheduler/order.h"
#include "scheduler/place.h"
#include "scheduler/reserve.h"
#include "scheduler/split.h"
#include "scheduler/validate.h"

namespace tandem {
namespace {

Result<void> CheckBox(const GraphSpec& spec, const SizeBox& box) {
  const Graph& graph = *spec.graph;
  if (box.ranges.size() != graph.symbols().size())
    return Fail(ErrorCode::kInvalid, "graph {}, box {}: {} ranges for {} symbols", spec.name,
                box.name, box.ranges.size(), graph.symbols().size());
  for (size_t i = 0; i < box.ranges.size(); ++i) {
    const SizeRange& range = box.ranges[i];
    const Symbol& symbol = graph.symbols()[i];
    if (range.lower < 0 || range.lower > range.upper || range.upper > symbol.upper)
      return Fail(ErrorCode::kInvalid, "graph {}, box {}: {} from {} to {} is not within 0 to {}",
                  spec.name, box.name, symbol.name, range.lower, range.upper, symbol.upper);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Plan>> MakePlan(const Machine& machine, const GraphSpec& spec,
                                             const SizeBox& box, const PlanOptions& options,
                                             StateHomes& homes) {
  TANDEM_CHECK(CheckBox(spec, box));
  auto plan = std::make_shared<Plan>();
  plan->graph = spec.graph;
  plan->graph_name = spec.name;
  plan->box = box;
  TANDEM_ASSIGN(plan->placement, Place(machine, spec, box, homes));
  StateHomes extended = homes;
  TANDEM_CHECK(FindHomes(machine, spec, box, plan->placement, extended));
  plan->order.resize(spec.graph->nodes().size());
  std::iota(plan->order.begin(), plan->order.end(), 0);
  plan->splits = SplitNodes(plan->order, plan->placement);
  TANDEM_CHECK(RouteCopies(machine, extended, options, *plan));
  OrderSteps(machine, *plan);
  TANDEM_CHECK(PlaceInArenas(machine, options, *plan));
  TANDEM_CHECK(ValidatePlan(machine, *plan));
  homes = std::move(extended);
  return plan;
}

}  // namespace tandem
