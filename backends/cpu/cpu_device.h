// The one device of the CPU backend.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/cpu_stream.h"
#include "backends/cpu/host_memory.h"
#include "backends/device.h"

namespace tandem::cpu {

class CpuDevice final : public Device {
 public:
  // `threads` as in CpuOptions, not negative.
  CpuDevice(const Simd& simd, int threads);

  std::string_view name() const override { return "cpu:0"; }
  DeviceProperties properties() const override;
  Memory& memory() override { return memory_; }
  Access AccessTo(const Memory& memory) const override;
  Result<KernelChoice> FindKernel(const KernelQuery& query) const override;
  Result<void> Pack(const WeightLayout& layout, Type type, std::span<const int64_t> dims,
                    const std::byte* source, std::byte* target) const override;
  Result<std::unique_ptr<Buffer>> AllocatePinned(int64_t bytes) override;
  Result<std::unique_ptr<Stream>> CreateStream() override;
  DeviceCounters counters() const override;

  // From the next batch on; 0 is the default again.
  void SetThreads(int threads);
  int threads() const;

 private:
  struct Cores {
    int usable;         // That this process may run on.
    std::string model;  // Of the processor, if known.
  };
  static Cores FindCores();

  const Cores cores_;
  const int default_threads_;
  const int members_;  // That scratch is made for.
  HostMemory memory_;
  DeviceState state_;
};

}  // namespace tandem::cpu
