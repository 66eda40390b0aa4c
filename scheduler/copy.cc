#include "scheduler/copy.h"

#include <algorithm>
#include <unordered_map>

namespace tandem {
namespace {

// A union of slices counts as dense when it moves at most this much more than is read.
constexpr double kDenseFactor = 1.1;

// What one memory needs of one root that it can not reach.
struct Want {
  std::vector<TensorId> tensors;                        // Distinct slices, or the root itself.
  std::vector<std::pair<Region, ReplicaId>> transfers;  // Once decided.
  int32_t before = 0;                                   // Split of the first reader.
  CopyCause cause = CopyCause::kActivation;
};

class Router {
 public:
  Router(const Machine& machine, const StateHomes& homes, const PlanOptions& options, Plan& plan)
      : machine_(machine),
        homes_(homes),
        reuses_memory_(options.reuse_memory),
        plan_(plan),
        graph_(*plan.graph),
        symbols_(UpperBounds(plan.box)),
        split_of_(graph_.nodes().size(), 0),
        original_(graph_.tensors().size(), kNone),
        memories_(static_cast<int64_t>(machine.memories.size())) {
    for (size_t s = 0; s < plan.splits.size(); ++s)
      for (int32_t i = 0; i < plan.splits[s].count; ++i)
        split_of_[plan.order[plan.splits[s].first + i]] = static_cast<int32_t>(s);
  }

  Result<void> Run() {
    TANDEM_CHECK(CheckOutputs());
    FindLastReaders();
    for (const NodeId id : plan_.order) Collect(id);
    for (const TensorId output : graph_.outputs()) CollectOutput(output);
    for (const auto& [root, memory] : wanted_order_) Decide(root, memory);
    Assign();
    // What an update brings home goes first: others may copy it on from there.
    std::stable_sort(plan_.copies.begin(), plan_.copies.end(), [](const Copy& a, const Copy& b) {
      if (a.before != b.before) return a.before < b.before;
      return a.cause == CopyCause::kStateWrite && b.cause != CopyCause::kStateWrite;
    });
    return {};
  }

 private:
  TensorId Root(TensorId id) const { return graph_.tensor(id).root; }

  Result<void> CheckOutputs() const {
    for (const TensorId output : graph_.outputs()) {
      const Tensor& root = graph_.tensor(Root(output));
      if (root.state == nullptr) continue;
      for (const Tensor& other : graph_.tensors())
        if (other.state == root.state && other.slice == root.slice && other.version > root.version)
          return Fail(ErrorCode::kUnsupported,
                      "graph {}: output {} is version {} of state {} slice {}, which the graph "
                      "overwrites; copy it to a tensor first",
                      plan_.graph_name, graph_.tensor(output).name, root.version, root.state->name,
                      root.slice);
    }
    return {};
  }

  ReplicaId AddReplica(Region region, MemoryIndex memory, ReplicaKind kind, bool is_copy) {
    Replica replica;
    replica.region = region;
    replica.memory = memory;
    replica.kind = kind;
    replica.is_copy = is_copy;
    replica.bytes = RegionBytes(region);
    plan_.replicas.push_back(std::move(replica));
    return static_cast<ReplicaId>(plan_.replicas.size() - 1);
  }

  int64_t RegionBytes(const Region& region) const {
    const Tensor& tensor = graph_.tensor(region.tensor);
    Layout layout = Bind(tensor.type, tensor.shape, symbols_);
    if (region.dim != kNone) layout.dims[region.dim] = region.size;
    return layout.PackedBytes();
  }

  MemoryIndex HomeOf(const Tensor& root) const { return homes_.at({root.state.get(), root.slice}); }

