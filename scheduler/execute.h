// execute(): hands the steps of a bound plan to streams, and waits for the last.
//
// Everything is enqueued without waiting for a device, but where a device can not wait for another
// by itself: then the caller's thread bridges (counted). The first failure stops the hand-over; all
// streams are drained and made usable again before it is returned.
#pragma once

#include <atomic>
#include <functional>

#include "scheduler/bind.h"

namespace tandem {

struct ExecuteCounters {
  int64_t host_waits = 0;
  int64_t bridges = 0;
  int64_t splits = 0;
  int64_t copies = 0;
  int64_t copied_bytes = 0;
};

// `streams` is parallel to the machine's devices; `points` has room for one point a step. `stop`
// may be empty; true before a split is kCancelled.
Result<void> Execute(const BoundPlan& bound, std::span<const std::unique_ptr<Stream>> streams,
                     std::span<uint64_t> points, const std::function<bool()>& stop,
                     ExecuteCounters& counters);

// Waits for all that was given to the streams, and forgets failures.
void Drain(std::span<const std::unique_ptr<Stream>> streams);

}  // namespace tandem
