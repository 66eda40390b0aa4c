// A graph: an immutable list of nodes over tensors.
//
// A tensor is an input, a constant, a version of a state's slice, the output of a node, or a
// view of another tensor. Views make no node: they share bytes with the tensor they look at,
// and `root` names the one that owns the bytes. Nodes are in an order in which each reads only
// what earlier ones made. Sizes may be symbols; a graph is run at values for them.
//
// A Graph is made by a GraphBuilder (builder.h), never changes afterwards and may be read from
// any number of threads. Indices are dense and small integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/shape.h"

namespace tandem {

using TensorId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

// Weights: bytes that never change, in the layout of the file they come from (row-major).
// Identity is the object's address: graphs that share it share its copies on devices.
struct Constant {
  std::string name;
  Type type = Type::kF32;
  std::vector<int64_t> dims;
  const std::byte* data = nullptr;    // Null in a graph that is only planned.
  std::shared_ptr<const void> owner;  // Keeps `data` alive (a mapped file, a vector).
  bool page_aligned_file = false;     // `data` lies in a file mapped by `owner`.

  int64_t Bytes() const;
};

// What lives across runs: `slices` arrays of equal shape, each with epochs of its own. The
// first dimension is the number of rows (a cache's capacity). Identity is the address.
struct State {
  std::string name;
  Type type = Type::kF32;
  std::vector<int64_t> dims;  // Of one slice.
  int slices = 1;             // A cache: one for each layer.

  int64_t SliceBytes() const;
};

enum class TensorKind : uint8_t { kInput, kConstant, kState, kComputed, kView };

// One step of a view, applied to the tensor it looks at.
struct ViewSpec {
  enum class Kind : uint8_t { kSlice, kPermute, kReshape };
  Kind kind = Kind::kReshape;
  int dim = 0;                           // kSlice: of the source.
  Dim start = 0;                         // kSlice: first element.
  std::array<int8_t, kMaxRank> order{};  // kPermute: result dimension i is source order[i].
};

struct Tensor {
  std::string name;
  Type type = Type::kF32;
  TensorKind kind = TensorKind::kComputed;
  Shape shape;
  NodeId producer = kNone;                   // The node that makes the bytes of `root`, if any.
  TensorId source = kNone;                   // kView: the tensor looked at.
  TensorId root = kNone;                     // Who owns the bytes; itself unless a view.
  ViewSpec view;                             // kView.
  std::shared_ptr<const Constant> constant;  // kConstant.
  std::shared_ptr<const State> state;        // A version of a state (kState, or made by an update).
  int slice = 0;                             // Of the state.
  int version = 0;  // 0 as the run begins; +1 with each update in the graph.
  bool is_output = false;
};

struct Node {
  std::string name;
  const OpDefinition* op = nullptr;
  std::vector<TensorId> inputs;    // kNone for an absent optional input.
  std::vector<double> attributes;  // Parallel to op->attributes.
  TensorId output = kNone;
};

struct Symbol {
  std::string name;
  int64_t upper = 0;  // The largest value that any run may use.
};

class Graph {
 public:
  std::span<const Tensor> tensors() const { return tensors_; }
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Symbol> symbols() const { return symbols_; }
  std::span<const std::string> symbol_names() const { return symbol_names_; }
  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  // Inputs and outputs in the order in which they were declared.
  std::span<const TensorId> inputs() const { return inputs_; }
  std::span<const TensorId> outputs() const { return outputs_; }
  std::optional<TensorId> Find(std::string_view tensor_name) const;  // Linear.
  std::optional<SymbolIndex> FindSymbol(std::string_view name) const;

 private:
  friend class GraphBuilder;
  std::vector<Tensor> tensors_;
  std::vector<Node> nodes_;
  std::vector<Symbol> symbols_;
  std::vector<std::string> symbol_names_;
  std::vector<TensorId> inputs_, outputs_;
};

// Where a tensor's elements are, at given symbol values, within the bytes of an ancestor (its
// root, or any tensor on the way there) that is itself laid out as `base`.
struct Placed {
  Layout layout;
  int64_t offset = 0;  // Bytes from the ancestor's first element.
};
Placed PlaceWithin(const Graph& graph, TensorId tensor, TensorId ancestor, const Layout& base,
                   std::span<const int64_t> symbols);

// Layout of a root tensor itself: packed; for a state, that of its slice.
Layout RootLayout(const Graph& graph, TensorId root, std::span<const int64_t> symbols);

}  // namespace tandem
