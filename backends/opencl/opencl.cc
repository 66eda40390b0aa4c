#include "backends/opencl/opencl.h"

#include <CL/cl.h>

#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/backend.h"
#include "backends/opencl/error.h"
#include "backends/opencl/opencl_device.h"

namespace tandem {
namespace opencl {
namespace {

// The ICD loader says so when it finds no driver.
constexpr cl_int kNoPlatform = -1001;

int64_t PinnedBytesOf(const Device& device) {
  const auto* own = dynamic_cast<const ClDevice*>(&device);
  return own == nullptr ? 0 : own->pinned_bytes();
}

class ClBackend final : public Backend {
 public:
  ClBackend(Memory& host, const OpenClOptions& options, int lanes) {
    const std::string folder = ProgramFolder(options.cache_folder);
    cl_uint count = 0;
    cl_int status = clGetPlatformIDs(0, nullptr, &count);
    if (status != CL_SUCCESS || count == 0) {
      unavailable_ = status == CL_SUCCESS || status == kNoPlatform
                         ? "no OpenCL platform found"
                         : fmt::format("clGetPlatformIDs: {}", StatusName(status));
      return;
    }
    std::vector<cl_platform_id> platforms(count);
    clGetPlatformIDs(count, platforms.data(), nullptr);
    for (cl_platform_id platform : platforms) AddDevices(platform, host, folder, lanes);
    if (owned_.empty() && unavailable_.empty())
      unavailable_ = fmt::format("no device on {} OpenCL platform{}", count, count == 1 ? "" : "s");
    if (!owned_.empty()) unavailable_.clear();
  }

  std::string_view name() const override { return "opencl"; }
  std::span<Device* const> devices() const override { return devices_; }
  std::string_view unavailable() const override { return unavailable_; }
  void* Extension(std::string_view name) const override {
    if (name == "tandem.opencl.pinned_bytes") return reinterpret_cast<void*>(&PinnedBytesOf);
    return nullptr;
  }

 private:
  void AddDevices(cl_platform_id platform, Memory& host, const std::string& folder, int lanes) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) return;
    std::vector<cl_device_id> ids(count);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
    for (cl_device_id id : ids) {
      cl_bool is_available = CL_FALSE, has_compiler = CL_FALSE;
      clGetDeviceInfo(id, CL_DEVICE_AVAILABLE, sizeof is_available, &is_available, nullptr);
      clGetDeviceInfo(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof has_compiler, &has_compiler,
                      nullptr);
      if (!is_available || !has_compiler) continue;
      auto device = ClDevice::Create(fmt::format("opencl:{}", owned_.size()), platform, id, host,
                                     folder, lanes);
      if (!device) {
        unavailable_ = device.error().message;
        continue;
      }
      owned_.push_back(std::move(*device));
      devices_.push_back(owned_.back().get());
    }
  }

  std::vector<std::unique_ptr<ClDevice>> owned_;
  std::vector<Device*> devices_;
  std::string unavailable_;
};

}  // namespace

std::unique_ptr<Backend> MakeBackend(Memory& host, const OpenClOptions& options, int lanes) {
  return std::make_unique<ClBackend>(host, options, lanes);
}

}  // namespace opencl

std::unique_ptr<Backend> MakeOpenClBackend(Memory& host, const OpenClOptions& options) {
  return opencl::MakeBackend(host, options, 0);
}

}  // namespace tandem
