// The host's memory: what the CPU computes in, and what other devices may read in place.
//
// Buffers are 64-byte aligned; all but small ones lie on huge pages (huge_pages.h). Counters hold
// the bytes that were asked for. Thread safe.
#pragma once

#include <mutex>

#include "backends/cpu/huge_pages.h"
#include "backends/device.h"

namespace tandem::cpu {

class HostMemory final : public Memory {
 public:
  HostMemory();
  std::string_view name() const override { return "host"; }
  MemoryProperties properties() const override;
  MemoryCounters counters() const override;
  Result<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;
  Result<std::unique_ptr<Buffer>> Import(const std::byte* data, int64_t bytes,
                                         std::shared_ptr<const void> owner) override;

 private:
  class HostBuffer;
  std::byte* Take(int64_t bytes);
  void Release(std::byte* owned, int64_t live_bytes);

  const int64_t capacity_;  // The machine's memory.
  HugePages huge_pages_;
  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

}  // namespace tandem::cpu
