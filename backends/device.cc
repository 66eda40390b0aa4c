#include "backends/device.h"

#include <cstring>

namespace tandem {

std::string_view ToString(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kAccelerator:
      return "accelerator";
    case DeviceKind::kSimulated:
      return "simulated";
  }
  return "unknown";
}

Result<std::unique_ptr<Buffer>> Memory::Import(const std::byte*, int64_t,
                                               std::shared_ptr<const void>) {
  return Fail(ErrorCode::kUnsupported, "memory {}: can not take host memory in place", name());
}

bool Device::CopiesBetween(const Memory& source, const Memory& target) const {
  const auto reaches = [&](const Memory& memory) {
    return memory.properties().host_access || AccessTo(memory) == Access::kWrite;
  };
  return reaches(source) && reaches(target);
}

Result<void> Device::Pack(const WeightLayout& layout, Type, std::span<const int64_t>,
                          const std::byte* source, std::byte* target) const {
  if (!layout.name.empty())
    return Fail(ErrorCode::kUnsupported, "device {}: no weight layout named {}", name(),
                layout.name);
  if (layout.bytes > 0) std::memcpy(target, source, static_cast<size_t>(layout.bytes));
  return {};
}

Result<std::unique_ptr<Buffer>> Device::AllocatePinned(int64_t) {
  return Fail(ErrorCode::kUnsupported, "device {}: has no pinned memory", name());
}

}  // namespace tandem
