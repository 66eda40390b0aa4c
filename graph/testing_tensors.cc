#include "graph/testing_tensors.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace tandem::testing_tensors {
namespace {

constexpr std::byte kGap{0xFF};  // Not a number where it is read as a float or half.

// Calls f with each index in row-major order.
template <class F>
void ForEachIndex(const Layout& layout, F&& f) {
  std::array<int64_t, kMaxRank> index{};
  for (int64_t left = layout.Elements(); left > 0; --left) {
    f(std::span<const int64_t>(index.data(), static_cast<size_t>(layout.rank)));
    for (int i = layout.rank - 1; i >= 0; --i) {
      if (++index[i] < layout.dims[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace

TestTensor::TestTensor(Type type, std::vector<int64_t> dims, Storage storage)
    : layout_(Contiguous(type, dims)) {
  const TypeInfo& info = Info(type);
  std::vector<int> order(static_cast<size_t>(layout_.rank));  // Innermost first.
  std::iota(order.rbegin(), order.rend(), 0);
  if (storage == Storage::kReversed)
    std::reverse(order.begin() + (info.is_block ? 1 : 0), order.end());
  const int64_t gap = storage == Storage::kPadded ? 2 * info.block_bytes : 0;
  int64_t step = info.block_bytes + gap;
  for (const int i : order) {
    layout_.strides[i] = step;
    const int64_t count = i == layout_.rank - 1 ? dims[i] / info.block_elements : dims[i];
    step = step * count + gap;
  }
  bytes_.assign(static_cast<size_t>(layout_.SpanBytes()), kGap);
}

int64_t TestTensor::OffsetOf(std::span<const int64_t> index) const {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    const bool is_last = i + 1 == index.size();
    offset +=
        (is_last ? index[i] / Info(layout_.type).block_elements : index[i]) * layout_.strides[i];
  }
  return offset;
}

TestTensor& TestTensor::Set(const std::vector<double>& values) {
  const TypeInfo& info = Info(layout_.type);
  size_t i = 0;
  ForEachIndex(layout_, [&](std::span<const int64_t> index) {
    if (index.empty() || index.back() % info.block_elements == 0)
      info.encode(values.data() + i, 1, bytes_.data() + OffsetOf(index));
    ++i;
  });
  return *this;
}

TestTensor& TestTensor::Random(uint64_t seed, double low, double high) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> numbers(low, high);
  std::vector<double> values(static_cast<size_t>(layout_.Elements()));
  for (double& value : values) value = numbers(random);
  return Set(values);
}

double TestTensor::At(std::initializer_list<int64_t> index) const {
  const TypeInfo& info = Info(layout_.type);
  std::vector<double> block(static_cast<size_t>(info.block_elements));
  const std::span<const int64_t> at(index.begin(), index.size());
  info.decode(bytes_.data() + OffsetOf(at), 1, block.data());
  return at.empty() ? block[0] : block[static_cast<size_t>(at.back() % info.block_elements)];
}

std::vector<double> TestTensor::Values() const {
  const TypeInfo& info = Info(layout_.type);
  std::vector<double> values, block(static_cast<size_t>(info.block_elements));
  ForEachIndex(layout_, [&](std::span<const int64_t> index) {
    info.decode(bytes_.data() + OffsetOf(index), 1, block.data());
    values.push_back(
        index.empty() ? block[0] : block[static_cast<size_t>(index.back() % info.block_elements)]);
  });
  return values;
}

bool TestTensor::GapsAreUntouched() const {
  std::vector<std::byte> rest = bytes_;
  ForEachIndex(layout_, [&](std::span<const int64_t> index) {
    std::fill_n(rest.begin() + OffsetOf(index), Info(layout_.type).block_bytes, kGap);
  });
  return std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == kGap; });
}

HostTensor TestTensor::host() { return {layout_, bytes_.empty() ? nullptr : bytes_.data()}; }

HostTensor Absent() { return {Contiguous(Type::kF32, std::array<int64_t, 1>{0}), nullptr}; }

Result<void> RunReference(const OpDefinition& op, std::span<const HostTensor> inputs,
                          const HostTensor& output, std::initializer_list<double> attributes) {
  std::vector<double> values;
  for (const AttributeSpec& attribute : op.attributes) values.push_back(attribute.value);
  std::copy(attributes.begin(), attributes.end(), values.begin());
  return op.reference(inputs, output, values);
}

}  // namespace tandem::testing_tensors
