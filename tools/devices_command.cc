// tandem devices: what there is to compute on.
#include <fmt/format.h>

#include "backends/registry.h"
#include "scheduler/dump.h"
#include "tools/command.h"

namespace tandem {
namespace {

std::string OrUnlimited(int64_t bytes) {
  return bytes == INT64_MAX ? "no limit" : FormatBytes(bytes);
}

Result<void> ListDevices() {
  const Registry registry = Registry::WithBuiltins();
  fmt::print("{:<12} {:<12} {:>10} {:>14}  {}\n", "device", "kind", "memory", "largest buffer",
             "what");
  for (const auto& backend : registry.backends()) {
    if (backend->devices().empty() && !backend->unavailable().empty())
      fmt::print("{:<12} {:<12} {:>10} {:>14}  {}\n", backend->name(), "-", "-", "-",
                 backend->unavailable());
    for (Device* device : backend->devices()) {
      const DeviceProperties properties = device->properties();
      const MemoryProperties memory = device->memory().properties();
      fmt::print("{:<12} {:<12} {:>10} {:>14}  {}\n", device->name(), ToString(properties.kind),
                 OrUnlimited(memory.capacity), OrUnlimited(memory.largest_buffer),
                 properties.description);
    }
  }
  return {};
}

}  // namespace

Command AddDevicesCommand(CLI::App& app) {
  return {app.add_subcommand("devices", "List the devices, their memory and what they are"),
          ListDevices};
}

}  // namespace tandem
