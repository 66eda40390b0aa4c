// Builds a Graph. Types, shapes and versions of states are checked while building: a wrong
// shape is an error that names the op and both shapes, at the call that made it.
//
//   GraphBuilder b;
//   Dim tokens = b.Symbol("tokens", 512);
//   TensorId ids = *b.Input("ids", Type::kI32, {tokens});
//   TensorId x = *b.Add(ops::kRows, {b.Use(embedding), ids}, {}, "embed");
//   b.Output(x);
//   Result<std::shared_ptr<const Graph>> graph = std::move(b).Build();
//
// To keep long builders readable, errors stick: a call with a failed id (kNone where a tensor
// is required) or after a failure returns the first error again, so a model builder may check
// only at Build(). Not thread safe.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "graph/graph.h"

namespace tandem {

struct Attribute {
  int index;  // See the enums in ops.h.
  double value;
};

class GraphBuilder {
 public:
  // A named size; asking again with the same name gives the same symbol (and the larger bound).
  Dim Symbol(std::string_view name, int64_t upper);

  Result<TensorId> Input(std::string_view name, Type type, const Shape& shape);
  // Asking twice for the same constant, or the same slice before its first update, gives the
  // same tensor.
  TensorId Use(std::shared_ptr<const Constant> constant);
  Result<TensorId> Use(std::shared_ptr<const State> state, int slice);

  // A node. `inputs` may hold kNone for optional inputs and may leave trailing ones out. The
  // output is named `name`, or after the op. An op with a state input makes the next version;
  // reading (or updating) an older version afterwards is an error.
  Result<TensorId> Add(const OpDefinition& op, std::initializer_list<TensorId> inputs,
                       std::initializer_list<Attribute> attributes = {},
                       std::string_view name = {});

  // Views. They cost nothing at a run.
  Result<TensorId> Slice(TensorId source, int dim, Dim start, Dim size, std::string_view name = {});
  Result<TensorId> Permute(TensorId source, std::initializer_list<int> order,
                           std::string_view name = {});
  // The source must be contiguous (else use ops::kCopy first), the number of elements equal.
  Result<TensorId> Reshape(TensorId source, const Shape& shape, std::string_view name = {});

  // What the caller may read after a run; order of declaration is kept. An input, a constant
  // or a state may be an output too.
  Result<void> Output(TensorId tensor);

  const Tensor& tensor(TensorId id) const { return graph_.tensors_[id]; }

  // The graph, or the first error of any call above.
  Result<std::shared_ptr<const Graph>> Build() &&;

 private:
  tl::unexpected<Error> Stick(Error error);
  void CheckAgain();  // After a symbol's bound has grown.
  Result<void> Usable(TensorId id, std::string_view what);
  Result<TensorId> AddTensor(Tensor tensor);
  Result<TensorId> AddView(TensorId source, ViewSpec view, const Shape& shape,
                           std::string_view name);
  bool IsContiguous(TensorId id) const;

  Graph graph_;
  std::optional<Error> error_;
  std::unordered_map<const void*, TensorId> constants_;
  struct Slot {
    const State* state;
    int slice;
    TensorId current;  // Newest version.
  };
  std::vector<Slot> slots_;
};

}  // namespace tandem
