// Counts the calls of a simulated device and says which of them are to fail. Thread safe.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sim/sim.h"

namespace tandem::sim {

std::string_view ToString(SimCall call);

class Faults {
 public:
  explicit Faults(std::string device) : device_(std::move(device)) {}

  void Arm(SimFault fault);
  int Clear();
  int64_t Count(SimCall call) const;
  // Counts one call; the error that it is to fail with, if a fault was armed for it.
  std::optional<Error> Next(SimCall call);

 private:
  static constexpr int kCalls = 6;
  struct Armed {
    SimCall call;
    int64_t at;  // Value of the counter.
  };

  const std::string device_;
  mutable std::mutex mutex_;
  std::array<int64_t, kCalls> counts_{};
  std::vector<Armed> armed_;
};

}  // namespace tandem::sim
