// What the planning functions take and make. Plain values: no device is touched.
//
// Devices and memories are numbered in a Machine; a plan holds numbers only, so that it can be
// made for any machine, printed and compared. A plan is immutable once validated.
//
// Words: a replica is the bytes of one tensor (or of a dense region of it) in one memory. The
// original replica is where the tensor was made or lives; others are filled by copies.
#pragma once

#include <cstdint>
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
};

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
// A regular expression (ECMAScript, searched) on names of constants and nodes; first match wins.
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
  MemoryIndex memory = kNone;
  int64_t bytes = 0;  // Weights, states and arenas together.
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

// --- copies and replicas ----------------------------------------------------------------------

enum class ReplicaKind : uint8_t {
  kInput,     // The caller's bytes.
  kConstant,  // A materialisation of weights; `weight` says which.
  kState,     // The home of a state's slice.
  kArena,     // Offsets in the plan's arena of that memory.
};

struct Replica {
  TensorId tensor = kNone;  // A root, or a view whose region was copied packed.
  MemoryIndex memory = kNone;
  ReplicaKind kind = ReplicaKind::kArena;
  bool is_copy = false;
  WeightLayout weight;  // kConstant.
  int64_t bytes = 0;    // At the box's upper bounds, aligned sizes apart.
  int32_t chunk = 0;    // kArena: which buffer of the arena...
  int64_t offset = 0;   // ...and where in it.
};

// What a node reads or writes: a replica and the tensor's place within it.
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
  kStaging,     // First or second half of a copy that a device declined.
};
std::string_view ToString(CopyCause cause);

struct Copy {
  ReplicaId source = kNone, target = kNone;
  TensorId tensor = kNone;  // The region that is moved.
  CopyCause cause = CopyCause::kActivation;
  DeviceIndex device = kNone;  // Whose stream moves it.
  int64_t bytes = 0;           // At the upper bounds.
  NodeId reader = kNone;       // The first that needs it, for people.
};

// --- split() and order() ----------------------------------------------------------------------

struct StepWait {
  StepId step = kNone;  // An earlier step on another stream.
};

struct Step {
  enum class Kind : uint8_t { kSplit, kCopy } kind = Kind::kSplit;
  StreamIndex stream = kNone;
  // kSplit: nodes of Plan::order [first, first + count).
  int32_t first = 0, count = 0;
  int32_t copy = kNone;       // kCopy: index into Plan::copies.
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
  std::vector<Operand> operands;         // Of all nodes, inputs then output.
  std::vector<int32_t> operand_begin;    // Parallel to the graph's nodes, and one more.
  std::vector<Scratch> scratch;          // Parallel to the graph's nodes.
  std::vector<Replica> replicas;
  std::vector<Copy> copies;
  std::vector<Step> steps;                 // In the order in which they are handed over.
  std::vector<StepId> final_steps;         // The host waits for these, one for each stream.
  std::vector<ReplicaId> output_replicas;  // Parallel to the graph's outputs; in host memory.
  std::vector<ArenaUse> arenas;            // Parallel to the machine's memories.
};

}  // namespace tandem
