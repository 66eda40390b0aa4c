#include "scheduler/validate.h"

#include <algorithm>
#include <map>

namespace tandem {
namespace {

// Ticks of each stream that are known to be over.
using Seen = std::vector<int64_t>;

struct Tick {
  StreamIndex stream = kNone;
  int64_t time = 0;
};

bool Over(const Tick& tick, const Seen& seen) {
  return tick.stream == kNone || seen[tick.stream] >= tick.time;
}

// A range of bytes with one history.
struct Range {
  int64_t end = 0;
  int64_t owner = kNone;   // Replica, or minus two minus the node whose scratch it is.
  TensorId holds = kNone;  // The root that was written there.
  Tick writer;
  std::vector<Tick> readers;  // The last of each stream since the write.
};

// The bytes of one buffer, cut at the borders of what was written.
class ByteMap {
 public:
  // Cuts so that [begin, end) is covered by whole ranges, and calls `each` on them.
  template <class F>
  Result<void> Over(int64_t begin, int64_t end, F&& each) {
    Cut(begin);
    Cut(end);
    auto at = ranges_.find(begin);
    if (at == ranges_.end()) at = Insert(begin, end);
    for (int64_t position = begin; position < end;) {
      if (at == ranges_.end() || at->first != position) {
        const int64_t next = at == ranges_.end() ? end : std::min(end, at->first);
        at = Insert(position, next);
      }
      TANDEM_CHECK(each(at->second));
      position = at->second.end;
      ++at;
    }
    return {};
  }
  // Replaces the history of [begin, end).
  void Set(int64_t begin, Range range) {
    const int64_t end = range.end;
    Cut(begin);
    Cut(end);
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
    ranges_.emplace(begin, std::move(range));
  }

 private:
  std::map<int64_t, Range>::iterator Insert(int64_t begin, int64_t end) {
    Range range;
    range.end = end;
    return ranges_.emplace(begin, std::move(range)).first;
  }
  void Cut(int64_t position) {
    auto after = ranges_.upper_bound(position);
    if (after == ranges_.begin()) return;
    auto& [begin, range] = *std::prev(after);
    if (begin == position || range.end <= position) return;
    Range tail = range;
    range.end = position;
    ranges_.emplace(position, std::move(tail));
  }

  std::map<int64_t, Range> ranges_;  // By begin.
};

class Validator {
 public:
  Validator(const Machine& machine, const Plan& plan)
      : machine_(machine), plan_(plan), graph_(*plan.graph), streams_(machine.devices.size()) {}

  Result<void> Run() {
    TANDEM_CHECK(CheckArenas());
    ended_.resize(plan_.steps.size());
    now_.assign(streams_, Seen(streams_, 0));
    done_copies_.assign(plan_.copies.size(), false);
    done_nodes_.assign(graph_.nodes().size(), false);
    for (StepId id = 0; id < static_cast<StepId>(plan_.steps.size()); ++id)
      TANDEM_CHECK(Replay(id));
    for (size_t i = 0; i < done_nodes_.size(); ++i)
      if (!done_nodes_[i])
        return Bad("node {} never runs", graph_.node(static_cast<NodeId>(i)).name);
    if (std::find(done_copies_.begin(), done_copies_.end(), false) != done_copies_.end())
      return Bad("a copy never runs");
    return CheckEnd();
  }

 private:
  template <class... Args>
  tl::unexpected<Error> Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorCode::kInternal, "plan of graph {}, box {}: {}", plan_.graph_name,
                plan_.box.name, fmt::format(format, std::forward<Args>(args)...));
  }

