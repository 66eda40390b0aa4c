// Runs a case on a device as the scheduler would: FindKernel for the sizes asked for, Pack for
// constants that the device wants packed, everything in buffers of the device's memory, scratch as
// declared. Around every range that a kernel is given lie guard bytes; outputs and scratch are
// poisoned, so that what is not written, or is read too early, is a NaN.
#pragma once

#include <memory>
#include <string>

#include "backends/device.h"
#include "tests/conformance/case.h"

namespace tandem::conformance {

enum class Verdict : uint8_t { kPassed, kUnsupported, kFailed };

struct Outcome {
  Verdict verdict = Verdict::kPassed;
  std::string message;  // Why it failed, or the device's reason not to support it.
  double worst = 0;     // Largest error in units of its bound.
};

class Runner {
 public:
  // `host` is the CPU device's memory.
  static Result<std::unique_ptr<Runner>> Create(Device& device, Memory& host);

  Outcome Run(const Case& c, Prepared& prepared);

  Device& device() { return device_; }
  Stream& stream() { return *stream_; }

 private:
  struct Range;
  Runner(Device& device, Memory& host, std::unique_ptr<Stream> stream)
      : device_(device), host_(host), stream_(std::move(stream)) {}

  // Device memory with guards on both sides, filled with `bytes`.
  Result<Range> Upload(std::span<const std::byte> bytes);
  // The error names what was changed that should not have been, if anything was.
  Result<std::vector<std::byte>> Download(Range& range, std::string_view what);
  Result<Outcome> Try(const Case& c, Prepared& prepared, const KernelChoice& choice);

  Device& device_;
  Memory& host_;
  std::unique_ptr<Stream> stream_;
};

// The question that a device is asked for a case. Points into both arguments.
struct Question {
  Question(const Case& c, const Prepared& prepared);
  KernelQuery query;
  std::unique_ptr<bool[]> present, constant;
};

}  // namespace tandem::conformance
