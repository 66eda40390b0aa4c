#include "scheduler/place.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <regex>

#include "scheduler/cost.h"

namespace tandem {
namespace {

struct Pattern {
  std::regex regex;
  const PatternPin* pin;
};

Result<std::vector<Pattern>> Compile(const Machine& machine, const GraphSpec& spec) {
  std::vector<Pattern> patterns;
  for (const PatternPin& pin : spec.pattern_pins) {
    if (pin.device < 0 || pin.device >= static_cast<DeviceIndex>(machine.devices.size()))
      return Fail(ErrorCode::kInvalid, "graph {}: pattern \"{}\" names no device of this scheduler",
                  spec.name, pin.pattern);
    try {
      patterns.push_back({std::regex(pin.pattern, std::regex::optimize), &pin});
    } catch (const std::regex_error& error) {
      return Fail(ErrorCode::kInvalid, "graph {}: \"{}\" is no regular expression: {}", spec.name,
                  pin.pattern, error.what());
    }
  }
  return patterns;
}

const PatternPin* Match(std::span<const Pattern> patterns, const std::string& name) {
  for (const Pattern& pattern : patterns)
    if (std::regex_search(name, pattern.regex)) return pattern.pin;
  return nullptr;
}

// The first pattern that matches the node or something that it uses, in the order of patterns.
const PatternPin* MatchNode(std::span<const Pattern> patterns, const Graph& graph,
                            const Node& node) {
  const PatternPin* best = Match(patterns, node.name);
  for (const TensorId input : node.inputs) {
    if (input == kNone) continue;
    const Tensor& root = graph.tensor(graph.tensor(input).root);
    const PatternPin* match = nullptr;
    if (root.constant) match = Match(patterns, root.constant->name);
    if (root.state) match = Match(patterns, root.state->name);
    if (match != nullptr && (best == nullptr || match < best)) best = match;
  }
  return best;
}

// A node's question to devices, with the storage that it points to.
struct Question {
  KernelQuery query;
  std::vector<Layout> inputs;
  std::unique_ptr<bool[]> present, constant;

  void Fill(const Graph& graph, const Node& node, std::span<const Layout> bound) {
    const size_t n = node.inputs.size();
    inputs.assign(n, Layout());
    present = std::make_unique<bool[]>(n);
    constant = std::make_unique<bool[]>(n);
    for (size_t i = 0; i < n; ++i) {
      const TensorId id = node.inputs[i];
      present[i] = id != kNone;
      if (!present[i]) continue;
      inputs[i] = bound[id];
      constant[i] = graph.tensor(id).kind == TensorKind::kConstant;
    }
    query.op = node.op;
    query.attributes = node.attributes;
    query.inputs = inputs;
    query.present = {present.get(), n};
    query.constant = {constant.get(), n};
    query.output = bound[node.output];
  }
};

class Placer {
 public:
  Placer(const Machine& machine, const GraphSpec& spec, const SizeBox& box, const StateHomes& homes)
      : machine_(machine), spec_(spec), graph_(*spec.graph), homes_(homes) {
    symbols_ = UpperBounds(box);
    bound_.reserve(graph_.tensors().size());
    for (TensorId id = 0; id < static_cast<TensorId>(graph_.tensors().size()); ++id) {
      const TensorId root = graph_.tensor(id).root;
      bound_.push_back(
          PlaceWithin(graph_, id, root, RootLayout(graph_, root, symbols_), symbols_).layout);
    }
    memory_of_.assign(graph_.tensors().size(), kNone);
    for (const Device* device : machine.devices) properties_.push_back(device->properties());
  }

  Result<std::vector<NodePlacement>> Run() {
    const size_t count = graph_.nodes().size();
    TANDEM_ASSIGN(const std::vector<Pattern> patterns, Compile(machine_, spec_));
    std::vector<const NodePin*> pins(count, nullptr);
    for (const NodePin& pin : spec_.node_pins) {
      if (pin.node < 0 || pin.node >= static_cast<NodeId>(count) || pin.device < 0 ||
          pin.device >= static_cast<DeviceIndex>(machine_.devices.size()))
        return Fail(ErrorCode::kInvalid, "graph {}: a pin of node {} to device {} is out of range",
                    spec_.name, pin.node, pin.device);
      pins[pin.node] = &pin;
    }
    std::vector<NodePlacement> placement(count);
    for (NodeId id = 0; id < static_cast<NodeId>(count); ++id) {
      const Node& node = graph_.node(id);
      question_.Fill(graph_, node, bound_);
      const Wish wish = WishOf(node, pins[id], patterns);
      TANDEM_ASSIGN(placement[id], Choose(node, wish));
      memory_of_[node.output] = machine_.memory_of[placement[id].device];
    }
    return placement;
  }

 private:
  struct Wish {
    DeviceIndex device;
    std::string why;
  };

  Wish WishOf(const Node& node, const NodePin* pin, std::span<const Pattern> patterns) const {
    if (pin != nullptr && !pin->is_preference) return {pin->device, pin->why};
    if (!patterns.empty())
      if (const PatternPin* match = MatchNode(patterns, graph_, node))
        return {match->device, fmt::format("pattern \"{}\"", match->pattern)};
    if (pin != nullptr) return {pin->device, pin->why};
    // Bytes of each memory that the node reads, where it is known where they are.
    std::vector<double> bytes(machine_.memories.size(), 0.0);
    for (const TensorId input : node.inputs)
      if (input != kNone)
        if (const MemoryIndex memory = MemoryOf(input); memory != kNone)
          bytes[memory] += static_cast<double>(bound_[input].PackedBytes());
    const auto most = std::max_element(bytes.begin(), bytes.end());
    if (*most == 0) return {machine_.host_device, "reads nothing from a device"};
    const auto memory = static_cast<MemoryIndex>(most - bytes.begin());
    for (size_t d = 0; d < machine_.devices.size(); ++d)
      if (machine_.memory_of[d] == memory)
        return {static_cast<DeviceIndex>(d),
                fmt::format("most of what it reads is in {}", machine_.memories[memory]->name())};
    return {machine_.host_device, "reads nothing from a device"};
  }