  // The replica that holds a root that is no constant, where it was made or lives.
  ReplicaId Original(TensorId root) {
    if (original_[root] != kNone) return original_[root];
    const Tensor& tensor = graph_.tensor(root);
    if (tensor.kind == TensorKind::kInput) {
      original_[root] = AddReplica({root}, machine_.host_memory, ReplicaKind::kInput, false);
    } else if (tensor.state != nullptr) {
      original_[root] = Home(tensor, root);
    } else {
      const DeviceIndex device = plan_.placement[tensor.producer].device;
      original_[root] = AddReplica({root}, machine_.memory_of[device], ReplicaKind::kArena, false);
    }
    return original_[root];
  }

  ReplicaId Home(const Tensor& tensor, TensorId root) {
    const auto [slot, is_new] = home_.try_emplace({tensor.state.get(), tensor.slice}, kNone);
    if (is_new) slot->second = AddReplica({root}, HomeOf(tensor), ReplicaKind::kState, false);
    return slot->second;
  }

  ReplicaId ConstantReplica(TensorId root, DeviceIndex device, const WeightLayout& layout) {
    const bool in_place = layout.name.empty() && machine_.CanRead(device, machine_.host_memory);
    const MemoryIndex memory = in_place ? machine_.host_memory : machine_.memory_of[device];
    for (const ReplicaId known : constants_[root])
      if (plan_.replicas[known].memory == memory && plan_.replicas[known].weight == layout)
        return known;
    const ReplicaId id = AddReplica({root}, memory, ReplicaKind::kConstant, false);
    plan_.replicas[id].weight = layout;
    plan_.replicas[id].bytes = layout.bytes;
    constants_[root].push_back(id);
    return id;
  }

  WeightLayout PlainLayout(TensorId root) const {
    return {.name = {}, .bytes = graph_.tensor(root).constant->Bytes()};
  }

  // --- first pass: what is read where --------------------------------------------------------

  void Collect(NodeId id) {
    const Node& node = graph_.node(id);
    const DeviceIndex device = plan_.placement[id].device;
    const MemoryIndex own = machine_.memory_of[device];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId input = node.inputs[i];
      if (input == kNone || graph_.tensor(Root(input)).kind == TensorKind::kConstant) continue;
      const TensorId root = Root(input);
      const bool updates = static_cast<int>(i) == node.op->state_input;
      if (updates) updated_in_[root] = split_of_[id];
      const MemoryIndex at = plan_.replicas[Original(root)].memory;
      const bool in_place = updates ? machine_.CanWrite(device, at) : machine_.CanRead(device, at);
      if (in_place || HasUpdated(root, own)) continue;
      const CopyCause cause = graph_.tensor(root).kind == TensorKind::kInput ? CopyCause::kInput
                              : graph_.tensor(root).state != nullptr         ? CopyCause::kStateRead
                                                                     : CopyCause::kActivation;
      AddWant(root, own, updates ? root : Strip(input), split_of_[id], cause);
    }
    const Tensor& output = graph_.tensor(node.output);
    if (output.state == nullptr) {
      const TensorId overwritten = MayOverwrite(id);
      if (overwritten != kNone) original_[node.output] = original_[overwritten];
      Original(node.output);
      return;
    }
    original_[node.output] = Home(output, node.output);
    const MemoryIndex home = HomeOf(output);
    if (!machine_.CanWrite(device, home)) updated_at_[node.output] = own;
  }

  // The root whose bytes the node's output may take: made here, whole, dead after this node, read
  // nowhere else and by no other input of the node. kNone if there is none.
  TensorId MayOverwrite(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!reuses_memory_ || node.op->in_place_input < 0) return kNone;
    const TensorId input = node.inputs[static_cast<size_t>(node.op->in_place_input)];
    if (input == kNone) return kNone;
    const TensorId root = Root(input);
    const Tensor& tensor = graph_.tensor(root);
    if (tensor.kind != TensorKind::kComputed || tensor.state != nullptr ||
        last_reader_[root] != id ||
        plan_.replicas[original_[root]].memory != machine_.memory_of[plan_.placement[id].device])
      return kNone;
    for (TensorId at = input; at != root; at = graph_.tensor(at).source)
      if (graph_.tensor(at).view.kind != ViewSpec::Kind::kReshape) return kNone;
    if (std::count_if(node.inputs.begin(), node.inputs.end(),
                      [&](TensorId other) { return other != kNone && Root(other) == root; }) != 1)
      return kNone;
    for (MemoryIndex memory = 0; memory < memories_; ++memory)
      if (wants_.contains(root * memories_ + memory)) return kNone;
    return root;
  }

