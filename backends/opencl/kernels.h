// Which ops this backend has kernels for, and how each is launched.
//
// A KernelCall carries an OpKernel as its token. What depends on the sizes of a run (one token or
// many, packed or strided) is chosen at the launch, so that one answer serves a whole size box.
// No kernel needs scratch; weights stay in the blocks of the file.
#pragma once

#include <string_view>

#include "backends/device.h"
#include "backends/opencl/launch.h"

namespace tandem::opencl {

struct OpKernel {
  std::string_view op;
  // Puts the launches of a call on the launcher's queue.
  cl_int (*launch)(Launcher& launcher, const KernelCall& call);
  // Which input has row numbers, that only the device can find to be out of range; -1: none.
  int ids_input = -1;
};

// What a device can not exceed.
struct KernelLimits {
  int64_t local_bytes = 0;
};

// kUnsupported with the reason; `device` names it there.
Result<KernelChoice> FindOpKernel(std::string_view device, const KernelLimits& limits,
                                  const KernelQuery& query);

// Whether a token is one that FindOpKernel gives for this op.
const OpKernel* OpKernelOf(const KernelCall& call);

}  // namespace tandem::opencl
