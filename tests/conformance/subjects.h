// The devices that the suite runs against: the CPU with each instruction set that this machine has,
// every OpenCL device, and simulated ones of several kinds.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "backends/device.h"

namespace tandem::conformance {

struct Subject {
  std::string name;  // For test names: "cpu_avx2", "opencl_0", "sim_packed".
  std::string_view backend;
  Device* device = nullptr;
  Memory* host = nullptr;  // Of the CPU device that goes with it; its own for a CPU.
};

// Made once, in the same order always.
std::span<const Subject> Subjects();
// One of each backend, for what two devices do together.
std::span<const Subject> Partners();
// Why a backend has no device here, or empty.
std::string MissingBackends();
// A simulated device that only holds others up (gate.h) or fails; nobody's subject.
Device& Accomplice();

}  // namespace tandem::conformance
