#include "scheduler/reserve.h"

#include <algorithm>

#include "allocator/planner.h"

namespace tandem {
namespace {

// A moment on a stream's timeline: the n-th action there, from 1. Clocks hold one for each stream.
using Clock = std::vector<int32_t>;

// An allocation in an arena: a replica, or the scratch of a node.
struct Item {
  ReplicaId replica = kNone;
  NodeId scratch_of = kNone;
  int64_t bytes = 0;
  int32_t begin = kNone;  // Number of its making, in its memory.
  Clock uses;             // The last on each stream.
  bool to_the_end = false;
};

class Reserver {
 public:
  Reserver(const Machine& machine, const PlanOptions& options, Plan& plan)
      : machine_(machine), options_(options), plan_(plan), streams_(machine.devices.size()) {}

  Result<void> Run() {
    items_.resize(machine_.memories.size());
    makings_.resize(machine_.memories.size());
    item_of_.assign(plan_.replicas.size(), kNone);
    Walk();
    for (const Operand& output : plan_.outputs)
      if (item_of_[output.replica] != kNone) ItemOf(output.replica).to_the_end = true;
    for (size_t m = 0; m < machine_.memories.size(); ++m) TANDEM_CHECK(Pack(m));
    return {};
  }

 private:
  Item& ItemOf(ReplicaId replica) {
    return items_[plan_.replicas[replica].memory][item_of_[replica]];
  }

  // Goes through all actions in the order of hand-over, with clocks, and notes makings and uses.
  void Walk() {
    std::vector<Clock> done(plan_.steps.size());  // Clock at the end of each step.
    std::vector<Clock> now(streams_, Clock(streams_, 0));
    for (StepId id = 0; id < static_cast<StepId>(plan_.steps.size()); ++id) {
      const Step& step = plan_.steps[id];
      Clock& clock = now[step.stream];
      for (const StepId wait : step.waits)
        for (size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], done[wait][s]);
      if (step.copy != kNone) {
        const Copy& copy = plan_.copies[step.copy];
        ++clock[step.stream];
        Use(copy.source, step.stream, clock);
        Make(copy.target, step.stream, clock);
      } else {
        const Split& split = plan_.splits[step.split];
        for (int32_t i = 0; i < split.count; ++i)
          Visit(plan_.order[split.first + i], step.stream, clock);
      }
      done[id] = clock;
    }
  }

  void Visit(NodeId node, StreamIndex stream, Clock& clock) {
    ++clock[stream];
    for (const Operand& input : plan_.Inputs(node))
      if (input.replica != kNone) Use(input.replica, stream, clock);
    Make(plan_.Output(node).replica, stream, clock);
    if (plan_.scratch[node].bytes == 0) return;
    NewItem(machine_.memory_of[plan_.placement[node].device], plan_.scratch[node].bytes, stream,
            clock)
        .scratch_of = node;
  }

  Item& NewItem(MemoryIndex memory, int64_t bytes, StreamIndex stream, const Clock& clock) {
    Item item;
    item.bytes = bytes;
    item.begin = static_cast<int32_t>(makings_[memory].size());
    item.uses.assign(streams_, 0);
    item.uses[stream] = clock[stream];
    // The clock counts the action itself, but what it may overwrite must be done before it.
    makings_[memory].push_back(clock);
    --makings_[memory].back()[stream];
    items_[memory].push_back(std::move(item));
    return items_[memory].back();
  }

  void Make(ReplicaId replica, StreamIndex stream, const Clock& clock) {
    const Replica& r = plan_.replicas[replica];
    if (r.kind != ReplicaKind::kArena) return;
    if (item_of_[replica] == kNone) {
      item_of_[replica] = static_cast<int32_t>(items_[r.memory].size());
      NewItem(r.memory, r.bytes, stream, clock).replica = replica;
    }
    ItemOf(replica).uses[stream] = clock[stream];
  }

