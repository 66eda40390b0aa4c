// The memory of an OpenCL device, and host memory that it pins.
//
// Why capacity is counted here: a driver may give out more than the device has and move buffers
// behind our back, or fail only when a kernel runs. Allocate refuses beyond the device's memory,
// and has the device take a buffer's bytes at once, so that a reservation that succeeded stays.
// Pieces of a buffer are offsets that kernels get as arguments: sub-buffers would be objects to
// create for every tensor, with an alignment of their own.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backends/device.h"
#include "backends/opencl/handle.h"

namespace tandem::opencl {

class ClMemory final : public Memory {
 public:
  // `queue` is of `device`, for what must be enqueued while allocating; the device's own.
  ClMemory(std::string name, cl_context context, cl_command_queue queue, cl_device_id device);

  std::string_view name() const override { return name_; }
  MemoryProperties properties() const override { return properties_; }
  MemoryCounters counters() const override;
  Result<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;

 private:
  friend class ClBuffer;
  void Release(int64_t bytes);
  Result<MemoryHandle> Create(int64_t bytes) const;

  const std::string name_;
  const cl_context context_;
  const cl_command_queue queue_;
  MemoryProperties properties_;
  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

class ClBuffer final : public Buffer {
 public:
  ClBuffer(ClMemory& memory, MemoryHandle handle, int64_t bytes)
      : memory_(memory), handle_(std::move(handle)), bytes_(bytes) {}
  ~ClBuffer() override;
  Memory& memory() const override { return memory_; }
  int64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return nullptr; }
  cl_mem handle() const { return handle_.get(); }  // Null if there are no bytes.

 private:
  ClMemory& memory_;
  MemoryHandle handle_;
  const int64_t bytes_;
};

// Host bytes that stay mapped as long as they live; counted in `pinned_bytes` meanwhile.
class PinnedBytes {
 public:
  static Result<std::shared_ptr<PinnedBytes>> Create(std::string_view device, cl_context context,
                                                     cl_command_queue queue, int64_t bytes,
                                                     std::atomic<int64_t>& pinned_bytes);
  ~PinnedBytes();
  const std::byte* data() const { return data_; }

 private:
  PinnedBytes(MemoryHandle handle, std::byte* data, int64_t bytes, cl_command_queue queue,
              std::atomic<int64_t>& pinned_bytes);
  MemoryHandle handle_;
  std::byte* const data_;
  const int64_t bytes_;
  const cl_command_queue queue_;
  std::atomic<int64_t>& pinned_bytes_;
};

}  // namespace tandem::opencl
