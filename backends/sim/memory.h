// The memory of a simulated device: poisoned when allocated and when freed, capped, and hidden
// from the host unless it is said to be readable.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backends/sim/faults.h"
#include "backends/sim/sim.h"

namespace tandem::sim {

// A NaN in every float type, -1 in every integer type, and a NaN scale in every block type.
inline constexpr uint8_t kPoison = 0xFF;

class SimMemory final : public Memory {
 public:
  SimMemory(const SimOptions& options, std::string name, Faults& faults);

  std::string_view name() const override { return name_; }
  MemoryProperties properties() const override { return properties_; }
  MemoryCounters counters() const override;
  Result<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;

  bool declines_copies() const { return declines_copies_; }
  void Release(int64_t bytes);  // By a buffer that goes away.

 private:
  const std::string name_;
  const MemoryProperties properties_;
  const bool declines_copies_;
  Faults& faults_;
  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

class SimBuffer final : public Buffer {
 public:
  SimBuffer(SimMemory& memory, std::byte* data, int64_t bytes)
      : memory_(memory), data_(data), bytes_(bytes) {}
  ~SimBuffer() override;
  SimBuffer(const SimBuffer&) = delete;
  SimBuffer& operator=(const SimBuffer&) = delete;

  SimMemory& memory() const override { return memory_; }
  int64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return memory_.properties().host_access ? data_ : nullptr; }
  std::byte* data() const { return data_; }  // For simulated devices only.

 private:
  SimMemory& memory_;
  std::byte* const data_;
  const int64_t bytes_;
};

}  // namespace tandem::sim