  void Use(ReplicaId replica, StreamIndex stream, const Clock& clock) {
    if (item_of_[replica] != kNone) ItemOf(replica).uses[stream] = clock[stream];
  }

  // First making from which on all come after the clock `uses`; makings' clocks are minima over
  // their successors, so they only grow.
  static int32_t FirstAfter(std::span<const Clock> makings, int32_t from, const Clock& uses) {
    const auto after = [&](const Clock& making) {
      for (size_t s = 0; s < uses.size(); ++s)
        if (making[s] < uses[s]) return false;
      return true;
    };
    auto low = static_cast<size_t>(from), high = makings.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (after(makings[middle]))
        high = middle;
      else
        low = middle + 1;
    }
    return static_cast<int32_t>(low);
  }

  Result<void> Pack(size_t memory) {
    std::vector<Clock>& makings = makings_[memory];
    for (size_t i = makings.size(); i-- > 1;)
      for (size_t s = 0; s < streams_; ++s)
        makings[i - 1][s] = std::min(makings[i - 1][s], makings[i][s]);
    std::vector<Lifetime> lifetimes;
    lifetimes.reserve(items_[memory].size());
    const auto end = static_cast<Position>(makings.size() + 1);
    for (const Item& item : items_[memory]) {
      const bool whole = item.to_the_end || !options_.reuse_memory;
      lifetimes.push_back({options_.reuse_memory ? item.begin : 0,
                           whole ? end : FirstAfter(makings, item.begin + 1, item.uses),
                           item.bytes});
    }
    const MemoryProperties properties = machine_.memories[memory]->properties();
    OffsetLimits limits;
    limits.alignment = properties.alignment;
    limits.largest_buffer = properties.largest_buffer;
    TANDEM_CHECK(CheckLargest(memory, properties.largest_buffer));
    TANDEM_ASSIGN(OffsetPlan offsets, PlanOffsets(lifetimes, limits));
    for (size_t i = 0; i < items_[memory].size(); ++i) {
      const Item& item = items_[memory][i];
      if (item.replica != kNone) {
        plan_.replicas[item.replica].chunk = offsets.chunks[i];
        plan_.replicas[item.replica].offset = offsets.offsets[i];
      } else {
        plan_.scratch[item.scratch_of].chunk = offsets.chunks[i];
        plan_.scratch[item.scratch_of].offset = offsets.offsets[i];
      }
    }
    ArenaUse arena;
    arena.memory = static_cast<MemoryIndex>(memory);
    arena.chunk_bytes = std::move(offsets.chunk_bytes);
    arena.bytes = offsets.height;
    arena.lower_bound = offsets.lower_bound;
    arena.strategy = offsets.strategy;
    plan_.arenas.push_back(std::move(arena));
    return {};
  }

  Result<void> CheckLargest(size_t memory, int64_t largest) const {
    for (const Item& item : items_[memory]) {
      if (item.bytes <= largest) continue;
      const Graph& graph = *plan_.graph;
      return Fail(
          ErrorCode::kOutOfMemory,
          "graph {}, box {}: {} {} needs {} bytes in memory {}, whose largest buffer is {} bytes",
          plan_.graph_name, plan_.box.name,
          item.replica != kNone ? "tensor" : "the scratch of node",
          item.replica != kNone ? graph.tensor(plan_.replicas[item.replica].region.tensor).name
                                : graph.node(item.scratch_of).name,
          item.bytes, machine_.memories[memory]->name(), largest);
    }
    return {};
  }

  const Machine& machine_;
  const PlanOptions& options_;
  Plan& plan_;
  const size_t streams_;
  std::vector<std::vector<Item>> items_;     // By memory.
  std::vector<std::vector<Clock>> makings_;  // By memory: what is done when each is made.
  std::vector<int32_t> item_of_;             // Parallel to replicas.
};

}  // namespace

Result<void> PlaceInArenas(const Machine& machine, const PlanOptions& options, Plan& plan) {
  return Reserver(machine, options, plan).Run();
}

}  // namespace tandem
