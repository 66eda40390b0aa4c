#include "backends/opencl/opencl_device.h"

#include <algorithm>
#include <utility>

#include "backends/opencl/error.h"
#include "backends/opencl/stream.h"

namespace tandem::opencl {
namespace {

constexpr int kGpuLanes = 32;

template <class T>
T InfoOf(cl_device_id device, cl_device_info info) {
  T value{};
  clGetDeviceInfo(device, info, sizeof value, &value, nullptr);
  return value;
}

std::string TextOf(cl_device_id device, cl_device_info info) {
  char text[512] = "";
  clGetDeviceInfo(device, info, sizeof text - 1, text, nullptr);
  return text;
}

DeviceProperties PropertiesOf(cl_platform_id platform, cl_device_id device) {
  char platform_name[512] = "";
  clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name - 1, platform_name, nullptr);
  const auto units = InfoOf<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  const bool is_gpu = (InfoOf<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0;
  DeviceProperties properties;
  properties.kind = is_gpu ? DeviceKind::kGpu : DeviceKind::kAccelerator;
  properties.description =
      fmt::format("{}, {}, {} compute units", platform_name, TextOf(device, CL_DEVICE_NAME), units);
  // What a unit does in a cycle differs by a factor of ten between devices; these are for a CPU's
  // vector units and a GPU's multiprocessor.
  const double hertz =
      1e6 * std::max<cl_uint>(1, InfoOf<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY));
  properties.flops = units * hertz * (is_gpu ? 256 : 16);
  properties.memory_bandwidth = is_gpu ? 3e11 : 2e10;
  properties.link_bandwidth = 1.2e10;
  properties.launch_seconds = is_gpu ? 5e-6 : 2e-6;
  return properties;
}

}  // namespace

Result<std::unique_ptr<ClDevice>> ClDevice::Create(std::string name, cl_platform_id platform,
                                                   cl_device_id device, Memory& host,
                                                   std::string cache_folder, int lanes) {
  cl_int status = CL_SUCCESS;
  const cl_context_properties of_platform[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(platform), 0};
  ContextHandle context(clCreateContext(of_platform, 1, &device, nullptr, nullptr, &status));
  if (status != CL_SUCCESS)
    return Fail(ErrorCode::kDevice, "device {}: clCreateContext: {}", name, StatusName(status));
  QueueHandle queue(clCreateCommandQueueWithProperties(context.get(), device, nullptr, &status));
  if (status != CL_SUCCESS)
    return Fail(ErrorCode::kDevice, "device {}: clCreateCommandQueueWithProperties: {}", name,
                StatusName(status));
  if (lanes == 0)
    lanes =
        (InfoOf<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0 ? 1 : kGpuLanes;
  return std::unique_ptr<ClDevice>(new ClDevice(std::move(name), device, std::move(context),
                                                std::move(queue), host, std::move(cache_folder),
                                                lanes, PropertiesOf(platform, device)));
}

ClDevice::ClDevice(std::string name, cl_device_id device, ContextHandle context, QueueHandle queue,
                   Memory& host, std::string cache_folder, int lanes, DeviceProperties properties)
    : name_(std::move(name)),
      device_(device),
      context_(std::move(context)),
      queue_(std::move(queue)),
      host_(host),
      cache_folder_(std::move(cache_folder)),
      lanes_(lanes),
      properties_(std::move(properties)),
      limits_{.local_bytes =
                  static_cast<int64_t>(InfoOf<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE))},
      memory_(name_, context_.get(), queue_.get(), device) {}

Result<KernelChoice> ClDevice::FindKernel(const KernelQuery& query) const {
  return FindOpKernel(name_, limits_, query);
}

Result<std::unique_ptr<Buffer>> ClDevice::AllocatePinned(int64_t bytes) {
  if (bytes <= 0) return host_.Allocate(bytes);
  TANDEM_ASSIGN(const std::shared_ptr<PinnedBytes> pinned,
                PinnedBytes::Create(name_, context_.get(), queue_.get(), bytes, pinned_bytes_));
  const auto address = reinterpret_cast<uintptr_t>(pinned->data());
  if (address % static_cast<uintptr_t>(host_.properties().alignment) != 0)
    return Fail(ErrorCode::kUnsupported, "device {}: pinned memory is not aligned to {} bytes",
                name_, host_.properties().alignment);
  return host_.Import(pinned->data(), bytes, pinned);
}

Result<cl_program> ClDevice::Program() {
  std::lock_guard lock(mutex_);
  if (!program_)
    program_ = BuildProgram(name_, context_.get(), device_, KernelSource(),
                            fmt::format("-cl-std=CL1.2 -DLANES={}", lanes_), cache_folder_);
  if (!*program_) return tl::unexpected((*program_).error());
  return (*program_)->program.get();
}

Result<std::unique_ptr<Stream>> ClDevice::CreateStream() {
  TANDEM_ASSIGN(cl_program program, Program());
  return ClStream::Create(*this, memory_, context_.get(), device_, program, lanes_, counters_);
}

bool ClDevice::from_cache() const {
  std::lock_guard lock(mutex_);
  return program_ && *program_ && (*program_)->from_cache;
}

std::string ClDevice::program_file() const {
  std::lock_guard lock(mutex_);
  return program_ && *program_ ? (*program_)->file : "";
}

}  // namespace tandem::opencl
