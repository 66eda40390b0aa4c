// The CPU's stream: a thread that takes commands in order.
//
// Every command and every recorded point has a number on the timeline; the thread counts up.
// Waiting for another stream's point is done by this thread, on what that stream tells when it gets
// there: neither the caller waits, nor is the other stream touched later, when it may be gone. The
// thread pauses and yields for some tens of microseconds after its last command, because the next
// token's follow soon, then it sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/device.h"

namespace tandem::cpu {

// What a device and its streams share; all but `simd` and `memory` change while running.
struct DeviceState {
  const Simd* simd = nullptr;
  const Memory* memory = nullptr;
  std::atomic<int> threads{1};
  std::atomic<int64_t> kernels{0}, copies{0}, bytes_in{0}, bytes_out{0}, bytes_within{0}, fills{0},
      handovers{0};
};

class CpuStream final : public Stream {
 public:
  // Both live longer than the stream.
  CpuStream(Device& device, DeviceState& state);
  ~CpuStream() override;

  Device& device() const override { return device_; }
  Result<void> Run(std::span<const KernelCall> calls) override;
  Result<void> Copy(const CopyCall& call) override;
  Result<void> Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) override;
  uint64_t Record() override;
  Result<void> Wait(Stream& other, uint64_t point) override;
  Result<bool> Reached(uint64_t point) override;
  Result<void> Synchronize(uint64_t point) override;
  void OnReached(uint64_t point, std::function<void(const Result<void>&)> done) override;
  void Reset() override;

 private:
  struct FillCall {
    std::byte* start;
    int64_t bytes;
    uint8_t value;
  };
  // The outcome of another stream's point, once it is there.
  struct Awaited {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<void>> outcome;
  };
  struct WaitCall {
    std::shared_ptr<Awaited> awaited;
  };
  struct Mark {};
  using Command = std::variant<std::span<const KernelCall>, CopyCall, FillCall, WaitCall, Mark>;
  struct Callback {
    uint64_t point;
    std::function<void(const Result<void>&)> done;
  };

  uint64_t Push(Command command);
  // Under mutex_. A point that nobody recorded counts as reached.
  bool IsReached(uint64_t point) const { return point > last_ || reached_ >= point; }
  Result<void> Outcome(uint64_t point) const;  // Of a reached point.
  void Loop();
  bool AwaitCommands();  // False: the stream is being destroyed and nothing is left.
  void Finish(uint64_t number, Result<void> result);
  Result<void> Execute(const Command& command);
  Result<void> Execute(std::span<const KernelCall> calls);
  Result<void> Execute(const CopyCall& call);
  Result<void> Execute(const FillCall& call);
  static Result<void> Execute(const WaitCall& call);

  Device& device_;
  DeviceState& state_;
  Team team_;
  RopeTable rope_;

  mutable std::mutex mutex_;
  std::condition_variable commands_arrived_, points_reached_;
  std::vector<Command> pending_;      // Under mutex_.
  uint64_t last_ = 0;                 // Number of the last command given. Under mutex_.
  std::atomic<uint64_t> given_{0};    // The same, for the thread that looks without the lock.
  std::atomic<uint64_t> reached_{0};  // Commands done; written under mutex_.
  std::optional<Error> error_;        // Of the first failed command since Reset.
  uint64_t failed_ = 0;               // Its number.
  std::vector<Callback> callbacks_;
  bool asleep_ = false;
  bool closing_ = false;
  std::vector<Command> running_;  // The thread's own.
  std::thread thread_;
};

}  // namespace tandem::cpu
