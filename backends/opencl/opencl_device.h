// An OpenCL device as a Device.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/device.h"
#include "backends/opencl/counters.h"
#include "backends/opencl/kernels.h"
#include "backends/opencl/memory.h"
#include "backends/opencl/program.h"

namespace tandem::opencl {

class ClDevice final : public Device {
 public:
  // `lanes` of each work-group; 0: what suits the device (see kernels/language.cl). Host memory
  // that it pins belongs to `host`, which outlives it.
  static Result<std::unique_ptr<ClDevice>> Create(std::string name, cl_platform_id platform,
                                                  cl_device_id device, Memory& host,
                                                  std::string cache_folder, int lanes);

  std::string_view name() const override { return name_; }
  DeviceProperties properties() const override { return properties_; }
  Memory& memory() override { return memory_; }
  Access AccessTo(const Memory& memory) const override {
    return &memory == &memory_ ? Access::kWrite : Access::kNone;
  }
  Result<KernelChoice> FindKernel(const KernelQuery& query) const override;
  Result<std::unique_ptr<Buffer>> AllocatePinned(int64_t bytes) override;
  // The first one builds the kernels.
  Result<std::unique_ptr<Stream>> CreateStream() override;
  DeviceCounters counters() const override { return counters_.Read(); }

  int64_t pinned_bytes() const { return pinned_bytes_; }
  // Of the build, once there was one.
  bool from_cache() const;
  std::string program_file() const;

 private:
  ClDevice(std::string name, cl_device_id device, ContextHandle context, QueueHandle queue,
           Memory& host, std::string cache_folder, int lanes, DeviceProperties properties);
  Result<cl_program> Program();

  const std::string name_;
  const cl_device_id device_;
  const ContextHandle context_;
  const QueueHandle queue_;  // For what is enqueued outside of streams.
  Memory& host_;
  const std::string cache_folder_;
  const int lanes_;
  const DeviceProperties properties_;
  const KernelLimits limits_;
  ClMemory memory_;
  LiveCounters counters_;
  std::atomic<int64_t> pinned_bytes_{0};
  mutable std::mutex mutex_;
  std::optional<Result<BuiltProgram>> program_;
};

}  // namespace tandem::opencl
