#include "backends/cpu/team.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace tandem::cpu {
namespace {

// How long a wait lasts before it becomes politer. A balanced product leaves its members apart by
// a few microseconds; between two tokens lie some tens.
constexpr int kPauses = 600;
constexpr int kHelperYields = 150;
constexpr int kLeaderYields = 2000;
constexpr int kMaxMembers = 0xffff;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// What leader and helpers look at.
//
// `open` is the only thing that members contend for: epoch (16 bits), largest member + 1 (16
// bits), chunks not yet taken (32 bits). A member takes a chunk by decrementing it. The leader
// writes the job only while no chunk is open and none is being computed, so a member may read the
// job once it has a chunk.
struct Team::Board {
  alignas(64) std::atomic<uint64_t> open{0};
  alignas(64) std::atomic<uint32_t> done{0};
  alignas(64) Function function = nullptr;
  const void* context = nullptr;
  uint32_t chunks = 0;
  alignas(64) std::atomic<int> threads{1};  // Helpers with a higher number leave.
  // Whether a helper was called and has not left.
  std::unique_ptr<std::atomic<bool>[]> called;

  // Takes a chunk and computes it; false if there is none for this member.
  bool TakeOne(int member) {
    uint64_t seen = open.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(seen) != 0 && member < static_cast<int>(seen >> 32 & 0xffff)) {
      if (open.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        function(context, member, chunks - static_cast<uint32_t>(seen));
        return true;
      }
    }
    return false;
  }

  void Help(int member) {
    for (int idle = 0; idle < kPauses + kHelperYields;) {
      if (member >= threads.load(std::memory_order_relaxed)) break;
      if (TakeOne(member)) {
        done.fetch_add(1, std::memory_order_release);
        idle = 0;
      } else if (idle++ < kPauses) {
        Pause();
      } else {
        std::this_thread::yield();
      }
    }
    called[static_cast<size_t>(member)].store(false, std::memory_order_release);
  }
};

struct Team::Arena {
  explicit Arena(int threads) : arena(threads, 1) {
    // More threads than cores are only made on request (tests, and people who know better).
    if (threads > oneapi::tbb::info::default_concurrency())
      more.emplace(oneapi::tbb::global_control::max_allowed_parallelism,
                   static_cast<size_t>(threads));
  }
  std::optional<oneapi::tbb::global_control> more;
  oneapi::tbb::task_arena arena;
  oneapi::tbb::task_group group;
};

Team::Team(int threads) { SetThreads(threads); }

Team::~Team() { SendHelpersAway(); }

void Team::SetThreads(int threads) {
  threads = std::clamp(threads, 1, kMaxMembers);
  if (threads == threads_) return;
  SendHelpersAway();
  threads_ = threads;
  board_ = std::make_unique<Board>();
  board_->threads = threads;
  board_->called = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(threads));
}

void Team::CallHelpers() {
  for (int member = 1; member < threads_; ++member) {
    std::atomic<bool>& called = board_->called[static_cast<size_t>(member)];
    if (called.load(std::memory_order_acquire)) continue;
    called.store(true, std::memory_order_relaxed);
    if (!arena_) arena_ = std::make_unique<Arena>(threads_);
    arena_->arena.execute(
        [&] { arena_->group.run([board = board_.get(), member] { board->Help(member); }); });
  }
}

void Team::SendHelpersAway() {
  if (!arena_) return;
  board_->threads.store(0, std::memory_order_relaxed);
  // Waiting takes the tasks of those who have not come.
  arena_->arena.execute([&] { arena_->group.wait(); });
  arena_.reset();
}

void Team::Share(Function function, const void* context, uint32_t chunks, int max_members) {
  Board& board = *board_;
  CallHelpers();
  board.function = function;
  board.context = context;
  board.chunks = chunks;
  board.done.store(0, std::memory_order_relaxed);
  const uint64_t epoch = (board.open.load(std::memory_order_relaxed) >> 48) + 1;
  const uint64_t limit = static_cast<uint64_t>(std::min(max_members, kMaxMembers));
  board.open.store(epoch << 48 | limit << 32 | chunks, std::memory_order_release);
  uint32_t mine = 0;
  while (board.TakeOne(0)) ++mine;
  for (int turn = 0; board.done.load(std::memory_order_acquire) != chunks - mine; ++turn) {
    if (turn < kPauses) {
      Pause();
    } else if (turn < kPauses + kLeaderYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace tandem::cpu
