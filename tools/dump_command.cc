// tandem dump: the plan of a model, without loading a weight.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "scheduler/dump.h"
#include "tools/command.h"
#include "tools/model_options.h"

namespace tandem {
namespace {

struct DumpCommand {
  ModelOptions model;
  std::string box;
  bool splits_only = false;
};

// What a run would refuse; the plan is shown all the same.
std::string Excess(const MemoryUse& use, const Machine& machine,
                   std::span<const DeviceLimit> limits) {
  int64_t limit = INT64_MAX;
  for (const Memory* memory : machine.memories)
    if (memory->name() == use.memory) limit = std::min(limit, memory->properties().capacity);
  for (const DeviceLimit& stated : limits)
    if (stated.device->memory().name() == use.memory) limit = std::min(limit, stated.bytes);
  return use.Total() > limit ? fmt::format("; does not fit: the limit is {}", FormatBytes(limit))
                             : "";
}

void PrintMemory(std::span<const MemoryUse> memories, const Machine& machine,
                 std::span<const DeviceLimit> limits) {
  fmt::print("memory of all boxes together\n");
  for (const MemoryUse& use : memories)
    fmt::print("  {:<12} {} in all: weights {}, states {}, arenas {} (lower bound {}){}{}\n",
               use.memory, FormatBytes(use.Total()), FormatBytes(use.weights),
               FormatBytes(use.states), FormatBytes(use.arenas), FormatBytes(use.arena_lower_bound),
               use.imported_weights > 0
                   ? fmt::format(", read in place {}", FormatBytes(use.imported_weights))
                   : "",
               Excess(use, machine, limits));
}

Result<void> Dump(const DumpCommand& command) {
  TANDEM_ASSIGN(const ModelOptions::Resolved model, command.model.Resolve());
  TANDEM_ASSIGN(auto generator, Generator::Create(*model.file, model.generator));
  TANDEM_ASSIGN(const std::vector<MemoryUse> memory, generator->Measure());
  Scheduler& scheduler = generator->scheduler();
  bool found = false;
  for (int box = 0; box < scheduler.boxes(generator->handle()); ++box) {
    const Plan& plan = scheduler.plan(generator->handle(), box);
    if (!command.box.empty() && plan.box.name != command.box) continue;
    found = true;
    fmt::print("{}", DescribePlan(scheduler.machine(), plan,
                                  {.nodes = !command.splits_only, .copies = true}));
  }
  if (!found)
    return Fail(ErrorCode::kNotFound, "--box {}: the boxes are token and prompt", command.box);
  PrintMemory(memory, scheduler.machine(), model.generator.limits);
  return {};
}

}  // namespace

Command AddDumpCommand(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "dump", "Print the plan: splits, devices with reasons, copies with causes, arenas");
  auto command = std::make_shared<DumpCommand>();
  command->model.AddTo(*sub);
  sub->add_option("--box", command->box, "Only this size box: token or prompt")->type_name("BOX");
  sub->add_flag("--splits", command->splits_only, "Leave out the list of nodes");
  return {sub, [command] { return Dump(*command); }};
}

}  // namespace tandem