  Result<void> CheckArenas() const {
    const auto inside = [&](MemoryIndex memory, int32_t chunk, int64_t offset, int64_t bytes) {
      const auto& chunks = plan_.arenas[memory].chunk_bytes;
      if (bytes == 0) return true;
      const MemoryProperties properties = machine_.memories[memory]->properties();
      return chunk >= 0 && chunk < static_cast<int32_t>(chunks.size()) && offset >= 0 &&
             offset % properties.alignment == 0 && bytes <= chunks[chunk] - offset &&
             chunks[chunk] <= properties.largest_buffer;
    };
    if (plan_.arenas.size() != machine_.memories.size())
      return Bad("{} arenas for {} memories", plan_.arenas.size(), machine_.memories.size());
    for (const Replica& replica : plan_.replicas)
      if (replica.kind == ReplicaKind::kArena &&
          !inside(replica.memory, replica.chunk, replica.offset, replica.bytes))
        return Bad("tensor {} lies outside its arena", Name(replica.region.tensor));
    for (size_t node = 0; node < plan_.scratch.size(); ++node) {
      const Scratch& scratch = plan_.scratch[node];
      if (!inside(machine_.memory_of[plan_.placement[node].device], scratch.chunk, scratch.offset,
                  scratch.bytes))
        return Bad("the scratch of node {} lies outside its arena",
                   graph_.node(static_cast<NodeId>(node)).name);
    }
    return {};
  }

  const std::string& Name(TensorId tensor) const { return graph_.tensor(tensor).name; }

  // The map and first byte in which a replica lies. Replicas that are no arena's have a map each.
  std::pair<ByteMap*, int64_t> BytesOf(ReplicaId id) {
    const Replica& replica = plan_.replicas[id];
    if (replica.kind != ReplicaKind::kArena) return {&own_[id], 0};
    return {&arena_[{replica.memory, replica.chunk}], replica.offset};
  }

  Result<void> Replay(StepId id) {
    const Step& step = plan_.steps[id];
    if (step.stream < 0 || step.stream >= static_cast<StreamIndex>(streams_))
      return Bad("step {} is on no stream", id);
    Seen& seen = now_[step.stream];
    for (const StepId wait : step.waits) {
      if (wait < 0 || wait >= id) return Bad("step {} waits for step {}", id, wait);
      if (!plan_.steps[wait].records)
        return Bad("step {} waits for {}, which records nothing", id, wait);
      for (size_t s = 0; s < streams_; ++s) seen[s] = std::max(seen[s], ended_[wait][s]);
    }
    if (step.copy != kNone) {
      TANDEM_CHECK(ReplayCopy(step, seen));
    } else {
      const Split& split = plan_.splits[step.split];
      for (int32_t i = split.first; i < split.first + split.count; ++i)
        TANDEM_CHECK(ReplayNode(plan_.order[i], step.stream, seen));
    }
    ended_[id] = seen;
    return {};
  }

  Result<void> ReplayCopy(const Step& step, Seen& seen) {
    const Copy& copy = plan_.copies[step.copy];
    done_copies_[step.copy] = true;
    const std::string who =
        fmt::format("copy of {} ({})", Name(copy.region.tensor), ToString(copy.cause));
    const TensorId root = graph_.tensor(copy.region.tensor).root;
    if (!machine_.devices[step.stream]->CopiesBetween(
            *machine_.memories[plan_.replicas[copy.source].memory],
            *machine_.memories[plan_.replicas[copy.target].memory]))
      return Bad("{}: device {} does not make it", who, machine_.devices[step.stream]->name());
    TANDEM_CHECK(
        Read(who, copy.source, root, copy.region, {step.stream, seen[step.stream] + 1}, seen));
    TANDEM_CHECK(Write(who, copy.target, root, {step.stream, seen[step.stream] + 1}, seen));
    ++seen[step.stream];
    return {};
  }

