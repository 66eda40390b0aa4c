// OpenCL devices, through the ICD loader: buffers of their own, in-order queues, events that other
// streams wait for, copies from pinned host memory, kernels that read block weights as they are.
#pragma once

#include <memory>
#include <string>

#include "backends/device.h"

namespace tandem {

struct OpenClOptions {
  // Where built programs are kept, keyed by source, options and device; "": the user's cache
  // folder ($XDG_CACHE_HOME or ~/.cache, then tandem/opencl); "none" keeps nothing.
  std::string cache_folder;
};

// A backend named "opencl" with devices "opencl:0"... `host` is the memory that pinned buffers
// belong to (the CPU device's). Where there is no platform or device, it has none and
// unavailable() says why; it never fails.
std::unique_ptr<Backend> MakeOpenClBackend(Memory& host, const OpenClOptions& options = {});

// Extension "tandem.opencl.pinned_bytes": host memory that a device keeps pinned now. The host's
// memory counts such buffers as imports, whose bytes are somebody else's; they are counted here.
using OpenClPinnedBytes = int64_t (*)(const Device&);

}  // namespace tandem
