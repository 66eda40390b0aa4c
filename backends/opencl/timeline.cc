#include "backends/opencl/timeline.h"

#include <utility>

#include "backends/opencl/error.h"

namespace tandem::opencl {
namespace {

// CL_COMPLETE, more if it is not there yet, less if it failed.
cl_int StatusOf(cl_event event) {
  cl_int status = CL_COMPLETE;
  const cl_int asked =
      clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return asked == CL_SUCCESS ? status : asked;
}

}  // namespace

GateOpener::~GateOpener() {
  gate->Open(Fail(ErrorCode::kDevice, "a stream that was waited for is gone"));
}

void Gate::Open(const Result<void>& outcome) {
  {
    std::lock_guard lock(mutex_);
    if (is_open_) return;
    is_open_ = true;
    if (!outcome) error_ = outcome.error();
  }
  // Not under the lock: commands that waited may complete within this call, with their callbacks.
  clSetUserEventStatus(event.get(), outcome ? CL_COMPLETE : CL_INVALID_OPERATION);
}

std::optional<Error> Gate::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

Timeline::Item& Timeline::Push(EventHandle event) {
  Item& item = items_.emplace_back();
  item.number = ++last_;
  item.event = std::move(event);
  return item;
}

void Timeline::AddCommand(EventHandle event, const DeviceCounters& work, std::string what) {
  std::lock_guard lock(mutex_);
  Item& item = Push(std::move(event));
  item.work = work;
  item.what = std::move(what);
}

void Timeline::AddCheckedCommand(EventHandle event, const DeviceCounters& work, std::string what,
                                 std::unique_ptr<Fault> fault, FaultError error) {
  std::lock_guard lock(mutex_);
  Item& item = Push(std::move(event));
  item.work = work;
  item.what = std::move(what);
  item.fault = std::move(fault);
  item.fault_error = std::move(error);
}

void Timeline::AddGate(std::shared_ptr<Gate> gate) {
  std::lock_guard lock(mutex_);
  Push(Share(gate->event.get())).gate = std::move(gate);
}

void Timeline::AddFailure(Error error) {
  std::lock_guard lock(mutex_);
  Push(nullptr).failure = std::move(error);
}

uint64_t Timeline::Record() {
  std::lock_guard lock(mutex_);
  return Push(nullptr).number;
}

Error Timeline::ErrorOf(const Item& item, cl_int status) const {
  if (item.failure) return *item.failure;
  if (status == CL_COMPLETE && item.fault != nullptr) return item.fault_error(*item.fault);
  if (item.gate != nullptr)
    if (auto error = item.gate->error()) return *error;
  return {ErrorCode::kDevice,
          fmt::format("device {}, {}: failed: {}", device_,
                      item.gate != nullptr ? "a wait for another stream" : item.what,
                      StatusName(status))};
}

void Timeline::Advance(std::unique_lock<std::mutex>& lock, std::vector<Due>& due, uint64_t limit) {
  while (!items_.empty() && items_.front().number <= limit) {
    const uint64_t number = items_.front().number;
    const cl_int status =
        items_.front().event == nullptr ? CL_COMPLETE : StatusOf(items_.front().event.get());
    if (status > CL_COMPLETE) break;
    bool failed = status < CL_COMPLETE || items_.front().failure.has_value();
    std::optional<Error> of_other;
    if (!error_ && items_.front().gate != nullptr && items_.front().gate->other != nullptr) {
      // Its event does not tell all. The other timeline has a lock of its own; two that wait for
      // each other must not hold both.
      const std::shared_ptr<Gate> gate = items_.front().gate;
      lock.unlock();
      of_other = gate->other->FailureBefore(gate->point);
      lock.lock();
      if (items_.empty() || items_.front().number != number) continue;
      failed = failed || of_other.has_value();
    }
    Item& item = items_.front();
    if (!failed) counters_.Add(item.work);
    failed = failed || (item.fault != nullptr && item.fault->node != 0);
    if (failed && !error_) {
      error_ = of_other ? std::move(*of_other) : ErrorOf(item, status);
      failed_from_ = number;
    }
    done_ = number;
    items_.pop_front();
  }
  TakeDue(due);
}

void Timeline::TakeDue(std::vector<Due>& due) {
  const auto end = waiting_.upper_bound(done_);
  for (auto it = waiting_.begin(); it != end; ++it)
    due.push_back({std::move(it->second), Outcome(it->first)});
  waiting_.erase(waiting_.begin(), end);
}

void Timeline::Call(const std::vector<Due>& due) {
  for (const Due& one : due) one.done(one.outcome);
}

Result<void> Timeline::Outcome(uint64_t point) const {
  if (error_ && point >= failed_from_ && point <= done_) return tl::unexpected(*error_);
  return {};
}

bool Timeline::HasFailed() {
  std::vector<Due> due;
  std::unique_lock lock(mutex_);
  Advance(lock, due);
  const bool failed = error_.has_value();
  lock.unlock();
  Call(due);
  return failed;
}

Result<bool> Timeline::Reached(uint64_t point) {
  std::vector<Due> due;
  std::unique_lock lock(mutex_);
  Advance(lock, due, point);
  const bool reached = IsReached(point);
  Result<void> outcome = Outcome(point);
  lock.unlock();
  Call(due);
  if (!reached) return false;
  TANDEM_CHECK(std::move(outcome));
  return true;
}

// The last command's event does not do: where it fails for one thing that it waited for, it ends
// before the others.
std::vector<EventHandle> Timeline::Pending(uint64_t point) const {
  std::vector<EventHandle> events;
  for (const Item& item : items_)
    if (item.number <= point && item.event != nullptr) events.push_back(Share(item.event.get()));
  return events;
}

std::optional<Error> Timeline::FailureBefore(uint64_t point) {
  std::vector<Due> due;
  std::unique_lock lock(mutex_);
  Advance(lock, due, point);
  std::optional<Error> failure;
  if (error_ && failed_from_ <= point) failure = error_;
  lock.unlock();
  Call(due);
  return failure;
}

std::vector<EventHandle> Timeline::EventsBefore(uint64_t point) {
  std::lock_guard lock(mutex_);
  return IsReached(point) ? std::vector<EventHandle>() : Pending(point);
}

Result<void> Timeline::Synchronize(uint64_t point) {
  std::vector<Due> due;
  std::unique_lock lock(mutex_);
  while (true) {
    Advance(lock, due);
    if (IsReached(point)) break;
    const std::vector<EventHandle> events = Pending(point);
    lock.unlock();
    // How each came out is seen by Advance.
    for (const EventHandle& event : events) {
      const cl_event raw = event.get();
      clWaitForEvents(1, &raw);
    }
    lock.lock();
  }
  Result<void> outcome = Outcome(point);
  lock.unlock();
  Call(due);
  return outcome;
}

std::vector<EventHandle> Timeline::OnReached(uint64_t point, Callback done) {
  std::vector<Due> due;
  std::vector<EventHandle> events;
  std::unique_lock lock(mutex_);
  Advance(lock, due);
  if (IsReached(point)) {
    due.push_back({std::move(done), Outcome(point)});
  } else {
    waiting_.emplace(point, std::move(done));
    events = Pending(point);
  }
  lock.unlock();
  Call(due);
  return events;
}

void Timeline::Poll() {
  std::vector<Due> due;
  std::unique_lock lock(mutex_);
  Advance(lock, due);
  lock.unlock();
  Call(due);
}

void Timeline::Reset() {
  std::lock_guard lock(mutex_);
  error_.reset();
  failed_from_ = kNever;
}

}  // namespace tandem::opencl