  // The last node in the order that reads each root; none where the host reads it at the end.
  void FindLastReaders() {
    last_reader_.assign(graph_.tensors().size(), kNone);
    for (const NodeId id : plan_.order)
      for (const TensorId input : graph_.node(id).inputs)
        if (input != kNone) last_reader_[Root(input)] = id;
    for (const TensorId output : graph_.outputs()) last_reader_[Root(output)] = kNone;
  }

  bool HasUpdated(TensorId root, MemoryIndex memory) const {
    const auto at = updated_at_.find(root);
    return at != updated_at_.end() && at->second == memory;
  }

  void CollectOutput(TensorId output) {
    const TensorId root = Root(output);
    const Tensor& tensor = graph_.tensor(root);
    if (tensor.kind == TensorKind::kConstant) return;
    const MemoryIndex at = plan_.replicas[Original(root)].memory;
    const bool in_place =
        tensor.kind != TensorKind::kInput && machine_.CanRead(machine_.host_device, at);
    if (in_place) return;
    const int32_t before = tensor.producer == kNone ? 0 : split_of_[tensor.producer] + 1;
    AddWant(root, machine_.host_memory, Strip(output), before, CopyCause::kOutput);
  }

  // The nearest tensor on the way to the root whose bytes are a region: a slice, or the root.
  TensorId Strip(TensorId id) const {
    while (id != Root(id) && graph_.tensor(id).view.kind != ViewSpec::Kind::kSlice)
      id = graph_.tensor(id).source;
    return id;
  }

  void AddWant(TensorId root, MemoryIndex memory, TensorId tensor, int32_t before,
               CopyCause cause) {
    const auto [slot, is_new] = wants_.try_emplace(root * memories_ + memory);
    Want& want = slot->second;
    if (is_new) {
      want.before = before;
      want.cause = cause;
      wanted_order_.push_back({root, memory});
    }
    want.before = std::min(want.before, before);
    if (std::find(want.tensors.begin(), want.tensors.end(), tensor) == want.tensors.end())
      want.tensors.push_back(tensor);
  }

  // --- second pass: transfers -----------------------------------------------------------------

  std::vector<Region> Regions(TensorId root, const Want& want) const {
    int64_t sum = 0;
    for (const TensorId tensor : want.tensors) sum += RegionBytes({tensor});
    if (std::find(want.tensors.begin(), want.tensors.end(), root) != want.tensors.end() ||
        (want.tensors.size() > 1 && sum >= RegionBytes({root})))
      return {{root}};
    if (const std::optional<Region> dense = Dense(want.tensors)) return {*dense};
    std::vector<Region> regions;
    for (const TensorId tensor : want.tensors) regions.push_back({tensor});
    return regions;
  }

  // One region for several slices of one tensor along one dimension, if they fill it well.
  std::optional<Region> Dense(std::span<const TensorId> slices) const {
    if (slices.size() < 2) return std::nullopt;
    const Tensor& first = graph_.tensor(slices[0]);
    std::vector<std::pair<int64_t, int64_t>> ranges;  // Begin, end.
    for (const TensorId id : slices) {
      const Tensor& slice = graph_.tensor(id);
      const int dim = slice.view.dim;
      if (slice.source != first.source || dim != first.view.dim || !slice.view.start.IsConstant() ||
          !slice.shape[dim].IsConstant())
        return std::nullopt;
      const int64_t begin = slice.view.start.factor;
      ranges.push_back({begin, begin + slice.shape[dim].factor});
    }
    std::sort(ranges.begin(), ranges.end());
    int64_t covered = 0, end = ranges[0].first;
    for (const auto& [from, to] : ranges) {
      covered += std::max<int64_t>(0, to - std::max(from, end));
      end = std::max(end, to);
    }
    const int64_t extent = end - ranges[0].first;
    if (static_cast<double>(covered) * kDenseFactor < static_cast<double>(extent))
      return std::nullopt;
    return Region{first.source, first.view.dim, ranges[0].first, extent};
  }

