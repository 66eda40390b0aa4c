#include "backends/sim/timeline.h"

#include <utility>
#include <vector>

namespace tandem::sim {

uint64_t Timeline::Record() {
  std::lock_guard lock(mutex_);
  return ++recorded_;
}

void Timeline::Reach(uint64_t point) {
  std::vector<std::pair<std::function<void(const Result<void>&)>, Result<void>>> due;
  {
    std::lock_guard lock(mutex_);
    reached_ = point;
    if (error_ && failed_from_ == kNever) failed_from_ = point;
    const auto end = waiting_.upper_bound(point);
    for (auto it = waiting_.begin(); it != end; ++it)
      due.emplace_back(std::move(it->second), Outcome(it->first));
    waiting_.erase(waiting_.begin(), end);
    moved_.notify_all();
  }
  for (auto& [done, outcome] : due) done(outcome);
}

void Timeline::Fail(Error error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

bool Timeline::failed() const {
  std::lock_guard lock(mutex_);
  return error_.has_value();
}

void Timeline::Reset() {
  std::lock_guard lock(mutex_);
  error_.reset();
  failed_from_ = kNever;
}

Result<void> Timeline::Outcome(uint64_t point) const {
  if (point <= reached_ && point >= failed_from_) return tl::unexpected(*error_);
  return {};
}

Result<bool> Timeline::Reached(uint64_t point) const {
  std::lock_guard lock(mutex_);
  if (!IsReached(point)) return false;
  TANDEM_CHECK(Outcome(point));
  return true;
}

Result<void> Timeline::Synchronize(uint64_t point) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return IsReached(point); });
  return Outcome(point);
}

void Timeline::OnReached(uint64_t point, std::function<void(const Result<void>&)> done) {
  Result<void> outcome;
  {
    std::lock_guard lock(mutex_);
    if (!IsReached(point)) {
      waiting_.emplace(point, std::move(done));
      return;
    }
    outcome = Outcome(point);
  }
  done(outcome);
}

}  // namespace tandem::sim
