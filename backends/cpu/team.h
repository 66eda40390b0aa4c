// Work inside one node, shared between a stream's own thread and helpers.
//
// The stream's thread, the leader, publishes the chunks of a node; whoever is there takes the
// next one until none is left, and the leader returns when all are done. Helpers are workers of a
// oneTBB arena that are called in when there is something to share and stay from node to node,
// because a token is some hundred products of a few microseconds each: entering and leaving the
// arena for each would cost more than the product.
//
// Nobody depends on helpers: one that has not arrived (the arena is busy, the machine has fewer
// cores) only takes no chunk. An idle helper pauses for some microseconds, then yields, then
// leaves, so that a device that shares the cores has them. One that was called but has not come
// when the team ends is not waited for: its task is then taken back. Which member computes a chunk
// must not influence what is computed; then results are the same for any number of threads.
//
// The leader is always one and the same thread; set_threads may be called from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace tandem::cpu {

class Team {
 public:
  // `threads`, the leader included, at least 1.
  explicit Team(int threads);
  ~Team();

  // Leader only, between two Run().
  void SetThreads(int threads);
  int threads() const { return threads_; }

  // work(member, chunk) for each chunk in [0, chunks), by members in [0, max_members); the leader
  // is member 0. Two chunks that run at once have different members.
  template <class Work>
  void Run(int64_t chunks, int max_members, const Work& work) {
    if (chunks <= 1 || threads_ == 1 || max_members <= 1 || chunks > kMaxChunks) {
      for (int64_t i = 0; i < chunks; ++i) work(0, i);
      return;
    }
    Share([](const void* context, int member,
             int64_t chunk) { (*static_cast<const Work*>(context))(member, chunk); },
          &work, static_cast<uint32_t>(chunks), max_members);
  }
  template <class Work>
  void Run(int64_t chunks, const Work& work) {
    Run(chunks, threads_, work);
  }

 private:
  using Function = void (*)(const void* context, int member, int64_t chunk);
  struct Board;
  static constexpr int64_t kMaxChunks = UINT32_MAX;

  void Share(Function function, const void* context, uint32_t chunks, int max_members);
  void CallHelpers();
  void SendHelpersAway();

  struct Arena;

  int threads_ = 0;
  std::unique_ptr<Board> board_;
  std::unique_ptr<Arena> arena_;  // Made when there is first something to share.
};

}  // namespace tandem::cpu
