// Boxes of bytes as OpenCL's transfers.
//
// A rectangular transfer needs pitches that grow: rows that do not overlap, planes that are whole
// rows apart. A box of a permuted tensor has others; it is cut into as few transfers as do.
#pragma once

#include <CL/cl.h>

#include <span>
#include <vector>

#include "backends/device.h"

namespace tandem::opencl {

// One side is a device's buffer, or both are.
struct TransferEnds {
  cl_mem source = nullptr, target = nullptr;  // Of the device; null: the host pointer.
  const std::byte* source_host = nullptr;
  std::byte* target_host = nullptr;
};

// The boxes, each of which is one transfer, that are together `call`.
std::vector<CopyCall> SplitIntoTransfers(const CopyCall& call);

// Enqueues one of them, without waiting. `event` may be null.
cl_int EnqueueTransfer(cl_command_queue queue, const TransferEnds& ends, const CopyCall& box,
                       std::span<const cl_event> before, cl_event* event);

}  // namespace tandem::opencl
