// What tests and benchmarks of this package need of a host: its memory, and a stream of another
// device whose points are reached when the test says so.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/device.h"

namespace tandem::opencl {

class FakeHost final : public Memory {
 public:
  std::string_view name() const override { return "host"; }
  MemoryProperties properties() const override { return {.host_access = true}; }
  MemoryCounters counters() const override { return counters_; }
  Result<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    const int64_t taken = (bytes + 64) / 64 * 64;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(taken)));
    return Import(data, bytes, std::shared_ptr<void>(data, std::free));
  }
  Result<std::unique_ptr<Buffer>> Import(const std::byte* data, int64_t bytes,
                                         std::shared_ptr<const void> owner) override {
    ++counters_.allocations;
    return std::make_unique<HostBuffer>(*this, data, bytes, std::move(owner));
  }

 private:
  class HostBuffer final : public Buffer {
   public:
    HostBuffer(Memory& memory, const std::byte* data, int64_t bytes,
               std::shared_ptr<const void> owner)
        : memory_(memory), data_(data), bytes_(bytes), owner_(std::move(owner)) {}
    Memory& memory() const override { return memory_; }
    int64_t bytes() const override { return bytes_; }
    std::byte* host() const override { return const_cast<std::byte*>(data_); }

   private:
    Memory& memory_;
    const std::byte* data_;
    const int64_t bytes_;
    const std::shared_ptr<const void> owner_;
  };
  MemoryCounters counters_;
};

// A device that computes nothing; its streams take no commands.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(Memory& memory) : memory_(memory) {}
  std::string_view name() const override { return "fake:0"; }
  DeviceProperties properties() const override { return {}; }
  Memory& memory() override { return memory_; }
  Access AccessTo(const Memory&) const override { return Access::kNone; }
  Result<KernelChoice> FindKernel(const KernelQuery&) const override { return Declined(); }
  Result<std::unique_ptr<Stream>> CreateStream() override { return Declined(); }
  DeviceCounters counters() const override { return {}; }

 private:
  static tl::unexpected<Error> Declined() { return Fail(ErrorCode::kUnsupported, "fake"); }
  Memory& memory_;
};

class FakeStream final : public Stream {
 public:
  explicit FakeStream(Device& device) : device_(device) {}
  Device& device() const override { return device_; }
  Result<void> Run(std::span<const KernelCall>) override { return {}; }
  Result<void> Copy(const CopyCall&) override { return {}; }
  Result<void> Fill(Buffer&, int64_t, int64_t, uint8_t) override { return {}; }
  uint64_t Record() override { return ++recorded_; }
  Result<void> Wait(Stream&, uint64_t) override { return {}; }
  Result<bool> Reached(uint64_t) override { return outcome_.has_value(); }
  Result<void> Synchronize(uint64_t) override { return outcome_.value_or(Result<void>()); }
  void OnReached(uint64_t, std::function<void(const Result<void>&)> done) override {
    if (outcome_)
      done(*outcome_);
    else
      waiting_.push_back(std::move(done));
  }
  void Reset() override {}

  // All points are reached, now, with this.
  void Reach(const Result<void>& outcome) {
    outcome_ = outcome;
    for (const auto& done : std::exchange(waiting_, {})) done(outcome);
  }
  // Goes without telling anybody, as no stream should.
  void Forget() { waiting_.clear(); }

 private:
  Device& device_;
  uint64_t recorded_ = 0;
  std::optional<Result<void>> outcome_;
  std::vector<std::function<void(const Result<void>&)>> waiting_;
};

}  // namespace tandem::opencl
