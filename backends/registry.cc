#include "backends/registry.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "backends/cpu/cpu.h"
#include "backends/opencl/opencl.h"
#include "backends/sim/sim.h"

namespace tandem {
namespace {

constexpr std::string_view kSimPrefix = "sim:";

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

Device* DeviceNamed(const Backend& backend, std::string_view lower_name) {
  for (Device* device : backend.devices())
    if (Lower(device->name()) == lower_name) return device;
  return nullptr;
}

bool AnswersTo(const Backend& backend, const Device& device, std::string_view kind) {
  const DeviceKind actual = device.properties().kind;
  if (kind == "gpu") return actual == DeviceKind::kGpu;
  if (kind == "cpu") return actual == DeviceKind::kCpu;
  return actual == DeviceKind::kAccelerator ||
         (backend.name() == "opencl" && actual != DeviceKind::kGpu);
}

std::string Inventory(std::span<const std::unique_ptr<Backend>> backends) {
  std::string there_are, without;
  for (const auto& backend : backends) {
    for (Device* device : backend->devices())
      there_are += fmt::format("{}{} ({})", there_are.empty() ? "" : ", ", device->name(),
                               device->properties().description);
    if (backend->devices().empty())
      without += fmt::format("; {} has none: {}", backend->name(), backend->unavailable());
  }
  return fmt::format("{}{}", there_are.empty() ? "there is none at all" : "there are " + there_are,
                     without);
}

// A simulated device from a spec without its prefix.
Result<Device*> FindSimulated(Backend& backend, std::string_view spec) {
  const bool is_default = spec.empty() || spec == "0";
  SimOptions options;
  if (!is_default) {
    TANDEM_ASSIGN(options, ParseSimOptions(spec));
  }
  for (Device* device : backend.devices()) {
    if (device->name() != fmt::format("{}{}", kSimPrefix, options.name)) continue;
    if (OptionsOf(*device) == options) return device;
    return Fail(ErrorCode::kInvalid,
                "device {}: was made with other options than '{}'; give this one a name=...",
                device->name(), spec);
  }
  return AddSimDevice(backend, options);
}

}  // namespace

Registry::~Registry() {
  while (!backends_.empty()) backends_.pop_back();
}

Registry Registry::WithBuiltins() {
  Registry registry;
  registry.Add(MakeCpuBackend());
  Memory& host = registry.cpu().memory();
  registry.Add(MakeOpenClBackend(host));
  registry.Add(MakeSimBackend({}, host));
  return registry;
}

void Registry::Add(std::unique_ptr<Backend> backend) { backends_.push_back(std::move(backend)); }

Backend* Registry::FindBackend(std::string_view name) const {
  const std::string lower = Lower(name);
  for (const auto& backend : backends_)
    if (Lower(backend->name()) == lower) return backend.get();
  return nullptr;
}

Device& Registry::cpu() const { return *FindBackend("cpu")->devices().front(); }

Result<Device*> Registry::Find(std::string_view spec) {
  const std::string lower = Lower(spec);
  for (const auto& backend : backends_)
    if (Device* device = DeviceNamed(*backend, lower)) return device;

  Backend* simulated = FindBackend("sim");
  if (simulated != nullptr && lower == "sim" && !simulated->devices().empty())
    return simulated->devices().front();
  if (simulated != nullptr && lower == "sim") return FindSimulated(*simulated, "");
  if (simulated != nullptr && lower.starts_with(kSimPrefix))
    return FindSimulated(*simulated, spec.substr(kSimPrefix.size()));

  if (const Backend* backend = FindBackend(spec)) {
    if (!backend->devices().empty()) return backend->devices().front();
    return Fail(ErrorCode::kNotFound, "no device '{}': {}", spec, Inventory(backends_));
  }
  if (lower == "cpu" || lower == "gpu" || lower == "accelerator")
    for (const auto& backend : backends_)
      for (Device* device : backend->devices())
        if (AnswersTo(*backend, *device, lower)) return device;
  return Fail(ErrorCode::kNotFound, "no device '{}': {}", spec, Inventory(backends_));
}

}  // namespace tandem
