#include "backends/cpu/host_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace tandem::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmall = int64_t{16} << 10;  // Not worth a huge page.
// Where an empty buffer points, so that host() says "reachable" for it too.
alignas(kAlignment) std::byte empty_buffer[kAlignment];

int64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? pages * page : INT64_MAX;
}

}  // namespace

class HostMemory::HostBuffer final : public Buffer {
 public:
  // `owned` is what the heap gave, or null for imported bytes, which `owner` keeps.
  HostBuffer(HostMemory& memory, std::byte* data, int64_t bytes, std::byte* owned,
             std::shared_ptr<const void> owner)
      : memory_(memory), data_(data), bytes_(bytes), owned_(owned), owner_(std::move(owner)) {}
  ~HostBuffer() override { memory_.Release(owned_, owned_ != nullptr ? bytes_ : 0); }
  Memory& memory() const override { return memory_; }
  int64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return data_; }

 private:
  HostMemory& memory_;
  std::byte* const data_;
  const int64_t bytes_;
  std::byte* const owned_;
  const std::shared_ptr<const void> owner_;
};

HostMemory::HostMemory() : capacity_(PhysicalBytes()) {}

MemoryProperties HostMemory::properties() const {
  return {.alignment = kAlignment,
          .largest_buffer = INT64_MAX,
          .capacity = capacity_,
          .host_access = true};
}

MemoryCounters HostMemory::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

Result<std::unique_ptr<Buffer>> HostMemory::Allocate(int64_t bytes) {
  if (bytes < 0) return Fail(ErrorCode::kInvalid, "memory host: can not allocate {} bytes", bytes);
  {
    std::lock_guard lock(mutex_);
    const int64_t free_bytes = capacity_ - counters_.live_bytes;
    if (bytes > free_bytes)
      return Fail(ErrorCode::kOutOfMemory, "memory host: {} bytes asked for, {} free", bytes,
                  free_bytes);
    counters_.live_bytes += bytes;
  }
  std::byte* data = bytes == 0 ? nullptr : Take(bytes);
  std::lock_guard lock(mutex_);
  if (bytes > 0 && data == nullptr) {
    counters_.live_bytes -= bytes;
    return Fail(ErrorCode::kOutOfMemory, "memory host: {} bytes asked for, the system has none",
                bytes);
  }
  ++counters_.allocations;
  counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.live_bytes);
  return std::make_unique<HostBuffer>(*this, bytes == 0 ? empty_buffer : data, bytes, data,
                                      nullptr);
}

Result<std::unique_ptr<Buffer>> HostMemory::Import(const std::byte* data, int64_t bytes,
                                                   std::shared_ptr<const void> owner) {
  if (bytes < 0 || (data == nullptr && bytes > 0))
    return Fail(ErrorCode::kInvalid, "memory host: can not import {} bytes{}", bytes,
                data == nullptr ? " at null" : "");
  std::lock_guard lock(mutex_);
  ++counters_.allocations;
  // Commands only write what the planner lets them write; imported weights are only read.
  std::byte* start = bytes == 0 ? empty_buffer : const_cast<std::byte*>(data);
  return std::make_unique<HostBuffer>(*this, start, bytes, nullptr, std::move(owner));
}

std::byte* HostMemory::Take(int64_t bytes) {
  if (bytes > kSmall && bytes <= HugePages::kLargest) return huge_pages_.Allocate(bytes);
  const int64_t alignment = bytes <= kSmall ? kAlignment : HugePages::kPage;
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(alignment), static_cast<size_t>(rounded)) != 0)
    return nullptr;
  if (bytes > kSmall) AdviseHugePages(static_cast<std::byte*>(data), rounded);
  return static_cast<std::byte*>(data);
}

void HostMemory::Release(std::byte* owned, int64_t live_bytes) {
  if (owned != nullptr && !(live_bytes > kSmall && huge_pages_.Free(owned))) std::free(owned);
  std::lock_guard lock(mutex_);
  ++counters_.frees;
  counters_.live_bytes -= live_bytes;
}

}  // namespace tandem::cpu
