#include "scheduler/scheduler.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "scheduler/execute.h"
#include "scheduler/make_plan.h"
#include "scheduler/reservation.h"
#include "scheduler/weights.h"

namespace tandem {
namespace {

struct GraphEntry {
  GraphSpec spec;
  std::vector<std::shared_ptr<const Plan>> plans;  // Parallel to the boxes; empty until planned.
  std::vector<std::unique_ptr<BoundPlan>> bound;   // The same; empty until reserved.
  int last_box = kNone;                            // Of its last run.
  bool is_removed = false;
};

// One box with every symbol from 0 to its bound.
SizeBox WholeBox(const Graph& graph) {
  SizeBox box{"all", {}};
  for (const Symbol& symbol : graph.symbols()) box.ranges.push_back({0, symbol.upper});
  return box;
}

}  // namespace

struct Scheduler::Impl {
  Machine machine;
  PlanOptions plan_options;
  std::vector<std::unique_ptr<Stream>> streams;  // Parallel to the machine's devices.
  std::vector<GraphEntry> graphs;
  StateHomes homes;
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<Reservation> reservation;
  std::vector<uint64_t> points;  // Room for the longest plan.
  GraphHandle last_run = kNone;
  std::atomic<bool> cancel{false};
  mutable std::mutex counters_mutex;
  SchedulerCounters counters;

  Result<GraphEntry*> Find(GraphHandle graph) {
    if (graph < 0 || graph >= static_cast<GraphHandle>(graphs.size()) || graphs[graph].is_removed)
      return Fail(ErrorCode::kNotFound, "no graph with handle {}", graph);
    return &graphs[graph];
  }

  std::vector<std::shared_ptr<const Plan>> Plans() const {
    std::vector<std::shared_ptr<const Plan>> plans;
    for (const GraphEntry& entry : graphs)
      if (!entry.is_removed) plans.insert(plans.end(), entry.plans.begin(), entry.plans.end());
    return plans;
  }

  void Count(int64_t SchedulerCounters::*counter, int64_t by) {
    const std::lock_guard lock(counters_mutex);
    counters.*counter += by;
  }

  Result<void> PlanAll() {
    for (GraphEntry& entry : graphs) {
      if (entry.is_removed || !entry.plans.empty()) continue;
      std::vector<std::shared_ptr<const Plan>> plans;
      StateHomes extended = homes;
      for (const SizeBox& box : entry.spec.boxes) {
        TANDEM_ASSIGN(auto plan, MakePlan(machine, entry.spec, box, plan_options, extended));
        plans.push_back(std::move(plan));
        Count(&SchedulerCounters::plans, 1);
      }
      homes = std::move(extended);
      entry.plans = std::move(plans);
    }
    ForgetUnused();
    return {};
  }

  // Drops what only removed graphs used.
  void ForgetUnused() {
    weights->Retain(Plans());
    std::set<std::pair<const State*, int>> used;
    for (const auto& plan : Plans())
      for (const Tensor& tensor : plan->graph->tensors())
        if (tensor.state != nullptr) used.insert({tensor.state.get(), tensor.slice});
    std::erase_if(homes, [&](const auto& home) { return !used.contains(home.first); });
  }

  std::vector<MemoryUse> Use() const {
    std::vector<MemoryUse> use = reservation->Measure(Plans(), homes);
    for (size_t m = 0; m < use.size(); ++m) {
      use[m].weights = weights->Bytes(static_cast<MemoryIndex>(m));
      use[m].imported_weights = weights->ImportedBytes(static_cast<MemoryIndex>(m));
    }
    return use;
  }

  Result<void> CheckBudgets(std::span<const MemoryUse> use) const {
    for (size_t m = 0; m < use.size(); ++m) {
      const MemoryProperties properties = machine.memories[m]->properties();
      const WeightStore::Largest largest = weights->LargestIn(static_cast<MemoryIndex>(m));
      if (largest.bytes > properties.largest_buffer)
        return Fail(ErrorCode::kOutOfMemory,
                    "memory {}: weight {} needs {} bytes, but its largest buffer is {} bytes",
                    use[m].memory, largest.constant->name, largest.bytes,
                    properties.largest_buffer);
      int64_t limit = properties.capacity;
      std::string_view what = "has";
      for (const MemoryBudget& budget : plan_options.budgets)
        if (machine.memory_of[budget.device] == static_cast<MemoryIndex>(m) &&
            budget.bytes < limit) {
          limit = budget.bytes;
          what = "is limited to";
        }
      if (use[m].Total() > limit)
        return Fail(ErrorCode::kOutOfMemory,
                    "memory {} {} {} bytes, but {} are needed: weights {}, states {}, arenas {}",
                    use[m].memory, what, limit, use[m].Total(), use[m].weights, use[m].states,
                    use[m].arenas);
    }
    return {};
  }

