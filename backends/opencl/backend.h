// The backend with what only its own tests choose.
#pragma once

#include <memory>

#include "backends/opencl/opencl.h"

namespace tandem::opencl {

// As MakeOpenClBackend, with work-groups of `lanes`: a processor then runs the kernels the way a
// GPU does, barriers and all. 0: what suits the device.
std::unique_ptr<Backend> MakeBackend(Memory& host, const OpenClOptions& options, int lanes);

}  // namespace tandem::opencl
