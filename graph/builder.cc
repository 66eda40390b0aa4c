#include "graph/builder.h"

#include <algorithm>

namespace tandem {
namespace {

// The size at the symbol's upper bound, or nothing if it is negative or does not fit.
std::optional<int64_t> MostOf(Dim dim, std::span<const Symbol> symbols) {
  int64_t size = dim.factor;
  if (size < 0) return std::nullopt;
  if (!dim.IsConstant() && __builtin_mul_overflow(size, symbols[dim.symbol].upper, &size))
    return std::nullopt;
  return size;
}

// Whether bytes and strides fit 63 bits at the symbols' upper bounds and no size is negative. Zero
// sizes count as one: the strides of the dimensions inside them must fit too.
bool Fits(Type type, const Shape& shape, std::span<const Symbol> symbols) {
  int64_t bytes = Info(type).block_bytes;
  for (int i = 0; i < shape.rank; ++i) {
    const std::optional<int64_t> most = MostOf(shape[i], symbols);
    if (!most) return false;
    // A symbol that is always zero has a factor all the same, which must not overflow elsewhere.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>({*most, shape[i].factor, 1}), &bytes))
      return false;
  }
  return true;
}

bool IsSymbolOf(Dim dim, std::span<const Symbol> symbols) {
  return dim.IsConstant() ||
         (dim.symbol >= 0 && dim.symbol < static_cast<SymbolIndex>(symbols.size()));
}

// Why a part of a dimension can not be taken; nothing if it can. With symbols the end is at most
// the sum of the bounds, or is inside at any value because start, size and whole share one symbol.
std::optional<std::string> SliceProblem(Dim whole, Dim start, Dim size,
                                        std::span<const Symbol> symbols) {
  const std::optional<int64_t> first = MostOf(start, symbols), count = MostOf(size, symbols);
  if (!first || !count) return "negative or too large";
  if (whole.IsConstant()) {
    if (*count <= whole.factor && *first <= whole.factor - *count) return std::nullopt;
    return fmt::format("{} from {} on are not inside {}", *count, *first, whole.factor);
  }
  const auto shares = [&](Dim dim) { return dim.symbol == whole.symbol || dim == Dim(0); };
  if (!shares(start) || !shares(size))
    return "a part of a dimension with a symbol must be sized by that symbol";
  if (size.factor <= whole.factor && start.factor <= whole.factor - size.factor)
    return std::nullopt;
  return fmt::format("{} from {} on are not inside {} of the symbol", size.factor, start.factor,
                     whole.factor);
}

// The number of elements as a constant and sorted symbols, for comparing.
struct ElementCount {
  int64_t factor = 1;
  std::vector<SymbolIndex> symbols;
  bool operator==(const ElementCount&) const = default;
};
ElementCount CountElements(const Shape& shape) {
  ElementCount count;
  for (int i = 0; i < shape.rank; ++i) {
    count.factor *= shape[i].factor;
    if (!shape[i].IsConstant()) count.symbols.push_back(shape[i].symbol);
  }
  std::sort(count.symbols.begin(), count.symbols.end());
  if (count.factor == 0) count.symbols.clear();
  return count;
}

}  // namespace

tl::unexpected<Error> GraphBuilder::Stick(Error error) {
  if (!error_) error_ = std::move(error);
  return tl::unexpected<Error>(*error_);
}

Dim GraphBuilder::Symbol(std::string_view name, int64_t upper) {
  if (upper < 0)
    Stick({ErrorCode::kInvalid, fmt::format("symbol {}: upper bound {} is negative", name, upper)});
  for (size_t i = 0; i < graph_.symbols_.size(); ++i) {
    tandem::Symbol& known = graph_.symbols_[i];
    if (known.name != name) continue;
    if (upper > known.upper) {
      known.upper = upper;
      CheckAgain();
    }
    return Dim::Of(static_cast<SymbolIndex>(i));
  }
  graph_.symbols_.push_back({std::string(name), upper});
  graph_.symbol_names_.emplace_back(name);
  return Dim::Of(static_cast<SymbolIndex>(graph_.symbols_.size() - 1));
}

void GraphBuilder::CheckAgain() {
  for (const Tensor& tensor : graph_.tensors_) {
    if (!Fits(tensor.type, tensor.shape, graph_.symbols_))
      Stick({ErrorCode::kInvalid,
             fmt::format("tensor {}: {} is too large at a symbol's new bound", tensor.name,
                         ToString(tensor.shape, graph_.symbol_names_))});
    if (tensor.kind != TensorKind::kView || tensor.view.kind != ViewSpec::Kind::kSlice) continue;
    const Tensor& from = graph_.tensors_[tensor.source];
    if (const auto why = SliceProblem(from.shape[tensor.view.dim], tensor.view.start,
                                      tensor.shape[tensor.view.dim], graph_.symbols_))
      Stick({ErrorCode::kInvalid,
             fmt::format("slice of {} {}, dimension {}, at a symbol's new bound: {}", from.name,
                         ToString(from.shape, graph_.symbol_names_), tensor.view.dim, *why)});
  }
}

Result<TensorId> GraphBuilder::AddTensor(Tensor tensor) {
  const TypeInfo& info = Info(tensor.type);
  const Shape& shape = tensor.shape;
  if (shape.rank < 0 || shape.rank > kMaxRank)
    return Stick({ErrorCode::kInvalid, fmt::format("tensor {}: rank {} is not 0 to {}", tensor.name,
                                                   shape.rank, kMaxRank)});
  for (int i = 0; i < shape.rank; ++i)
    if (!IsSymbolOf(shape[i], graph_.symbols_))
      return Stick(
          {ErrorCode::kInvalid,
           fmt::format("tensor {}: dimension {} has a symbol of another builder", tensor.name, i)});
  const Dim last = shape.Last();
  if (info.is_block && (!last.IsConstant() || last.factor % info.block_elements != 0))
    return Stick(
        {ErrorCode::kInvalid,
         fmt::format("tensor {}: the last dimension of {} {} is no multiple of {}", tensor.name,
                     info.name, ToString(shape, graph_.symbol_names_), info.block_elements)});
  if (!Fits(tensor.type, shape, graph_.symbols_))
    return Stick(
        {ErrorCode::kInvalid, fmt::format("tensor {}: {} is negative or too large", tensor.name,
                                          ToString(shape, graph_.symbol_names_))});
  const auto id = static_cast<TensorId>(graph_.tensors_.size());
  if (tensor.root == kNone) tensor.root = id;
  graph_.tensors_.push_back(std::move(tensor));
  return id;
}

Result<TensorId> GraphBuilder::Input(std::string_view name, Type type, const Shape& shape) {
  if (error_) return tl::unexpected<Error>(*error_);
  Tensor tensor;
  tensor.name = name;
  tensor.type = type;
  tensor.kind = TensorKind::kInput;
  tensor.shape = shape;
  const Result<TensorId> id = AddTensor(std::move(tensor));
  if (id) graph_.inputs_.push_back(*id);
  return id;
}

TensorId GraphBuilder::Use(std::shared_ptr<const Constant> constant) {
  if (error_) return kNone;
  if (constant == nullptr) {
    Stick({ErrorCode::kInvalid, "a constant to use is null"});
    return kNone;
  }
  const auto known = constants_.find(constant.get());
  if (known != constants_.end()) return known->second;
  Tensor tensor;
  tensor.name = constant->name;
  tensor.type = constant->type;
  tensor.kind = TensorKind::kConstant;
  tensor.shape.rank = static_cast<int>(constant->dims.size());
  for (size_t i = 0; i < std::min<size_t>(constant->dims.size(), kMaxRank); ++i)
    tensor.shape[static_cast<int>(i)] = constant->dims[i];
  const void* key = constant.get();
  tensor.constant = std::move(constant);
  const Result<TensorId> id = AddTensor(std::move(tensor));
  if (!id) return kNone;
  constants_.emplace(key, *id);
  return *id;
}

Result<TensorId> GraphBuilder::Use(std::shared_ptr<const State> state, int slice) {
  if (error_) return tl::unexpected<Error>(*error_);
  if (state == nullptr) return Stick({ErrorCode::kInvalid, "a state to use is null"});
  if (slice < 0 || slice >= state->slices)
    return Stick({ErrorCode::kInvalid, fmt::format("state {}: there is no slice {} of {}",
                                                   state->name, slice, state->slices)});
  for (const Slot& slot : slots_)
    if (slot.state == state.get() && slot.slice == slice) {
      if (graph_.tensors_[slot.current].version == 0) return slot.current;
      return Stick({ErrorCode::kInvalid,
                    fmt::format("state {} slice {}: version 0 is overwritten; use version {}",
                                state->name, slice, graph_.tensors_[slot.current].version)});
    }
  Tensor tensor;
  tensor.name = fmt::format("{}[{}]", state->name, slice);
  tensor.type = state->type;
  tensor.kind = TensorKind::kState;
  tensor.shape.rank = static_cast<int>(state->dims.size());
  for (size_t i = 0; i < std::min<size_t>(state->dims.size(), kMaxRank); ++i)
    tensor.shape[static_cast<int>(i)] = state->dims[i];
  tensor.slice = slice;
  const State* key = state.get();
  tensor.state = std::move(state);
  const Result<TensorId> id = AddTensor(std::move(tensor));
  if (id) slots_.push_back({key, slice, *id});
  return id;
}

Result<void> GraphBuilder::Usable(TensorId id, std::string_view what) {
  if (error_) return tl::unexpected<Error>(*error_);
  if (id < 0 || id >= static_cast<TensorId>(graph_.tensors_.size()))
    return Stick(
        {ErrorCode::kInvalid, fmt::format("{}: tensor {} is not in this graph", what, id)});
  const Tensor& root = graph_.tensors_[graph_.tensors_[id].root];
  if (root.state == nullptr) return {};
  for (const Slot& slot : slots_) {
    if (slot.state != root.state.get() || slot.slice != root.slice) continue;
    const int newest = graph_.tensors_[slot.current].version;
    if (root.version == newest) return {};
    return Stick(
        {ErrorCode::kInvalid,
         fmt::format("{}: version {} of state {} slice {} is overwritten; the newest is {}", what,
                     root.version, root.state->name, root.slice, newest)});
  }
  return {};
}

Result<TensorId> GraphBuilder::Add(const OpDefinition& op, std::initializer_list<TensorId> inputs,
                                   std::initializer_list<Attribute> attributes,
                                   std::string_view name) {
  if (error_) return tl::unexpected<Error>(*error_);
  Node node;
  node.name =
      name.empty() ? fmt::format("{}_{}", op.name, graph_.nodes_.size()) : std::string(name);
  node.op = &op;
  node.inputs.assign(inputs.begin(), inputs.end());
  const std::string what = fmt::format("{} {}", op.name, node.name);
  const int all = op.required_inputs + op.optional_inputs;
  if (op.infer == nullptr || op.required_inputs < 0 || op.optional_inputs < 0 ||
      op.state_input >= op.required_inputs || op.in_place_input >= all)
    return Stick(
        {ErrorCode::kInvalid,
         fmt::format("{}: the definition of the op has no shape rule, or numbers of inputs "
                     "that do not fit",
                     what)});
  const auto most = static_cast<size_t>(all);
  if (inputs.size() < static_cast<size_t>(op.required_inputs) || inputs.size() > most)
    return Stick({ErrorCode::kInvalid, fmt::format("{}: {} inputs, but it takes {} to {}", what,
                                                   inputs.size(), op.required_inputs, most)});
  node.inputs.resize(most, kNone);
  for (const AttributeSpec& attribute : op.attributes) node.attributes.push_back(attribute.value);
  for (const Attribute& attribute : attributes) {
    if (attribute.index < 0 || attribute.index >= static_cast<int>(node.attributes.size()))
      return Stick({ErrorCode::kInvalid,
                    fmt::format("{}: there is no attribute {}", what, attribute.index)});
    node.attributes[static_cast<size_t>(attribute.index)] = attribute.value;
  }

  std::vector<OpInput> given(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    given[i].present = node.inputs[i] != kNone || i < static_cast<size_t>(op.required_inputs);
    if (!given[i].present) continue;
    TANDEM_CHECK(Usable(node.inputs[i], what));
    given[i].type = graph_.tensors_[node.inputs[i]].type;
    given[i].shape = graph_.tensors_[node.inputs[i]].shape;
  }
  Result<OpOutput> inferred = op.infer({given, node.attributes, graph_.symbol_names_});
  if (!inferred)
    return Stick({inferred.error().code, fmt::format("{}: {}", what, inferred.error().message)});

  Tensor output;
  output.name = node.name;
  output.type = inferred->type;
  output.shape = inferred->shape;
  output.producer = static_cast<NodeId>(graph_.nodes_.size());
  const auto describe = [&](const Tensor& tensor) {
    return fmt::format("{} {}", Info(tensor.type).name,
                       ToString(tensor.shape, graph_.symbol_names_));
  };
  if (op.in_place_input >= 0 && given[static_cast<size_t>(op.in_place_input)].present) {
    const Tensor& old = graph_.tensors_[node.inputs[static_cast<size_t>(op.in_place_input)]];
    if (output.type != old.type || output.shape != old.shape)
      return Stick({ErrorCode::kInvalid, fmt::format("{}: makes {} in place of {} {}", what,
                                                     describe(output), old.name, describe(old))});
  }
  Slot* slot = nullptr;
  if (op.state_input >= 0) {
    const TensorId input = node.inputs[static_cast<size_t>(op.state_input)];
    const Tensor& old = graph_.tensors_[input];
    if (old.kind == TensorKind::kView || old.state == nullptr)
      return Stick(
          {ErrorCode::kInvalid, fmt::format("{}: {} is no version of a state", what, old.name)});
    if (output.type != old.type || output.shape != old.shape)
      return Stick({ErrorCode::kInvalid, fmt::format("{}: makes {} of state {} {}", what,
                                                     describe(output), old.name, describe(old))});
    // What an op reads must not change under its hands.
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId other = node.inputs[i];
      if (static_cast<int>(i) == op.state_input || other == kNone ||
          graph_.tensors_[other].root != input)
        continue;
      return Stick({ErrorCode::kInvalid,
                    fmt::format("{}: {} shares bytes with {}, which it updates; copy it first",
                                what, graph_.tensors_[other].name, old.name)});
    }
    output.state = old.state;
    output.slice = old.slice;
    output.version = old.version + 1;
    for (Slot& candidate : slots_)
      if (candidate.state == old.state.get() && candidate.slice == old.slice) slot = &candidate;
  }
  TANDEM_ASSIGN(node.output, AddTensor(std::move(output)));
  if (slot != nullptr) slot->current = node.output;
  graph_.nodes_.push_back(std::move(node));
  return graph_.nodes_.back().output;
}

