// The CPU: its own stream thread, a oneTBB arena for the work inside a node, SIMD kernels chosen
// at run time, block weights packed at load.
#pragma once

#include <memory>

#include "backends/device.h"

namespace tandem {

struct CpuOptions {
  int threads = 0;  // That compute, the stream's own included; 0: one for each core that the
                    // process may use.
  // The instruction set to use, for tests: "" (best there is), "portable", "avx2", "avx512".
  std::string isa = {};
};

// A backend named "cpu" with the device "cpu:0". Its memory is the host's, named "host": any
// buffer with host() can be read by its kernels.
std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options = {});

// Extension "tandem.cpu.set_threads": Result<void>(Device&, int threads). Takes effect with the
// next batch; 0 is the default again. kInvalid for a negative number or another backend's device.
using CpuSetThreads = Result<void> (*)(Device&, int);
// Extension "tandem.cpu.threads": the number in force.
using CpuThreads = int (*)(const Device&);

}  // namespace tandem
