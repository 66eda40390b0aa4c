#include "backends/opencl/attendant.h"

#include <system_error>
#include <utility>

namespace tandem::opencl {

Attendant::~Attendant() {
  {
    std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Attendant::When(std::vector<EventHandle> events, std::function<void(bool)> then) {
  Job job{std::move(events), std::move(then)};
  {
    std::lock_guard lock(mutex_);
    bool has_thread = thread_.joinable();
    if (!has_thread) {
      try {
        thread_ = std::thread([this] { Loop(); });
        has_thread = true;
      } catch (const std::system_error&) {
        // No thread is to be had: the caller waits itself.
      }
    }
    if (has_thread) {
      jobs_.push_back(std::move(job));
      changed_.notify_all();
      return;
    }
  }
  Do(job);
}

void Attendant::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Do(job);
    job = {};  // What it holds goes before the next one.
    lock.lock();
  }
}

void Attendant::Do(const Job& job) {
  bool is_well = true;
  for (const EventHandle& event : job.events) {
    // One by one: a list may end at its first failure, with the others still running.
    const cl_event raw = event.get();
    clWaitForEvents(1, &raw);
    cl_int status = CL_COMPLETE;
    clGetEventInfo(raw, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    is_well = is_well && status == CL_COMPLETE;
  }
  job.then(is_well);
}

}  // namespace tandem::opencl
