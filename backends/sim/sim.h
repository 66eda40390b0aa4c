// Simulated devices: they compute with the reference kernels, in separate, poisoned memory, and
// fail where a test asks for it.
//
// Each has memory of its own (host memory that nobody else gets a pointer to, unless
// `host_readable`), filled with a poison pattern when allocated and when freed, so that a value
// read too early or too late is a NaN and not a lucky number. Commands run on a thread of the
// device's stream, or at once if `synchronous`. There is no clock.
//
// A spec, as in `--device sim:memory=64M,largest=16M,unsupported=rope|softmax,name=a`, is a list
// of key=value; keys are the fields below, sizes take K, M or G (powers of 1024).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/device.h"

namespace tandem {

// The calls that can be made to fail.
enum class SimCall : uint8_t { kAllocate, kRun, kCopy, kFill, kWait, kSynchronize };

struct SimFault {
  SimCall call;
  int64_t nth = 0;  // 1 is the next call of that kind; it fails once.
};

struct SimOptions {
  std::string name = "0";      // The device is "sim:NAME".
  int64_t memory = INT64_MAX;  // Bytes that may be live at once.
  int64_t largest_buffer = INT64_MAX;
  int64_t alignment = 64;
  std::vector<std::string> unsupported;  // Ops that this device declines.
  bool host_readable = false;            // CPU devices have Access::kRead to its memory.
  bool reads_host = false;               // It has Access::kRead to the host's memory.
  bool declines_copies = false;          // Copies between it and other simulated devices.
  bool waits_for_others = true;          // Else the scheduler must bridge.
  bool synchronous = false;              // Commands are done when they return.
};

Result<SimOptions> ParseSimOptions(std::string_view spec);

// A backend named "sim" with one device for each entry. `host` is the memory of the CPU device.
std::unique_ptr<Backend> MakeSimBackend(std::vector<SimOptions> devices, Memory& host);
// Adds a device later; the name must be new.
Result<Device*> AddSimDevice(Backend& sim, const SimOptions& options);

// Arms a fault; several may be armed. Device must be one of this backend's.
void ArmFault(Device& sim, SimFault fault);
// Forgets all that are armed, and says how many had not fired.
int ClearFaults(Device& sim);
// Calls of a kind so far, fired faults included.
int64_t CallCount(const Device& sim, SimCall call);

}  // namespace tandem