  void Decide(TensorId root, MemoryIndex memory) {
    Want& want = wants_.at(root * memories_ + memory);
    const ReplicaId source = original_[root];
    for (const Region& region : Regions(root, want)) {
      const ReplicaId target = AddReplica(region, memory, ReplicaKind::kArena, true);
      AddTransfer(region, source, target, want.cause, want.before);
      want.transfers.push_back({region, target});
    }
  }

  // The device that copies between two memories, or kNone. An accelerator goes before the host.
  DeviceIndex Carrier(MemoryIndex from, MemoryIndex to) const {
    for (const bool host : {false, true})
      for (size_t d = 0; d < machine_.devices.size(); ++d) {
        const MemoryIndex own = machine_.memory_of[d];
        if ((own == machine_.host_memory) != host || (own != from && own != to)) continue;
        if (machine_.devices[d]->CopiesBetween(*machine_.memories[from], *machine_.memories[to]))
          return static_cast<DeviceIndex>(d);
      }
    return kNone;
  }

  void AddTransfer(const Region& region, ReplicaId source, ReplicaId target, CopyCause cause,
                   int32_t before) {
    const MemoryIndex from = plan_.replicas[source].memory, to = plan_.replicas[target].memory;
    if (const DeviceIndex device = Carrier(from, to); device != kNone) {
      AddCopy(region, source, target, cause, before, device, false);
      return;
    }
    const MemoryIndex host = machine_.host_memory;
    const ReplicaId stage = AddReplica(region, host, ReplicaKind::kArena, true);
    AddCopy(region, source, stage, cause, before, Carrier(from, host), true);
    AddCopy(region, stage, target, cause, before, Carrier(host, to), true);
  }

  void AddCopy(const Region& region, ReplicaId source, ReplicaId target, CopyCause cause,
               int32_t before, DeviceIndex device, bool is_staging) {
    Copy copy;
    copy.region = region;
    copy.source = source;
    copy.target = target;
    copy.cause = cause;
    copy.is_staging = is_staging;
    copy.device = device;
    copy.bytes = RegionBytes(region);
    copy.before = before;
    plan_.copies.push_back(copy);
  }

  // --- third pass: operands --------------------------------------------------------------------

  void Assign() {
    plan_.operand_begin.assign(graph_.nodes().size() + 1, 0);
    plan_.scratch.assign(graph_.nodes().size(), {});
    std::vector<std::vector<Operand>> operands(graph_.nodes().size());
    for (const NodeId id : plan_.order) operands[id] = OperandsOf(id);
    for (size_t id = 0; id < operands.size(); ++id) {
      plan_.operand_begin[id] = static_cast<int32_t>(plan_.operands.size());
      plan_.operands.insert(plan_.operands.end(), operands[id].begin(), operands[id].end());
      plan_.scratch[id].bytes = plan_.placement[id].kernel.scratch_bytes;
    }
    plan_.operand_begin.back() = static_cast<int32_t>(plan_.operands.size());
    for (const TensorId output : graph_.outputs()) {
      const TensorId root = Root(output);
      const ReplicaId replica = graph_.tensor(root).kind == TensorKind::kConstant
                                    ? ConstantReplica(root, machine_.host_device, PlainLayout(root))
                                    : Holding(output, machine_.host_memory);
      plan_.outputs.push_back({output, replica});
    }
  }