Result<TensorId> GraphBuilder::AddView(TensorId source, ViewSpec view, const Shape& shape,
                                       std::string_view name) {
  const Tensor& from = graph_.tensors_[source];
  Tensor tensor;
  // After the root, not the source: names of long chains must not grow.
  tensor.name =
      name.empty() ? fmt::format("{} (view)", graph_.tensors_[from.root].name) : std::string(name);
  tensor.type = from.type;
  tensor.kind = TensorKind::kView;
  tensor.shape = shape;
  tensor.producer = from.producer;
  tensor.source = source;
  tensor.root = from.root;
  tensor.view = view;
  tensor.state = from.state;
  tensor.slice = from.slice;
  tensor.version = from.version;
  return AddTensor(std::move(tensor));
}

Result<TensorId> GraphBuilder::Slice(TensorId source, int dim, Dim start, Dim size,
                                     std::string_view name) {
  TANDEM_CHECK(Usable(source, "slice"));
  const Tensor& from = graph_.tensors_[source];
  const auto wrong = [&](std::string_view why) {
    return Stick(
        {ErrorCode::kInvalid, fmt::format("slice of {} {}, dimension {}: {}", from.name,
                                          ToString(from.shape, graph_.symbol_names_), dim, why)});
  };
  if (dim < 0 || dim >= from.shape.rank) return wrong("there is no such dimension");
  if (!IsSymbolOf(start, graph_.symbols_) || !IsSymbolOf(size, graph_.symbols_))
    return wrong("a symbol of another builder");
  if (const auto why = SliceProblem(from.shape[dim], start, size, graph_.symbols_))
    return wrong(*why);
  const TypeInfo& info = Info(from.type);
  if (info.is_block && dim == from.shape.rank - 1 &&
      (start.factor % info.block_elements != 0 || size.factor % info.block_elements != 0))
    return wrong(
        fmt::format("{} can be cut only at multiples of {}", info.name, info.block_elements));
  ViewSpec view;
  view.kind = ViewSpec::Kind::kSlice;
  view.dim = dim;
  view.start = start;
  Shape shape = from.shape;
  shape[dim] = size;
  return AddView(source, view, shape, name);
}

