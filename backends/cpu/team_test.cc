#include "backends/cpu/team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tandem::cpu {
namespace {

TEST(TeamTest, EachChunkIsDoneOnce) {
  for (int threads : {1, 2, 3, 5}) {
    Team team(threads);
    EXPECT_EQ(team.threads(), threads);
    for (int64_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(chunks));
      team.Run(chunks, [&](int member, int64_t chunk) {
        ASSERT_LT(member, threads);
        ++done[static_cast<size_t>(chunk)];
      });
      for (const auto& count : done) EXPECT_EQ(count, 1);
    }
  }
}

TEST(TeamTest, ManySmallJobsInARow) {
  Team team(4);
  int64_t sums[8] = {};
  for (int turn = 0; turn < 20000; ++turn)
    team.Run(8, [&](int, int64_t chunk) { sums[chunk] += turn; });  // One at a time each.
  for (int64_t sum : sums) EXPECT_EQ(sum, 20000ll * 19999 / 2);
}

TEST(TeamTest, MembersOfAJobAreLimited) {
  Team team(4);
  for (int turn = 0; turn < 200; ++turn)
    team.Run(50, 2, [&](int member, int64_t) { ASSERT_LT(member, 2); });
}

TEST(TeamTest, NoMemberComputesTwoChunksAtOnce) {
  Team team(3);
  std::atomic<int> busy[3] = {};
  for (int turn = 0; turn < 500; ++turn)
    team.Run(20, [&](int member, int64_t) {
      ASSERT_EQ(++busy[member], 1);
      --busy[member];
    });
}

TEST(TeamTest, HelpersLeaveAndComeBack) {
  Team team(2);
  for (int turn = 0; turn < 5; ++turn) {
    std::atomic<int> helped{0};
    // Until a helper took part; the leader alone would end at once.
    for (int tries = 0; tries < 2000 && helped == 0; ++tries)
      team.Run(4, [&](int member, int64_t) {
        helped += member;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      });
    EXPECT_GT(helped, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST(TeamTest, SizesChangeBetweenJobs) {
  Team team(1);
  for (int threads : {4, 2, 7, 1, 3}) {
    team.SetThreads(threads);
    std::atomic<int64_t> sum{0};
    team.Run(100, [&](int member, int64_t chunk) {
      ASSERT_LT(member, threads);
      sum += chunk;
    });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(TeamTest, TeamsOfSeveralLeaders) {
  std::vector<std::thread> leaders;
  for (int i = 0; i < 3; ++i)
    leaders.emplace_back([] {
      Team team(3);
      for (int turn = 0; turn < 500; ++turn) {
        std::atomic<int> done{0};
        team.Run(9, [&](int, int64_t) { ++done; });
        ASSERT_EQ(done, 9);
      }
    });
  for (std::thread& leader : leaders) leader.join();
}

}  // namespace
}  // namespace tandem::cpu