  std::vector<Operand> OperandsOf(NodeId id) {
    const Node& node = graph_.node(id);
    const NodePlacement& placement = plan_.placement[id];
    const MemoryIndex own = machine_.memory_of[placement.device];
    std::vector<Operand> operands;
    ReplicaId updated = kNone;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId input = node.inputs[i];
      if (input == kNone) {
        operands.push_back({});
        continue;
      }
      const TensorId root = Root(input);
      ReplicaId replica;
      if (graph_.tensor(root).kind == TensorKind::kConstant) {
        const bool packed = input == root && i < placement.kernel.weights.size() &&
                            !placement.kernel.weights[i].name.empty();
        replica = ConstantReplica(root, placement.device,
                                  packed ? placement.kernel.weights[i] : PlainLayout(root));
      } else {
        const ReplicaId original = original_[root];
        const bool updates = static_cast<int>(i) == node.op->state_input;
        const bool in_place =
            updates ? machine_.CanWrite(placement.device, plan_.replicas[original].memory)
                    : machine_.CanRead(placement.device, plan_.replicas[original].memory);
        replica = in_place ? original : Holding(input, own);
      }
      if (static_cast<int>(i) == node.op->state_input) updated = replica;
      operands.push_back({input, replica});
    }
    if (updated != kNone) {
      holds_[node.output * memories_ + plan_.replicas[updated].memory] = updated;
      const Tensor& output = graph_.tensor(node.output);
      const ReplicaId home = home_.at({output.state.get(), output.slice});
      // Between two updates in one split nobody else can read: the last is brought back.
      const auto next = updated_in_.find(node.output);
      const bool is_last = next == updated_in_.end() || next->second != split_of_[id];
      if (home != updated && is_last)
        AddTransfer({node.output}, updated, home, CopyCause::kStateWrite, split_of_[id] + 1);
    }
    operands.push_back({node.output, updated != kNone ? updated : original_[node.output]});
    return operands;
  }

  // The replica of a tensor that is no constant, as read from `memory`: one that an update or a
  // copy left there, else the original.
  ReplicaId Holding(TensorId tensor, MemoryIndex memory) const {
    const TensorId root = Root(tensor);
    if (const auto own = holds_.find(root * memories_ + memory); own != holds_.end())
      return own->second;
    const auto want = wants_.find(root * memories_ + memory);
    if (want == wants_.end()) return original_[root];
    const TensorId stripped = Strip(tensor);
    const auto& transfers = want->second.transfers;
    for (const auto& [region, replica] : transfers)
      if (region.tensor == stripped || transfers.size() == 1) return replica;
    return original_[root];
  }

  const Machine& machine_;
  const StateHomes& homes_;
  const bool reuses_memory_;
  Plan& plan_;
  const Graph& graph_;
  const std::vector<int64_t> symbols_;
  std::vector<int32_t> split_of_;    // Parallel to nodes.
  std::vector<ReplicaId> original_;  // Parallel to tensors; roots only.
  std::vector<NodeId> last_reader_;  // The same.
  const int64_t memories_;
  std::map<std::pair<const State*, int>, ReplicaId> home_;
  std::unordered_map<TensorId, std::vector<ReplicaId>> constants_;
  std::unordered_map<int64_t, Want> wants_;  // By root * memories + memory.
  std::vector<std::pair<TensorId, MemoryIndex>> wanted_order_;
  std::unordered_map<TensorId, MemoryIndex> updated_at_;  // Versions made away from home.
  std::unordered_map<TensorId, int32_t> updated_in_;  // Split in which a version is overwritten.
  std::unordered_map<int64_t, ReplicaId> holds_;      // Updated versions, by root and memory.
};

}  // namespace

Result<void> RouteCopies(const Machine& machine, const StateHomes& homes,
                         const PlanOptions& options, Plan& plan) {
  return Router(machine, homes, options, plan).Run();
}

}  // namespace tandem
