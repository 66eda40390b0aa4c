// What the planning functions take and make. Plain values: no device is touched.
//
// Devices and memories are numbered in a Machine; a plan holds numbers only, so that it can be
// made for any machine, printed and compared. A plan is immutable once validated.
//
// Words: a replica is the bytes of one tensor (or of a region of it) in one memory. The original
// replica is where the tensor was made or lives; others are filled by copies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/device.h"
#include "graph/graph.h"

namespace tandem {

using DeviceIndex = int32_t;
using MemoryIndex = int32_t;
using ReplicaId = int32_t;
using StepId = int32_t;
using StreamIndex = int32_t;  // One compute stream for each device: equal to its DeviceIndex.

struct Machine {
  std::vector<Device*> devices;
  std::vector<Memory*> memories;       // Each device's, without doubles.
  std::vector<MemoryIndex> memory_of;  // Parallel to devices.
  DeviceIndex host_device = kNone;     // The first whose memory is the host's.
  MemoryIndex host_memory = kNone;

  bool CanRead(DeviceIndex device, MemoryIndex memory) const;
  bool CanWrite(DeviceIndex device, MemoryIndex memory) const;
};

// The order of devices is kept. Errors: no device, a name twice, none with the host's memory.
Result<Machine> MakeMachine(std::span<Device* const> devices);

// A range of values for each symbol of a graph; one plan serves one box.
struct SizeRange {
  int64_t lower = 0, upper = 0;  // Inclusive.
};
struct SizeBox {
  std::string name;               // "token", "prompt".
  std::vector<SizeRange> ranges;  // Parallel to the graph's symbols.
  bool Contains(std::span<const int64_t> symbols) const;
};

// Constraints, strongest first: node pins, then patterns, then where weights or neighbours are.
struct NodePin {
  NodeId node = kNone;
  DeviceIndex device = kNone;
  bool is_preference = false;  // True: patterns go first (a layer's device).
  std::string why;             // "layer 17 of 30 (-ngl 14)".
};
// A regular expression (ECMAScript, searched) on names of nodes and of the constants and states
// that they use; the first match wins. A matched state has its home on the device.
struct PatternPin {
  std::string pattern;
  DeviceIndex device = kNone;
};

struct GraphSpec {
  std::string name;
  std::shared_ptr<const Graph> graph;
  std::vector<SizeBox> boxes;
  std::vector<NodePin> node_pins;
  std::vector<PatternPin> pattern_pins;
};

struct MemoryBudget {
  DeviceIndex device = kNone;  // Whose memory.
  int64_t bytes = 0;           // Weights, states and arenas together.
};

struct PlanOptions {
  bool reuse_memory = true;           // False: every replica has bytes of its own.
  std::vector<MemoryBudget> budgets;  // Beside what the memories themselves say.
};

// --- place() ---------------------------------------------------------------------------------

struct NodePlacement {
  DeviceIndex device = kNone;
  std::string reason;  // In words, for people.
  KernelChoice kernel;
};

// --- split() ---------------------------------------------------------------------------------

// Consecutive nodes of Plan::order on one device, without a transfer between.
struct Split {
  DeviceIndex device = kNone;
  int32_t first = 0, count = 0;
};

// --- copy(): replicas, operands and copies
// ----------------------------------------------------------------------

enum class ReplicaKind : uint8_t {
  kInput,     // The caller's bytes.
  kConstant,  // A materialisation of weights; `weight` says which.
  kState,     // The home of a state's slice.
  kArena,     // Offsets in the plan's arena of that memory.
};

// The bytes of one tensor, or of a region of it: those elements of `tensor` whose index in
// dimension `region_dim` lies in [region_start, region_start + region_size).
struct Region {
  TensorId tensor = kNone;
  int32_t dim = kNone;  // kNone: all of the tensor.
  int64_t start = 0, size = 0;
  bool operator==(const Region&) const = default;
};

struct Replica {
  Region region;  // What a copy filled it with; else a root tensor.
  MemoryIndex memory = kNone;
  ReplicaKind kind = ReplicaKind::kArena;
  bool is_copy = false;  // Filled by a copy, packed.
  WeightLayout weight;   // kConstant.
  int64_t bytes = 0;     // At the box's upper bounds.
  int32_t chunk = 0;     // kArena: which buffer of the arena...
  int64_t offset = 0;    // ...and where in it.
};

// What a node reads or writes: a tensor, found in a replica that holds it. All versions of a
// state's slice that are made in one memory share a replica.
struct Operand {
  TensorId tensor = kNone;  // kNone: an absent optional input.
  ReplicaId replica = kNone;
};

enum class CopyCause : uint8_t {
  kActivation,  // Made on one device, read on another.
  kInput,       // The caller's bytes, read on a device that can not reach them.
  kOutput,      // Brought to the host for the caller.
  kStateRead,   // A state's slice, read away from home.
  kStateWrite,  // An update made away from home, brought back.
};
std::string_view ToString(CopyCause cause);

struct Copy {
  Region region;  // What is moved, packed at the target.
  ReplicaId source = kNone, target = kNone;
  CopyCause cause = CopyCause::kActivation;
  bool is_staging = false;     // One half of a copy that no device makes directly.
  DeviceIndex device = kNone;  // Whose stream moves it.
  int64_t bytes = 0;           // At the upper bounds.
  int32_t before = 0;          // Handed over before Plan::splits[before].
};

// --- order() ----------------------------------------------------------------------

// One thing handed to a stream: a copy or a split.
struct Step {
  StreamIndex stream = kNone;
  int32_t split = kNone;      // Index into Plan::splits...
  int32_t copy = kNone;       // ...or into Plan::copies.
  std::vector<StepId> waits;  // On other streams; order on a stream is implied.
  bool records = false;       // Some step, or the host, waits for this one.
};

struct Scratch {
  int64_t bytes = 0;
  int32_t chunk = 0;
  int64_t offset = 0;
};

// One arena of a plan: what it needs of one memory.
struct ArenaUse {
  MemoryIndex memory = kNone;
  std::vector<int64_t> chunk_bytes;
  int64_t bytes = 0;
  int64_t lower_bound = 0;
  std::string strategy;
};

struct Plan {
  std::shared_ptr<const Graph> graph;
  std::string graph_name;
  SizeBox box;
  std::vector<NodePlacement> placement;  // Parallel to the graph's nodes.
  std::vector<NodeId> order;             // Nodes in the order in which they are handed over.
  std::vector<Operand> operands;         // Of all nodes: inputs, then output.
  std::vector<int32_t> operand_begin;    // Parallel to the graph's nodes, and one more.
  std::vector<Scratch> scratch;          // Parallel to the graph's nodes.
  std::vector<Replica> replicas;
  std::vector<Copy> copies;  // In the order in which they are handed over.
  std::vector<Split> splits;
  std::vector<Step> steps;          // In the order in which they are handed over.
  std::vector<StepId> final_steps;  // The host waits for these; all others come before.
  std::vector<Operand> outputs;     // Parallel to the graph's outputs; the host reads.
  std::vector<ArenaUse> arenas;     // Parallel to the machine's memories.

  std::span<const Operand> Inputs(NodeId node) const {
    return {operands.data() + operand_begin[node],
            static_cast<size_t>(operand_begin[node + 1] - operand_begin[node] - 1)};
  }
  const Operand& Output(NodeId node) const { return operands[operand_begin[node + 1] - 1]; }
};

// Home of each slice of a state: the same in all plans of a scheduler.
using StateHomes = std::map<std::pair<const State*, int>, MemoryIndex>;

// Where a tensor is inside a replica, at given sizes.
Placed LocateIn(const Graph& graph, const Replica& replica, TensorId tensor,
                std::span<const int64_t> symbols);
// A region as it lies in a replica; packed, it is Contiguous() of the same dimensions.
Placed LocateRegion(const Graph& graph, const Replica& replica, const Region& region,
                    std::span<const int64_t> symbols);
std::vector<int64_t> UpperBounds(const SizeBox& box);

}  // namespace tandem
