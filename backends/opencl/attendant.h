// A thread that waits for events in place of a stream's user.
//
// Why not clSetEventCallback. The standard says that a callback comes for a failed event too; PoCL
// 3.1 then makes none, and whoever relied on it waits for ever. A wait returns either way. The
// thread starts with the first job, so streams that nobody attends have none.
//
// Jobs are done in the order in which they came: what a job waits for must not depend on a later
// one. Thread safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/opencl/handle.h"

namespace tandem::opencl {

class Attendant {
 public:
  Attendant() = default;
  Attendant(const Attendant&) = delete;
  ~Attendant();  // Does what is left.

  // Calls `then` once all events have ended; true if all ended well.
  void When(std::vector<EventHandle> events, std::function<void(bool)> then);

 private:
  struct Job {
    std::vector<EventHandle> events;
    std::function<void(bool)> then;
  };
  void Loop();
  static void Do(const Job& job);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace tandem::opencl
