// Simulated devices: they compute with the reference kernels, in separate, poisoned memory, and
// fail where a test asks for it.
//
// Each has memory of its own (host memory that nobody else gets a pointer to, unless
// `host_readable`), filled with a poison pattern when allocated and when freed, so that a value
// read too early or too late is a NaN and not a lucky number. Commands run on a thread of the
// device's stream, or at once if `synchronous`. There is no clock.
//
// A spec, as in `--device sim:memory=64M,largest=16M,unsupported=rope|softmax,name=a`, is a list
// of key=value; keys are the fields below (`largest` for short), sizes take K, M or G (powers of
// 1024), a flag alone is set.
//
// Because a command's mistake is cheap to see here, everything in a call is checked when it is
// given: ranges outside a buffer, an output in somebody else's memory, an input that the device
// can not read are kInvalid, and nothing of that call is done.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/device.h"

namespace tandem {

// The calls that can be made to fail. Each kernel of a batch is a kRun of its own. They are
// counted, and faults found, in the order in which the host makes the calls; kAllocate fails at
// once with kOutOfMemory, kSynchronize once the point is reached and leaves the timeline as it is,
// the others when their command's turn comes, on the timeline; both with kDevice.
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
  std::vector<std::string> unsupported{};  // Ops that this device declines.
  int64_t scratch = 0;                     // Each kernel asks for so much, and overwrites it.
  bool packs_weights = false;    // Of matmul and rows, if constant: into a layout of its own.
  bool host_readable = false;    // Its memory has host_access: CPU devices may read it.
  bool reads_host = false;       // It has Access::kRead to the host's memory.
  bool declines_copies = false;  // Copies between it and other simulated devices.
  bool waits_for_others = true;  // Else the scheduler must bridge.
  // Commands are done when they return. Then it waits for streams of its own only, because
  // Wait() must not block.
  bool synchronous = false;

  bool operator==(const SimOptions&) const = default;
};

Result<SimOptions> ParseSimOptions(std::string_view spec);

// A backend named "sim" with one device for each entry. `host` is the memory of the CPU device.
// An entry whose name is taken is left out, and unavailable() says so.
std::unique_ptr<Backend> MakeSimBackend(std::vector<SimOptions> devices, Memory& host);
// Adds a device later; the name must be new.
Result<Device*> AddSimDevice(Backend& sim, const SimOptions& options);

const SimOptions& OptionsOf(const Device& sim);

// Arms a fault; several may be armed. Device must be one of this backend's.
void ArmFault(Device& sim, SimFault fault);
// Forgets all that are armed, and says how many had not fired.
int ClearFaults(Device& sim);
// Calls of a kind so far, fired faults included.
int64_t CallCount(const Device& sim, SimCall call);

}  // namespace tandem