  // Bound plans for all plans, over what is reserved now.
  std::vector<std::vector<std::unique_ptr<BoundPlan>>> BindAll() const {
    std::vector<std::vector<std::unique_ptr<BoundPlan>>> bound(graphs.size());
    for (size_t g = 0; g < graphs.size(); ++g) {
      if (graphs[g].is_removed) continue;
      for (const auto& plan : graphs[g].plans) {
        std::vector<Storage> storage = reservation->Storages(*plan);
        for (size_t r = 0; r < storage.size(); ++r) {
          const Replica& replica = plan->replicas[r];
          if (replica.kind != ReplicaKind::kConstant) continue;
          const Constant& constant = *plan->graph->tensor(replica.region.tensor).constant;
          storage[r] = {weights->Find(constant, replica.memory, replica.weight), 0};
        }
        bound[g].push_back(std::make_unique<BoundPlan>(machine, plan, std::move(storage),
                                                       reservation->Scratches(*plan)));
      }
    }
    return bound;
  }

  static Result<void> PointInputs(BoundPlan& bound, std::span<const InputBinding> inputs) {
    const Plan& plan = bound.plan();
    const Graph& graph = *plan.graph;
    for (const InputBinding& input : inputs)
      if (std::find(graph.inputs().begin(), graph.inputs().end(), input.tensor) ==
          graph.inputs().end())
        return Fail(ErrorCode::kInvalid, "graph {}: tensor {} is no input", plan.graph_name,
                    input.tensor);
    for (const Replica& replica : plan.replicas) {
      if (replica.kind != ReplicaKind::kInput) continue;
      const TensorId id = replica.region.tensor;
      const Tensor& tensor = graph.tensor(id);
      const auto given = std::find_if(inputs.begin(), inputs.end(),
                                      [&](const InputBinding& b) { return b.tensor == id; });
      if (given == inputs.end())
        return Fail(ErrorCode::kInvalid, "graph {}: input {} is not set", plan.graph_name,
                    tensor.name);
      const int64_t bytes = Bind(tensor.type, tensor.shape, bound.symbols()).PackedBytes();
      if (static_cast<int64_t>(given->bytes.size()) != bytes)
        return Fail(ErrorCode::kInvalid, "graph {}: input {} has {} bytes, but {} are needed",
                    plan.graph_name, tensor.name, given->bytes.size(), bytes);
      bound.PointInput(id, given->bytes.data(), bytes);
    }
    return {};
  }

  Result<void> Run(GraphHandle handle, const RunArguments& arguments) {
    TANDEM_ASSIGN(GraphEntry * entry, Find(handle));
    if (entry->bound.empty())
      return Fail(ErrorCode::kInvalid, "graph {} is not reserved: call Reserve()",
                  entry->spec.name);
    if (!weights->IsLoaded())
      return Fail(ErrorCode::kInvalid, "graph {}: weights are not loaded: call Load()",
                  entry->spec.name);
    const auto box = std::find_if(entry->plans.begin(), entry->plans.end(), [&](const auto& plan) {
      return plan->box.Contains(arguments.symbols);
    });
    if (box == entry->plans.end())
      return Fail(ErrorCode::kInvalid, "graph {}: sizes [{}] are in none of its {} boxes",
                  entry->spec.name, fmt::join(arguments.symbols, ", "), entry->plans.size());
    BoundPlan& bound = *entry->bound[box - entry->plans.begin()];
    TANDEM_CHECK(reservation->CheckDefined(bound.plan()));
    if (bound.BindSizes(arguments.symbols)) Count(&SchedulerCounters::binds, 1);
    TANDEM_CHECK(PointInputs(bound, arguments.inputs));
    cancel = false;
    const auto stop = [&] { return cancel.load() || (arguments.stop && arguments.stop()); };
    ExecuteCounters executed;
    const Result<void> result = Execute(bound, streams, points, stop, executed);
    {
      const std::lock_guard lock(counters_mutex);
      ++counters.runs;
      counters.host_waits += executed.host_waits;
      counters.bridges += executed.bridges;
      counters.splits += executed.splits;
      counters.copies += executed.copies;
      counters.copied_bytes += executed.copied_bytes;
    }
    last_run = result ? handle : kNone;
    entry->last_box = static_cast<int>(box - entry->plans.begin());
    if (!result) reservation->MarkUndefined(bound.plan(), result.error().message);
    return result;
  }
};

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::~Scheduler() = default;

Result<std::unique_ptr<Scheduler>> Scheduler::Create(SchedulerOptions options) {
  auto impl = std::make_unique<Impl>();
  TANDEM_ASSIGN(impl->machine, MakeMachine(options.devices));
  for (const MemoryBudget& budget : options.plan.budgets)
    if (budget.device < 0 || budget.device >= static_cast<DeviceIndex>(options.devices.size()))
      return Fail(ErrorCode::kInvalid, "a memory budget names device {}, but there are {}",
                  budget.device, options.devices.size());
  impl->plan_options = std::move(options.plan);
  for (Device* device : impl->machine.devices) {
    TANDEM_ASSIGN(auto stream, device->CreateStream());
    impl->streams.push_back(std::move(stream));
  }
  impl->weights = std::make_unique<WeightStore>(impl->machine);
  impl->reservation = std::make_unique<Reservation>(impl->machine);
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(impl)));
}

