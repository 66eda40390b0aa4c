// A tensor seen as rows of its last dimension, decoded to and encoded from double. Any strides.
#pragma once

#include <vector>

#include "graph/op.h"

namespace tandem::reference {

// Counts through the dimensions of a layout but for the last `inner`, in row-major order.
class RowCounter {
 public:
  explicit RowCounter(const Layout& layout, int inner = 1);
  bool AtEnd() const { return left_ == 0; }
  void Next();
  std::span<const int64_t> index() const { return {index_.data(), static_cast<size_t>(rank_)}; }

 private:
  std::array<int64_t, kMaxRank> index_{}, dims_{};
  int rank_ = 0;
  int64_t left_ = 1;
};

// Bytes from the first element to that at `index`, which may leave out trailing dimensions.
int64_t OffsetAt(const Layout& layout, std::span<const int64_t> index);

// The row that begins `offset` bytes into the tensor: as many elements as its last dimension.
void ReadRow(const HostTensor& tensor, int64_t offset, std::vector<double>& row);
void WriteRow(const HostTensor& tensor, int64_t offset, const std::vector<double>& row);

// The entry of a tensor of I32 or I64 that is `offset` bytes from its first.
int64_t ReadId(const HostTensor& ids, int64_t offset);

}  // namespace tandem::reference