  // Where a tensor's bytes are, as far as it is known: made by a placed node, or a state at home.
  MemoryIndex MemoryOf(TensorId id) const {
    const Tensor& root = graph_.tensor(graph_.tensor(id).root);
    if (root.state != nullptr) {
      const auto home = homes_.find({root.state.get(), root.slice});
      if (home != homes_.end()) return home->second;
    }
    return memory_of_[graph_.tensor(id).root];
  }

  double Cost(const Node& node, DeviceIndex device) const {
    double seconds = EstimateSeconds(properties_[device],
                                     node.op->cost == nullptr
                                         ? OpCost{}
                                         : node.op->cost(question_.inputs, question_.query.output));
    for (const TensorId input : node.inputs) {
      if (input == kNone) continue;
      const MemoryIndex memory = MemoryOf(input);
      if (memory != kNone)
        seconds += EstimateTransfer(machine_, memory, device,
                                    static_cast<double>(bound_[input].PackedBytes()));
    }
    return seconds;
  }

  Result<NodePlacement> Choose(const Node& node, const Wish& wish) {
    auto kernel = machine_.devices[wish.device]->FindKernel(question_.query);
    if (kernel) return NodePlacement{wish.device, wish.why, std::move(*kernel)};
    std::string declined =
        fmt::format("{} ({}) declines {}: {}", machine_.devices[wish.device]->name(), wish.why,
                    node.op->name, kernel.error().message);
    std::optional<NodePlacement> best, second;
    double best_cost = std::numeric_limits<double>::infinity(), second_cost = best_cost;
    for (DeviceIndex d = 0; d < static_cast<DeviceIndex>(machine_.devices.size()); ++d) {
      if (d == wish.device) continue;
      auto other = machine_.devices[d]->FindKernel(question_.query);
      if (!other) {
        declined +=
            fmt::format("; {} declines: {}", machine_.devices[d]->name(), other.error().message);
        continue;
      }
      const double cost = Cost(node, d);
      NodePlacement candidate{d, {}, std::move(*other)};
      if (cost < best_cost) {
        second = std::move(best);
        second_cost = best_cost;
        best = std::move(candidate);
        best_cost = cost;
      } else if (cost < second_cost) {
        second = std::move(candidate);
        second_cost = cost;
      }
    }
    if (!best)
      return Fail(ErrorCode::kUnsupported, "graph {}: no device can run node {}: {}", spec_.name,
                  node.name, declined);
    best->reason = fmt::format("{}; est. {:.1f} us", declined, best_cost * 1e6);
    if (second)
      best->reason += fmt::format(", runner-up {} {:.1f} us",
                                  machine_.devices[second->device]->name(), second_cost * 1e6);
    return std::move(*best);
  }

  const Machine& machine_;
  const GraphSpec& spec_;
  const Graph& graph_;
  const StateHomes& homes_;
  std::vector<int64_t> symbols_;
  std::vector<Layout> bound_;           // Parallel to tensors, at the upper bounds.
  std::vector<MemoryIndex> memory_of_;  // Parallel to tensors: of those made by a placed node.
  std::vector<DeviceProperties> properties_;
  Question question_;
};

}  // namespace

Result<std::vector<NodePlacement>> Place(const Machine& machine, const GraphSpec& spec,
                                         const SizeBox& box, const StateHomes& homes) {
  return Placer(machine, spec, box, homes).Run();
}

Result<void> FindHomes(const Machine& machine, const GraphSpec& spec, const SizeBox& box,
                       std::span<const NodePlacement> placement, StateHomes& homes) {
  TANDEM_ASSIGN(const std::vector<Pattern> patterns, Compile(machine, spec));
  const Graph& graph = *spec.graph;
  const std::vector<int64_t> symbols = UpperBounds(box);
  struct Reader {
    double bytes = -1;
    DeviceIndex device = kNone;
  };
  std::map<std::pair<const State*, int>, Reader> readers;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.kind == TensorKind::kState && !homes.contains({tensor.state.get(), tensor.slice}))
      readers[{tensor.state.get(), tensor.slice}];
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const Tensor& tensor = graph.tensor(node.inputs[i]);
      const Tensor& root = graph.tensor(tensor.root);
      if (root.state == nullptr) continue;
      const auto slot = readers.find({root.state.get(), root.slice});
      if (slot == readers.end()) continue;
      const bool updates = static_cast<int>(i) == node.op->state_input;
      const double bytes =
          updates ? 0 : static_cast<double>(Bind(tensor.type, tensor.shape, symbols).PackedBytes());
      if (bytes > slot->second.bytes) slot->second = {bytes, placement[id].device};
    }
  }
  for (const auto& [slice, reader] : readers) {
    DeviceIndex device = reader.device == kNone ? machine.host_device : reader.device;
    if (const PatternPin* match = Match(patterns, slice.first->name)) device = match->device;
    homes[slice] = machine.memory_of[device];
  }
  return {};
}

}  // namespace tandem