Result<TensorId> GraphBuilder::Permute(TensorId source, std::initializer_list<int> order,
                                       std::string_view name) {
  TANDEM_CHECK(Usable(source, "permute"));
  const Tensor& from = graph_.tensors_[source];
  const auto wrong = [&](std::string_view why) {
    return Stick({ErrorCode::kInvalid, fmt::format("permute of {} {} by [{}]: {}", from.name,
                                                   ToString(from.shape, graph_.symbol_names_),
                                                   fmt::join(order, ", "), why)});
  };
  if (static_cast<int>(order.size()) != from.shape.rank) return wrong("not one index a dimension");
  ViewSpec view;
  view.kind = ViewSpec::Kind::kPermute;
  Shape shape = from.shape;
  std::array<bool, kMaxRank> seen{};
  int i = 0;
  for (const int index : order) {
    if (index < 0 || index >= from.shape.rank || seen[index]) return wrong("no permutation");
    seen[index] = true;
    view.order[i] = static_cast<int8_t>(index);
    shape[i++] = from.shape[index];
  }
  if (Info(from.type).is_block && view.order[from.shape.rank - 1] != from.shape.rank - 1)
    return wrong(fmt::format("the last dimension of {} can not move", Info(from.type).name));
  return AddView(source, view, shape, name);
}