  Result<void> ReplayNode(NodeId id, StreamIndex stream, Seen& seen) {
    const Node& node = graph_.node(id);
    const NodePlacement& placement = plan_.placement[id];
    if (placement.device != stream) return Bad("node {} is on the wrong stream", node.name);
    if (done_nodes_[id]) return Bad("node {} runs twice", node.name);
    done_nodes_[id] = true;
    const std::string who = "node " + node.name;
    const Tick tick{stream, seen[stream] + 1};
    const std::span<const Operand> inputs = plan_.Inputs(id);
    if (inputs.size() != node.inputs.size()) return Bad("{}: wrong number of operands", who);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].tensor != node.inputs[i])
        return Bad("{}: operand {} is another tensor", who, i);
      if (inputs[i].tensor == kNone) continue;
      const MemoryIndex memory = plan_.replicas[inputs[i].replica].memory;
      if (!machine_.CanRead(stream, memory))
        return Bad("{}: {} is in memory {}, which device {} can not read", who,
                   Name(inputs[i].tensor), machine_.memories[memory]->name(),
                   machine_.devices[stream]->name());
      TANDEM_CHECK(Read(who, inputs[i].replica, graph_.tensor(inputs[i].tensor).root,
                        Region{inputs[i].tensor}, tick, seen));
    }
    const Operand& output = plan_.Output(id);
    const int state_input = node.op->state_input;
    if (state_input >= 0 && output.replica != inputs[state_input].replica)
      return Bad("{}: the new version of the state is not where the old one is", who);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].tensor != kNone && inputs[i].replica == output.replica &&
          static_cast<int>(i) != state_input && static_cast<int>(i) != node.op->in_place_input)
        return Bad("{}: overwrites {} while it reads it", who, Name(inputs[i].tensor));
    if (!machine_.CanWrite(stream, plan_.replicas[output.replica].memory))
      return Bad("{}: device {} can not write memory {}", who, machine_.devices[stream]->name(),
                 machine_.memories[plan_.replicas[output.replica].memory]->name());
    if (const Scratch& scratch = plan_.scratch[id]; scratch.bytes > 0) {
      ByteMap& map = arena_[{machine_.memory_of[stream], scratch.chunk}];
      TANDEM_CHECK(Claim(who, map, scratch.offset, scratch.bytes, -2 - static_cast<int64_t>(id),
                         kNone, tick, seen));
    }
    TANDEM_CHECK(Write(who, output.replica, node.output, tick, seen));
    ++seen[stream];
    return {};
  }

  // Whether a copied replica has all of a wanted region.
  bool Covers(const Replica& replica, const Region& wanted) const {
    if (!replica.is_copy ||
        graph_.tensor(replica.region.tensor).root != graph_.tensor(wanted.tensor).root)
      return true;
    if (replica.region == wanted) return true;
    // Up from the wanted tensor to the one that was copied.
    for (TensorId id = wanted.tensor;; id = graph_.tensor(id).source) {
      if (id == replica.region.tensor) return replica.region.dim == kNone;
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.kind != TensorKind::kView) return false;
      if (tensor.source != replica.region.tensor || replica.region.dim == kNone) continue;
      const Dim size = tensor.shape[tensor.view.dim];
      return tensor.view.kind == ViewSpec::Kind::kSlice && tensor.view.dim == replica.region.dim &&
             tensor.view.start.IsConstant() && size.IsConstant() &&
             tensor.view.start.factor >= replica.region.start &&
             tensor.view.start.factor + size.factor <= replica.region.start + replica.region.size;
    }
  }

  Result<void> Read(const std::string& who, ReplicaId id, TensorId root, const Region& region,
                    const Tick& tick, const Seen& seen) {
    const Replica& replica = plan_.replicas[id];
    const Tensor& tensor = graph_.tensor(root);
    if (!Covers(replica, region))
      return Bad("{}: the copy that it reads lacks a part of {}", who, Name(region.tensor));
    if (replica.kind == ReplicaKind::kConstant || replica.kind == ReplicaKind::kInput) {
      if (replica.region.tensor != root)
        return Bad("{}: reads another tensor than {}", who, Name(root));
      return {};
    }
    if (replica.bytes == 0) return {};
    auto [map, begin] = BytesOf(id);
    return map->Over(begin, begin + replica.bytes, [&](Range& range) -> Result<void> {
      const bool at_start = replica.kind == ReplicaKind::kState && range.writer.stream == kNone &&
                            tensor.version == 0;
      if (!at_start && (range.owner != id || range.holds != root))
        return Bad("{}: {} is not there any more, or not yet", who, Name(root));
      if (!Over(range.writer, seen))
        return Bad("{}: reads {} without waiting for what wrote it", who, Name(root));
      for (Tick& reader : range.readers)
        if (reader.stream == tick.stream) {
          reader = tick;
          return {};
        }
      range.readers.push_back(tick);
      return {};
    });
  }

  Result<void> Write(const std::string& who, ReplicaId id, TensorId root, const Tick& tick,
                     const Seen& seen) {
    const Replica& replica = plan_.replicas[id];
    if (replica.kind == ReplicaKind::kConstant || replica.kind == ReplicaKind::kInput)
      return Bad("{}: writes {}, which is not its to write", who, Name(replica.region.tensor));
    auto [map, begin] = BytesOf(id);
    return Claim(who, *map, begin, replica.bytes, id, root, tick, seen);
  }

  // A write: after all that was done with these bytes. What an op reads of its own output's bytes
  // (a state that it updates, perhaps one that nobody wrote in this run) has the same tick.
  Result<void> Claim(const std::string& who, ByteMap& map, int64_t begin, int64_t bytes,
                     int64_t owner, TensorId holds, const Tick& tick, const Seen& seen) {
    if (bytes == 0) return {};
    TANDEM_CHECK(map.Over(begin, begin + bytes, [&](Range& range) -> Result<void> {
      const auto is_over = [&](const Tick& other) {
        const bool own = other.stream == tick.stream && other.time == tick.time;
        return Over(other, seen) || (own && (range.owner == owner || range.owner == kNone));
      };
      if (!is_over(range.writer) ||
          !std::all_of(range.readers.begin(), range.readers.end(), is_over))
        return Bad("{}: writes bytes [{}, {}) while others may still use them", who, begin,
                   begin + bytes);
      return {};
    }));
    Range range;
    range.end = begin + bytes;
    range.owner = owner;
    range.holds = holds;
    range.writer = tick;
    map.Set(begin, std::move(range));
    return {};
  }

  Result<void> CheckEnd() {
    Seen all(streams_, 0);
    for (const StepId last : plan_.final_steps) {
      if (!plan_.steps[last].records)
        return Bad("the host waits for step {}, which records nothing", last);
      for (size_t s = 0; s < streams_; ++s) all[s] = std::max(all[s], ended_[last][s]);
    }
    for (size_t s = 0; s < streams_; ++s)
      if (all[s] < now_[s][s])
        return Bad("the host does not wait for all of stream {}", machine_.devices[s]->name());
    if (plan_.outputs.size() != graph_.outputs().size()) return Bad("outputs are missing");
    for (const Operand& output : plan_.outputs) {
      const TensorId root = graph_.tensor(output.tensor).root;
      const Replica& replica = plan_.replicas[output.replica];
      if (replica.kind == ReplicaKind::kInput ||
          !machine_.CanRead(machine_.host_device, replica.memory))
        return Bad("output {} is not where the host can read it", Name(output.tensor));
      TANDEM_CHECK(Read("the host", output.replica, root, Region{output.tensor},
                        {machine_.host_device, all[machine_.host_device] + 1}, all));
    }
    return {};
  }

  const Machine& machine_;
  const Plan& plan_;
  const Graph& graph_;
  const size_t streams_;
  std::vector<Seen> ended_;  // Of each step.
  std::vector<Seen> now_;    // Of each stream.
  std::vector<bool> done_copies_, done_nodes_;
  std::map<std::pair<MemoryIndex, int32_t>, ByteMap> arena_;
  std::map<ReplicaId, ByteMap> own_;
};

}  // namespace

Result<void> ValidatePlan(const Machine& machine, const Plan& plan) {
  return Validator(machine, plan).Run();
}

}  // namespace tandem
