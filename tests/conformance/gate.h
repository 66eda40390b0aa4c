// Holds streams up until a test lets them go, on every device that waits for others: the accomplice
// (subjects.h) runs an op that blocks, and whoever waits for its point is blocked as well.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "backends/device.h"

namespace tandem::conformance {

// Declare it after the streams that it holds up: it is opened when it goes, and they wait for what
// they were given.
class Gate {
 public:
  Gate();
  ~Gate();  // Opens it.
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Open();
  // Makes `stream` come after the gate. kUnsupported where it does not wait for others.
  Result<void> HoldUp(Stream& stream);
  Stream& stream() { return *stream_; }
  uint64_t point() const { return point_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::vector<double> attributes_;  // Which gate it is.
  KernelCall call_;
  std::promise<void> opened_;
  bool is_open_ = false;
  std::unique_ptr<Stream> stream_;
  uint64_t point_ = 0;
};

}  // namespace tandem::conformance
