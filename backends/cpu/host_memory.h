// The host's memory: what the CPU computes in, and what other devices may read in place.
//
// Buffers are 64-byte aligned. Those of several megabytes start at a 2 MB boundary and ask for
// huge pages: streaming a model's weights through 4 KB pages costs a page walk every 64 lines.
// Counters hold the bytes that were asked for. Thread safe.
#pragma once

#include <mutex>

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
  void Release(int64_t live_bytes);

  const int64_t capacity_;  // The machine's memory.
  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

}  // namespace tandem::cpu
