// What a device has done, counted by its streams as commands complete; read by anybody.
#pragma once

#include <atomic>
#include <cstdint>

#include "backends/device.h"

namespace tandem::opencl {

struct LiveCounters {
  std::atomic<int64_t> kernels{0}, copies{0}, bytes_in{0}, bytes_out{0}, bytes_within{0}, fills{0},
      handovers{0};

  void Add(const DeviceCounters& work) {
    kernels += work.kernels;
    copies += work.copies;
    bytes_in += work.bytes_in;
    bytes_out += work.bytes_out;
    bytes_within += work.bytes_within;
    fills += work.fills;
  }
  DeviceCounters Read() const {
    return {kernels, copies, bytes_in, bytes_out, bytes_within, fills, handovers};
  }
};

}  // namespace tandem::opencl
