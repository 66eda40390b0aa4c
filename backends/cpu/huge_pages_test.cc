#include "backends/cpu/huge_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tandem::cpu {
namespace {

TEST(HugePagesTest, BlocksAreAlignedAndApart) {
  HugePages pages;
  std::mt19937 random(1);
  struct Block {
    std::byte* data;
    int64_t bytes;
    int mark;
  };
  std::vector<Block> blocks;
  for (int turn = 0; turn < 3000; ++turn) {
    if (blocks.size() < 60 && random() % 5 < 3) {
      const int64_t bytes = 1 + static_cast<int64_t>(random() % (int64_t{1} << 20));
      std::byte* data = pages.Allocate(bytes);
      ASSERT_NE(data, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      const int mark = turn % 251;
      data[0] = data[bytes - 1] = static_cast<std::byte>(mark);
      blocks.push_back({data, bytes, mark});
    } else if (!blocks.empty()) {
      const size_t at = random() % blocks.size();
      const Block block = blocks[at];
      ASSERT_EQ(block.data[0], static_cast<std::byte>(block.mark));
      ASSERT_EQ(block.data[block.bytes - 1], static_cast<std::byte>(block.mark));
      ASSERT_TRUE(pages.Free(block.data));
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  for (const Block& block : blocks) EXPECT_TRUE(pages.Free(block.data));
}

TEST(HugePagesTest, FreedNeighboursServeALargerBlock) {
  HugePages pages;
  constexpr int64_t kQuarter = HugePages::kRegion / 4;
  std::byte* keep = pages.Allocate(64);
  std::byte* first = pages.Allocate(kQuarter / 2);
  std::byte* second = pages.Allocate(kQuarter / 2);
  std::byte* third = pages.Allocate(kQuarter);
  EXPECT_TRUE(pages.Free(second));
  EXPECT_TRUE(pages.Free(first));
  EXPECT_EQ(pages.Allocate(kQuarter), first);
  EXPECT_TRUE(pages.Free(first));
  EXPECT_TRUE(pages.Free(third));
  EXPECT_TRUE(pages.Free(keep));
}

TEST(HugePagesTest, KnowsWhatItGave) {
  HugePages pages;
  std::byte other;
  EXPECT_FALSE(pages.Free(&other));
  std::byte* data = pages.Allocate(HugePages::kLargest);
  EXPECT_FALSE(pages.Free(&other));
  EXPECT_TRUE(pages.Free(data));
}

}  // namespace
}  // namespace tandem::cpu
