#include "backends/sim/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tandem::sim {
namespace {

// More than any host has that simulates a device; sanitizers abort above it.
constexpr int64_t kMostBytes = int64_t{1} << 40;

MemoryProperties PropertiesOf(const SimOptions& options) {
  return {.alignment = options.alignment,
          .largest_buffer = options.largest_buffer,
          .capacity = options.memory,
          .host_access = options.host_readable};
}

}  // namespace

SimMemory::SimMemory(const SimOptions& options, std::string name, Faults& faults)
    : name_(std::move(name)),
      properties_(PropertiesOf(options)),
      declines_copies_(options.declines_copies),
      faults_(faults) {}

MemoryCounters SimMemory::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

Result<std::unique_ptr<Buffer>> SimMemory::Allocate(int64_t bytes) {
  if (auto fault = faults_.Next(SimCall::kAllocate)) {
    fault->message += fmt::format(" ({} bytes)", bytes);
    return tl::unexpected(std::move(*fault));
  }
  if (bytes < 0) return Fail(ErrorCode::kInvalid, "memory {}: {} bytes asked for", name_, bytes);
  if (bytes > properties_.largest_buffer)
    return Fail(ErrorCode::kOutOfMemory,
                "memory {}: {} bytes asked for, but the largest buffer has {}", name_, bytes,
                properties_.largest_buffer);
  std::lock_guard lock(mutex_);
  const int64_t free_bytes = properties_.capacity - counters_.live_bytes;
  if (bytes > free_bytes)
    return Fail(ErrorCode::kOutOfMemory, "memory {}: {} bytes asked for, {} of {} free", name_,
                bytes, free_bytes, properties_.capacity);
  // An empty buffer has an address too: nothing need treat it apart.
  const auto alignment =
      std::max(static_cast<size_t>(properties_.alignment), alignof(std::max_align_t));
  const size_t taken = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  auto* data =
      bytes > kMostBytes ? nullptr : static_cast<std::byte*>(std::aligned_alloc(alignment, taken));
  if (data == nullptr)
    return Fail(ErrorCode::kOutOfMemory,
                "memory {}: {} bytes asked for, which the host that simulates it has not", name_,
                bytes);
  std::memset(data, kPoison, taken);
  ++counters_.allocations;
  counters_.live_bytes += bytes;
  counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.live_bytes);
  return std::make_unique<SimBuffer>(*this, data, bytes);
}

void SimMemory::Release(int64_t bytes) {
  std::lock_guard lock(mutex_);
  ++counters_.frees;
  counters_.live_bytes -= bytes;
}

SimBuffer::~SimBuffer() {
  std::memset(data_, kPoison, static_cast<size_t>(bytes_));
  // Or the compiler drops writes to memory that is about to be freed.
  asm volatile("" : : "r"(data_) : "memory");
  std::free(data_);
  memory_.Release(bytes_);
}

}  // namespace tandem::sim
