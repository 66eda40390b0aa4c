// Bytes of the caller as a buffer of the host's memory. Nothing is owned or counted.
#pragma once

#include "backends/device.h"

namespace tandem {

class HostBytes final : public Buffer {
 public:
  explicit HostBytes(Memory& host) : host_memory_(host) {}

  // Devices write only through buffers that a plan lets them write, never through an input's.
  void Point(const std::byte* data, int64_t bytes) {
    data_ = const_cast<std::byte*>(data);
    bytes_ = bytes;
  }
  Memory& memory() const override { return host_memory_; }
  int64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return data_; }

 private:
  Memory& host_memory_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tandem
