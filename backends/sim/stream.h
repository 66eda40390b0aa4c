// The stream of a simulated device: a queue with a thread of its own, or none if synchronous.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "backends/sim/faults.h"
#include "backends/sim/memory.h"
#include "backends/sim/timeline.h"

namespace tandem::sim {

// Counted by streams as they do the work, read by anybody.
struct LiveCounters {
  std::atomic<int64_t> kernels{0}, copies{0}, bytes_in{0}, bytes_out{0}, bytes_within{0}, fills{0},
      handovers{0};
};

class SimStream final : public Stream {
 public:
  // What it refers to outlives it.
  SimStream(Device& device, SimMemory& memory, const SimOptions& options, Faults& faults,
            LiveCounters& counters);
  ~SimStream() override;

  Device& device() const override { return device_; }
  Result<void> Run(std::span<const KernelCall> calls) override;
  Result<void> Copy(const CopyCall& call) override;
  using Stream::Fill;
  Result<void> Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) override;
  uint64_t Record() override;
  Result<void> Wait(Stream& other, uint64_t point) override;
  Result<bool> Reached(uint64_t point) override { return timeline_.Reached(point); }
  Result<void> Synchronize(uint64_t point) override;
  void OnReached(uint64_t point, std::function<void(const Result<void>&)> done) override {
    timeline_.OnReached(point, std::move(done));
  }
  void Reset() override;

 private:
  // A command returns the error with which the stream fails.
  struct Command {
    std::function<Result<void>()> work;  // Skipped after a failure...
    uint64_t point = 0;                  // ...but points, where not 0, are reached.
  };

  void Enqueue(Command command);
  void Execute(Command& command);
  void Loop();

  Result<void> CheckCall(const KernelCall& call) const;
  Result<void> CheckArgument(const KernelCall& call, const TensorArg& argument,
                             std::string_view what, bool written, bool may_be_absent) const;
  Result<void> RunCall(const KernelCall& call);
  // The bytes, for a copy or a fill; kUnsupported where this device does not reach them.
  Result<std::byte*> Reach(Buffer& buffer) const;
  bool IsOwn(const Buffer& buffer) const { return &buffer.memory() == &memory_; }

  Device& device_;
  SimMemory& memory_;
  const SimOptions& options_;
  Faults& faults_;
  LiveCounters& counters_;
  Timeline timeline_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> queue_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;  // Last: it uses the rest.
};

}  // namespace tandem::sim