Result<GraphHandle> Scheduler::Add(GraphSpec spec) {
  if (spec.graph == nullptr)
    return Fail(ErrorCode::kInvalid, "graph {}: there is no graph", spec.name);
  if (spec.boxes.empty()) spec.boxes.push_back(WholeBox(*spec.graph));
  GraphEntry entry;
  entry.spec = std::move(spec);
  impl_->graphs.push_back(std::move(entry));
  return static_cast<GraphHandle>(impl_->graphs.size() - 1);
}

Result<void> Scheduler::Remove(GraphHandle graph) {
  TANDEM_ASSIGN(GraphEntry * entry, impl_->Find(graph));
  *entry = {};
  entry->is_removed = true;
  if (impl_->last_run == graph) impl_->last_run = kNone;
  return {};
}

Result<std::vector<MemoryUse>> Scheduler::Measure() {
  TANDEM_CHECK(impl_->PlanAll());
  return impl_->Use();
}

Result<void> Scheduler::Reserve() {
  TANDEM_ASSIGN(const std::vector<MemoryUse> use, Measure());
  TANDEM_CHECK(impl_->CheckBudgets(use));
  TANDEM_ASSIGN(const std::vector<WeightStore::Key> weights, impl_->weights->Allocate());
  if (auto grown = impl_->reservation->Grow(impl_->Plans(), impl_->homes, impl_->streams); !grown) {
    impl_->weights->Release(weights);
    return grown;
  }
  auto bound = impl_->BindAll();
  for (size_t g = 0; g < bound.size(); ++g) impl_->graphs[g].bound = std::move(bound[g]);
  size_t longest = 0;
  for (const auto& plan : impl_->Plans()) longest = std::max(longest, plan->steps.size());
  impl_->points.resize(longest);
  impl_->last_run = kNone;
  const std::lock_guard lock(impl_->counters_mutex);
  impl_->counters.allocations = impl_->reservation->allocations() + impl_->weights->allocations();
  return {};
}

Result<void> Scheduler::Load(const std::function<void(int64_t, int64_t)>& progress) {
  return impl_->weights->Load(impl_->streams, progress);
}

Result<void> Scheduler::Run(GraphHandle graph, const RunArguments& arguments) {
  return impl_->Run(graph, arguments);
}

Result<HostTensor> Scheduler::Output(GraphHandle graph, TensorId tensor) const {
  TANDEM_ASSIGN(const GraphEntry* entry, impl_->Find(graph));
  if (impl_->last_run != graph)
    return Fail(ErrorCode::kInvalid,
                "graph {}: its outputs are not there: it was not the last to run",
                entry->spec.name);
  const BoundPlan& bound = *entry->bound[entry->last_box];
  const std::vector<Operand>& outputs = bound.plan().outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].tensor == tensor) return bound.Output(i);
  return Fail(ErrorCode::kInvalid, "graph {}: tensor {} was not declared an output",
              entry->spec.name, tensor);
}

Result<void> Scheduler::ResetState(const State& state) {
  return impl_->reservation->ResetState(state, impl_->streams);
}

Result<void> Scheduler::WriteState(const State& state, int slice,
                                   std::span<const std::byte> bytes) {
  return impl_->reservation->WriteState(state, slice, bytes, impl_->streams);
}

Result<void> Scheduler::ReadState(const State& state, int slice, std::span<std::byte> bytes) {
  return impl_->reservation->ReadState(state, slice, bytes, impl_->streams);
}

void Scheduler::Cancel() { impl_->cancel = true; }

const Plan& Scheduler::plan(GraphHandle graph, int box) const {
  return *impl_->graphs[graph].plans[box];
}

int Scheduler::boxes(GraphHandle graph) const {
  return static_cast<int>(impl_->graphs[graph].spec.boxes.size());
}

const Machine& Scheduler::machine() const { return impl_->machine; }

SchedulerCounters Scheduler::counters() const {
  const std::lock_guard lock(impl_->counters_mutex);
  return impl_->counters;
}

std::vector<MemoryUse> Scheduler::memory() const { return impl_->Use(); }

}  // namespace tandem
