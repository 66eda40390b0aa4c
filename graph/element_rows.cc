#include "graph/element_rows.h"

#include <cstring>

namespace tandem::reference {

RowCounter::RowCounter(const Layout& layout, int inner) {
  rank_ = layout.rank > inner ? layout.rank - inner : 0;
  for (int i = 0; i < rank_; ++i) {
    dims_[i] = layout.dims[i];
    left_ *= dims_[i];
  }
}

void RowCounter::Next() {
  --left_;
  for (int i = rank_ - 1; i >= 0; --i) {
    if (++index_[i] < dims_[i]) return;
    index_[i] = 0;
  }
}

int64_t OffsetAt(const Layout& layout, std::span<const int64_t> index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * layout.strides[i];
  return offset;
}

void ReadRow(const HostTensor& tensor, int64_t offset, std::vector<double>& row) {
  const Layout& layout = tensor.layout;
  const TypeInfo& info = Info(layout.type);
  const int64_t elements = layout.rank == 0 ? 1 : layout.dims[layout.rank - 1];
  const int64_t stride = layout.rank == 0 ? info.block_bytes : layout.strides[layout.rank - 1];
  row.resize(static_cast<size_t>(elements));
  const int64_t blocks = elements / info.block_elements;
  const std::byte* source = tensor.data + offset;
  if (stride == info.block_bytes) {
    if (blocks > 0) info.decode(source, blocks, row.data());
    return;
  }
  for (int64_t b = 0; b < blocks; ++b)
    info.decode(source + b * stride, 1, row.data() + b * info.block_elements);
}

void WriteRow(const HostTensor& tensor, int64_t offset, const std::vector<double>& row) {
  const Layout& layout = tensor.layout;
  const TypeInfo& info = Info(layout.type);
  const int64_t stride = layout.rank == 0 ? info.block_bytes : layout.strides[layout.rank - 1];
  const auto blocks = static_cast<int64_t>(row.size()) / info.block_elements;
  if (stride == info.block_bytes) {
    if (blocks > 0) info.encode(row.data(), blocks, tensor.data + offset);
    return;
  }
  for (int64_t b = 0; b < blocks; ++b)
    info.encode(row.data() + b * info.block_elements, 1, tensor.data + offset + b * stride);
}

int64_t ReadId(const HostTensor& ids, int64_t offset) {
  if (ids.layout.type == Type::kI64) {
    int64_t id;
    std::memcpy(&id, ids.data + offset, sizeof id);
    return id;
  }
  int32_t id;
  std::memcpy(&id, ids.data + offset, sizeof id);
  return id;
}

}  // namespace tandem::reference
