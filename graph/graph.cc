#include "graph/graph.h"

namespace tandem {
namespace {

int64_t Product(std::span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// What one view does to the layout of what it looks at.
void Apply(const Tensor& view, std::span<const int64_t> symbols, Placed& placed) {
  const Layout source = placed.layout;
  Layout& layout = placed.layout;
  switch (view.view.kind) {
    case ViewSpec::Kind::kSlice: {
      const int dim = view.view.dim;
      const int64_t start = view.view.start.At(symbols);
      const bool is_last = dim == source.rank - 1;
      placed.offset +=
          (is_last ? start / Info(source.type).block_elements : start) * source.strides[dim];
      layout.dims[dim] = view.shape[dim].At(symbols);
      return;
    }
    case ViewSpec::Kind::kPermute:
      for (int i = 0; i < source.rank; ++i) {
        layout.dims[i] = source.dims[view.view.order[i]];
        layout.strides[i] = source.strides[view.view.order[i]];
      }
      return;
    case ViewSpec::Kind::kReshape:
      layout = Bind(view.type, view.shape, symbols);
      return;
  }
}

}  // namespace

int64_t Constant::Bytes() const { return BytesOf(type, Product(dims)); }

int64_t State::SliceBytes() const { return BytesOf(type, Product(dims)); }

std::optional<TensorId> Graph::Find(std::string_view tensor_name) const {
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].name == tensor_name) return static_cast<TensorId>(i);
  return std::nullopt;
}

std::optional<SymbolIndex> Graph::FindSymbol(std::string_view name) const {
  for (size_t i = 0; i < symbols_.size(); ++i)
    if (symbols_[i].name == name) return static_cast<SymbolIndex>(i);
  return std::nullopt;
}

Placed PlaceWithin(const Graph& graph, TensorId tensor, TensorId ancestor, const Layout& base,
                   std::span<const int64_t> symbols) {
  // Links lead up, but views apply from the ancestor down. Gathering many at once keeps the stack
  // small for chains of any length that fit in memory.
  constexpr int kAtOnce = 64;
  std::array<const Tensor*, kAtOnce> views;
  int count = 0;
  TensorId id = tensor;
  for (; id != ancestor && count < kAtOnce; id = views[count++]->source)
    views[count] = &graph.tensor(id);
  Placed placed =
      id == ancestor ? Placed{base, 0} : PlaceWithin(graph, id, ancestor, base, symbols);
  while (count > 0) Apply(*views[--count], symbols, placed);
  return placed;
}

Layout RootLayout(const Graph& graph, TensorId root, std::span<const int64_t> symbols) {
  const Tensor& tensor = graph.tensor(root);
  return Bind(tensor.type, tensor.shape, symbols);
}

}  // namespace tandem
