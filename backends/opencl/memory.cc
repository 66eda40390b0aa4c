#include "backends/opencl/memory.h"

#include <algorithm>
#include <utility>

#include "backends/opencl/error.h"

namespace tandem::opencl {
namespace {

template <class T>
T InfoOf(cl_device_id device, cl_device_info info) {
  T value{};
  clGetDeviceInfo(device, info, sizeof value, &value, nullptr);
  return value;
}

}  // namespace

ClMemory::ClMemory(std::string name, cl_context context, cl_command_queue queue,
                   cl_device_id device)
    : name_(std::move(name)), context_(context), queue_(queue) {
  const auto bits = InfoOf<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
  properties_.alignment = std::max<int64_t>(64, bits / 8);
  properties_.largest_buffer =
      static_cast<int64_t>(InfoOf<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  properties_.capacity = static_cast<int64_t>(InfoOf<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE));
}

MemoryCounters ClMemory::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

Result<MemoryHandle> ClMemory::Create(int64_t bytes) const {
  cl_int status = CL_SUCCESS;
  MemoryHandle handle(
      clCreateBuffer(context_, CL_MEM_READ_WRITE, static_cast<size_t>(bytes), nullptr, &status));
  cl_mem raw = handle.get();
  if (status == CL_SUCCESS)
    status = clEnqueueMigrateMemObjects(queue_, 1, &raw, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                        nullptr, nullptr);
  if (status == CL_SUCCESS) status = clFinish(queue_);
  if (status != CL_SUCCESS)
    return Fail(ErrorCode::kOutOfMemory, "memory {}: {} bytes asked for, the device says {}", name_,
                bytes, StatusName(status));
  return handle;
}

Result<std::unique_ptr<Buffer>> ClMemory::Allocate(int64_t bytes) {
  if (bytes < 0) return Fail(ErrorCode::kInvalid, "memory {}: {} bytes asked for", name_, bytes);
  if (bytes > properties_.largest_buffer)
    return Fail(ErrorCode::kOutOfMemory,
                "memory {}: {} bytes asked for, but the largest buffer has {}", name_, bytes,
                properties_.largest_buffer);
  {
    std::lock_guard lock(mutex_);
    const int64_t free_bytes = properties_.capacity - counters_.live_bytes;
    if (bytes > free_bytes)
      return Fail(ErrorCode::kOutOfMemory, "memory {}: {} bytes asked for, {} of {} free", name_,
                  bytes, free_bytes, properties_.capacity);
    counters_.live_bytes += bytes;
  }
  MemoryHandle handle;
  if (bytes > 0) {
    auto created = Create(bytes);
    if (!created) {
      std::lock_guard lock(mutex_);
      counters_.live_bytes -= bytes;
      return tl::unexpected(std::move(created).error());
    }
    handle = std::move(*created);
  }
  std::lock_guard lock(mutex_);
  ++counters_.allocations;
  counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.live_bytes);
  return std::make_unique<ClBuffer>(*this, std::move(handle), bytes);
}

void ClMemory::Release(int64_t bytes) {
  std::lock_guard lock(mutex_);
  ++counters_.frees;
  counters_.live_bytes -= bytes;
}

ClBuffer::~ClBuffer() {
  handle_.reset();
  memory_.Release(bytes_);
}

Result<std::shared_ptr<PinnedBytes>> PinnedBytes::Create(std::string_view device,
                                                         cl_context context, cl_command_queue queue,
                                                         int64_t bytes,
                                                         std::atomic<int64_t>& pinned_bytes) {
  cl_int status = CL_SUCCESS;
  MemoryHandle handle(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                     static_cast<size_t>(bytes), nullptr, &status));
  void* data = nullptr;
  if (status == CL_SUCCESS)
    data = clEnqueueMapBuffer(queue, handle.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                              static_cast<size_t>(bytes), 0, nullptr, nullptr, &status);
  if (status != CL_SUCCESS)
    return Fail(ErrorCode::kOutOfMemory, "device {}: {} bytes of pinned host memory: {}", device,
                bytes, StatusName(status));
  return std::shared_ptr<PinnedBytes>(new PinnedBytes(
      std::move(handle), static_cast<std::byte*>(data), bytes, queue, pinned_bytes));
}

PinnedBytes::PinnedBytes(MemoryHandle handle, std::byte* data, int64_t bytes,
                         cl_command_queue queue, std::atomic<int64_t>& pinned_bytes)
    : handle_(std::move(handle)),
      data_(data),
      bytes_(bytes),
      queue_(queue),
      pinned_bytes_(pinned_bytes) {
  pinned_bytes_ += bytes_;
}

PinnedBytes::~PinnedBytes() {
  clEnqueueUnmapMemObject(queue_, handle_.get(), data_, 0, nullptr, nullptr);
  clFinish(queue_);
  pinned_bytes_ -= bytes_;
}

}  // namespace tandem::opencl
