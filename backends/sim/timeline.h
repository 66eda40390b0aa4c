// The timeline of a stream: the points that were recorded, how far the commands have come, and the
// error that the later ones carry.
//
// The stream records and, when a point's turn comes, reaches it; anybody may ask and wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "graph/result.h"

namespace tandem::sim {

class Timeline {
 public:
  uint64_t Record();
  void Reach(uint64_t point);
  void Fail(Error error);  // The first one is kept.
  bool failed() const;
  void Reset();

  Result<bool> Reached(uint64_t point) const;
  Result<void> Synchronize(uint64_t point);
  void OnReached(uint64_t point, std::function<void(const Result<void>&)> done);

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  bool IsReached(uint64_t point) const { return point <= reached_ || point > recorded_; }
  Result<void> Outcome(uint64_t point) const;

  mutable std::mutex mutex_;
  std::condition_variable moved_;
  uint64_t recorded_ = 0;
  uint64_t reached_ = 0;
  std::optional<Error> error_;
  uint64_t failed_from_ = kNever;  // The first point that was reached with the error.
  std::multimap<uint64_t, std::function<void(const Result<void>&)>> waiting_;
};

}  // namespace tandem::sim
