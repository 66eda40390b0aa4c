// A stream: an in-order OpenCL queue with a timeline (timeline.h).
//
// Order within the queue is OpenCL's. What happens after a failure is not, so each command also
// lists the events that it must not come before badly: the last command's, and gates. A driver
// then drops it by the standard's own rule.
//
// A batch that takes row numbers ends by reading what its kernels found wrong with them.
//
// Waiting for a stream of the same device uses its events; for one of another device a user event
// that its OnReached ends, so that the queue waits and no thread does.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/device.h"
#include "backends/opencl/attendant.h"
#include "backends/opencl/launch.h"
#include "backends/opencl/memory.h"
#include "backends/opencl/timeline.h"

namespace tandem::opencl {

class ClStream final : public Stream {
 public:
  // What it refers to outlives it.
  static Result<std::unique_ptr<ClStream>> Create(Device& device, ClMemory& memory,
                                                  cl_context context, cl_device_id id,
                                                  cl_program program, int lanes,
                                                  LiveCounters& counters);
  ~ClStream() override;

  Device& device() const override { return device_; }
  Result<void> Run(std::span<const KernelCall> calls) override;
  Result<void> Copy(const CopyCall& call) override;
  using Stream::Fill;
  Result<void> Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) override;
  uint64_t Record() override { return timeline_->Record(); }
  Result<void> Wait(Stream& other, uint64_t point) override;
  Result<bool> Reached(uint64_t point) override { return timeline_->Reached(point); }
  Result<void> Synchronize(uint64_t point) override { return timeline_->Synchronize(point); }
  void OnReached(uint64_t point, std::function<void(const Result<void>&)> done) override;
  void Reset() override;

 private:
  ClStream(Device& device, ClMemory& memory, cl_context context, QueueHandle queue,
           MemoryHandle faults, cl_program program, int lanes, LiveCounters& counters);

  Result<void> CheckCall(const KernelCall& call) const;
  Result<void> CheckArgument(const KernelCall& call, const TensorArg& argument, int input) const;
  bool IsOwn(const Buffer& buffer) const { return &buffer.memory() == &memory_; }

  // The events that the next command waits for, those forgotten that have completed well.
  std::span<const cl_event> Before();
  Result<void> CopyOnHost(const CopyCall& call);
  cl_int ClearFaults();
  // Of a call of a batch that found a row number out of range.
  Error ErrorOfFault(std::span<const KernelCall> calls, const Fault& fault) const;
  std::string Describe(const CopyCall& call) const;
  void Fail(std::string_view what, cl_int status);
  // After a command: it alone is what the next one waits for.
  void Finish(EventHandle event, const DeviceCounters& work, std::string what);
  void Follow(cl_event event);

  Device& device_;
  ClMemory& memory_;
  const cl_context context_;
  const QueueHandle queue_;
  const MemoryHandle faults_;  // One Fault, written by kernels.
  LiveCounters& counters_;
  Launcher launcher_;
  const std::shared_ptr<Timeline> timeline_;
  std::vector<EventHandle> before_;
  std::vector<cl_event> before_raw_;
  Attendant attendant_;  // Last: its jobs use the rest.
};

}  // namespace tandem::opencl