bool GraphBuilder::IsContiguous(TensorId id) const {
  const Tensor* tensor = &graph_.tensors_[id];
  const Shape& shape = tensor->shape;
  for (int i = 0; i < shape.rank; ++i)
    if (shape[i].factor == 0) return true;
  // Every view on the way to the root must keep it contiguous; a reshape was checked already.
  for (; tensor->kind == TensorKind::kView && tensor->view.kind != ViewSpec::Kind::kReshape;
       tensor = &graph_.tensors_[tensor->source]) {
    if (tensor->view.kind == ViewSpec::Kind::kSlice) {
      // Whole, or all outer dimensions are single.
      if (tensor->shape == graph_.tensors_[tensor->source].shape) continue;
      for (int i = 0; i < tensor->view.dim; ++i)
        if (tensor->shape[i] != Dim(1)) return false;
      continue;
    }
    // Dimensions that are not single keep their order.
    int last = -1;
    for (int i = 0; i < tensor->shape.rank; ++i) {
      if (tensor->shape[i] == Dim(1)) continue;
      if (tensor->view.order[i] < last) return false;
      last = tensor->view.order[i];
    }
  }
  return true;
}

Result<TensorId> GraphBuilder::Reshape(TensorId source, const Shape& shape, std::string_view name) {
  TANDEM_CHECK(Usable(source, "reshape"));
  const Tensor& from = graph_.tensors_[source];
  const auto wrong = [&](std::string_view why) {
    return Stick({ErrorCode::kInvalid, fmt::format("reshape of {} {} to {}: {}", from.name,
                                                   ToString(from.shape, graph_.symbol_names_),
                                                   ToString(shape, graph_.symbol_names_), why)});
  };
  if (shape.rank < 0 || shape.rank > kMaxRank)
    return wrong(fmt::format("rank {} is not 0 to {}", shape.rank, kMaxRank));
  for (int i = 0; i < shape.rank; ++i)
    if (!IsSymbolOf(shape[i], graph_.symbols_)) return wrong("a symbol of another builder");
  if (!Fits(from.type, shape, graph_.symbols_)) return wrong("negative or too large");
  if (CountElements(from.shape) != CountElements(shape)) return wrong("other number of elements");
  if (!IsContiguous(source)) return wrong("not contiguous; copy it first");
  ViewSpec view;
  view.kind = ViewSpec::Kind::kReshape;
  return AddView(source, view, shape, name);
}

Result<void> GraphBuilder::Output(TensorId tensor) {
  TANDEM_CHECK(Usable(tensor, "output"));
  Tensor& output = graph_.tensors_[tensor];
  if (output.is_output) return {};
  output.is_output = true;
  graph_.outputs_.push_back(tensor);
  return {};
}

Result<std::shared_ptr<const Graph>> GraphBuilder::Build() && {
  // Outputs are read after the run: an update that follows their declaration overwrites them.
  for (const TensorId output : graph_.outputs_) TANDEM_CHECK(Usable(output, "output"));
  if (error_) return tl::unexpected<Error>(*error_);
  return std::make_shared<const Graph>(std::move(graph_));
}

}  // namespace tandem
