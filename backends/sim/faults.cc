#include "backends/sim/faults.h"

namespace tandem::sim {

std::string_view ToString(SimCall call) {
  switch (call) {
    case SimCall::kAllocate:
      return "allocate";
    case SimCall::kRun:
      return "run";
    case SimCall::kCopy:
      return "copy";
    case SimCall::kFill:
      return "fill";
    case SimCall::kWait:
      return "wait";
    case SimCall::kSynchronize:
      return "synchronize";
  }
  return "unknown";
}

void Faults::Arm(SimFault fault) {
  std::lock_guard lock(mutex_);
  armed_.push_back({fault.call, counts_[static_cast<int>(fault.call)] + fault.nth});
}

int Faults::Clear() {
  std::lock_guard lock(mutex_);
  const int left = static_cast<int>(armed_.size());
  armed_.clear();
  return left;
}

int64_t Faults::Count(SimCall call) const {
  std::lock_guard lock(mutex_);
  return counts_[static_cast<int>(call)];
}

std::optional<Error> Faults::Next(SimCall call) {
  std::lock_guard lock(mutex_);
  const int64_t count = ++counts_[static_cast<int>(call)];
  for (auto it = armed_.begin(); it != armed_.end(); ++it) {
    if (it->call != call || it->at != count) continue;
    armed_.erase(it);
    return Error{
        call == SimCall::kAllocate ? ErrorCode::kOutOfMemory : ErrorCode::kDevice,
        fmt::format("device {}: the fault armed for {} number {}", device_, ToString(call), count)};
  }
  return std::nullopt;
}

}  // namespace tandem::sim
