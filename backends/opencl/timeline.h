// The points of an OpenCL stream, and what lies between them: commands, gates and failures.
//
// Why it looks at events when asked. An in-order queue completes its commands in order, so a
// point is reached when the items before it have completed; nothing needs to run as they do.
// The timeline keeps the events of what is still pending, oldest first, and moves on whenever
// somebody asks (Reached, Synchronize, the next command). For those who wait and do not ask, the
// stream's attendant asks.
//
// A gate is an event that the stream's next commands wait for: one of another stream of the same
// device, or a user event that another device's stream opens. OpenCL knows of a failed event only
// that it failed, so a gate also knows where to find the error itself: the first item that failed
// gives the stream's error, and all points after it carry it.
//
// What a kernel finds wrong with its data is no failure to OpenCL: its batch tells in a Fault,
// which is seen when the batch has completed. The stream and those that wait for it then fail as
// after any failure, but what was already in their queues has run.
//
// Threads: any. It never calls out, nor into another timeline, while it holds its lock. It is
// shared with the gates of other streams, which may ask when this stream is gone.
#pragma once

#include <CL/cl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/opencl/counters.h"
#include "backends/opencl/handle.h"
#include "graph/result.h"

namespace tandem::opencl {

class Timeline;

// What a stream waits for. The event ends badly if what it stands for failed.
struct Gate {
  EventHandle event;
  // Of another stream of the same device: who knows how its point came out.
  std::shared_ptr<Timeline> other;
  uint64_t point = 0;

  // A user event: ends it. Only the first call counts.
  void Open(const Result<void>& outcome);
  std::optional<Error> error() const;

 private:
  mutable std::mutex mutex_;
  bool is_open_ = false;
  std::optional<Error> error_;
};

// Who is to open a gate. One that goes without having done it opens it badly: nothing may wait for
// ever.
struct GateOpener {
  explicit GateOpener(std::shared_ptr<Gate> opened) : gate(std::move(opened)) {}
  GateOpener(const GateOpener&) = delete;
  ~GateOpener();
  const std::shared_ptr<Gate> gate;
};

// What a batch's kernels found wrong with their data; see kernels/rows.cl.
struct Fault {
  int32_t node = 0;  // 0: nothing; else 1 + the place of the call in its batch.
  int32_t padding = 0;
  int64_t id = 0;
};

// Makes an error of a fault, of what the caller still has when the command completes.
using FaultError = std::function<Error(const Fault&)>;

class Timeline {
 public:
  using Callback = std::function<void(const Result<void>&)>;

  // `device` names it in errors; both outlive all items that are pending.
  Timeline(std::string device, LiveCounters& counters)
      : device_(std::move(device)), counters_(counters) {}

  // In the order of the stream. `work` is counted when the event has completed well; `what`
  // says for errors what it was.
  void AddCommand(EventHandle event, const DeviceCounters& work, std::string what);
  // A command that has also filled in `fault` when the event has completed.
  void AddCheckedCommand(EventHandle event, const DeviceCounters& work, std::string what,
                         std::unique_ptr<Fault> fault, FaultError error);
  void AddGate(std::shared_ptr<Gate> gate);
  void AddFailure(Error error);
  uint64_t Record();

  // Whether something failed, as far as is known now. Then later commands need not be given.
  bool HasFailed();
  Result<bool> Reached(uint64_t point);
  Result<void> Synchronize(uint64_t point);
  // Calls `done` once the point is reached and somebody asks. Gives the events after which asking
  // (Poll) will do; none if it was called already.
  std::vector<EventHandle> OnReached(uint64_t point, Callback done);
  void Poll();
  // All items must have completed.
  void Reset();

  // The events that have all ended when the point is reached; none if it is.
  std::vector<EventHandle> EventsBefore(uint64_t point);
  // What failed before the point, whether it is reached or not yet.
  std::optional<Error> FailureBefore(uint64_t point);

 private:
  struct Item {
    uint64_t number = 0;
    EventHandle event;           // Null: complete when those before it are.
    std::shared_ptr<Gate> gate;  // Of which `event` is another reference.
    std::optional<Error> failure;
    std::unique_ptr<Fault> fault;  // Read only when the event has completed.
    FaultError fault_error;
    DeviceCounters work;
    std::string what;
  };
  struct Due {
    Callback done;
    Result<void> outcome;
  };
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  Item& Push(EventHandle event);
  // Takes off what has completed, up to item `limit`. May let go of the lock for a while: with a
  // limit, because what an item waits for is always older, two timelines never ask in a circle.
  void Advance(std::unique_lock<std::mutex>& lock, std::vector<Due>& due, uint64_t limit = kNever);
  Error ErrorOf(const Item& item, cl_int status) const;
  bool IsReached(uint64_t point) const { return point <= done_ || point > last_; }
  Result<void> Outcome(uint64_t point) const;
  void TakeDue(std::vector<Due>& due);
  static void Call(const std::vector<Due>& due);
  std::vector<EventHandle> Pending(uint64_t point) const;

  const std::string device_;
  LiveCounters& counters_;
  std::mutex mutex_;
  std::deque<Item> items_;  // Oldest first.
  uint64_t last_ = 0;       // Number of the newest item; points are numbers of items.
  uint64_t done_ = 0;
  std::optional<Error> error_;
  uint64_t failed_from_ = kNever;  // Number of the item that failed first.
  std::multimap<uint64_t, Callback> waiting_;
};

}  // namespace tandem::opencl
