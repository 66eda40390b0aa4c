// Tensors for tests of kernels: any type, stored packed, with gaps or with the dimensions in
// another order. Bytes between elements are marked, so that a kernel that writes there is found.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "graph/op.h"

namespace tandem::testing_tensors {

enum class Storage {
  kPacked,
  kPadded,    // A gap after each row and each element (after each block, for block types).
  kReversed,  // The first dimension is innermost (but for the last one of block types).
};
inline constexpr Storage kStorages[] = {Storage::kPacked, Storage::kPadded, Storage::kReversed};

class TestTensor {
 public:
  TestTensor(Type type, std::vector<int64_t> dims, Storage storage = Storage::kPacked);

  TestTensor& Set(const std::vector<double>& values);  // Row-major; rounds to the type.
  TestTensor& Random(uint64_t seed, double low = -1, double high = 1);

  double At(std::initializer_list<int64_t> index) const;
  std::vector<double> Values() const;  // Row-major.
  bool GapsAreUntouched() const;
  HostTensor host();
  const Layout& layout() const { return layout_; }

 private:
  int64_t OffsetOf(std::span<const int64_t> index) const;  // Of the block that holds it.

  Layout layout_;
  std::vector<std::byte> bytes_;
};

// An optional input that was not given.
HostTensor Absent();

// Runs the op's reference kernel, with its default attributes where `attributes` ends.
Result<void> RunReference(const OpDefinition& op, std::span<const HostTensor> inputs,
                          const HostTensor& output, std::initializer_list<double> attributes = {});

}  // namespace tandem::testing_tensors
