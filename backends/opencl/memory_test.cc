#include "backends/opencl/memory.h"

#include "backends/opencl/copy.h"
#include "backends/opencl/test_device.h"

namespace tandem::opencl {
namespace {

class MemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test_.is_there()) GTEST_SKIP() << test_.missing();
  }
  TestDevice test_;
};

TEST_F(MemoryTest, SaysWhatItIs) {
  Device& device = test_.device();
  EXPECT_EQ(device.name(), "opencl:0");
  EXPECT_EQ(device.memory().name(), "opencl:0");
  EXPECT_NE(device.properties().kind, DeviceKind::kCpu);
  EXPECT_NE(device.properties().description.find("compute units"), std::string::npos);
  const MemoryProperties properties = device.memory().properties();
  EXPECT_GE(properties.alignment, 64);
  EXPECT_GT(properties.largest_buffer, 0);
  EXPECT_GE(properties.capacity, properties.largest_buffer);
  EXPECT_FALSE(properties.host_access);
  EXPECT_EQ(device.AccessTo(device.memory()), Access::kWrite);
  EXPECT_EQ(device.AccessTo(test_.host), Access::kNone);
  EXPECT_TRUE(device.CopiesBetween(device.memory(), test_.host));
}

TEST_F(MemoryTest, CountsWhatIsTaken) {
  Memory& memory = test_.device().memory();
  {
    auto a = test_.Take(1000), b = test_.Take(500), empty = test_.Take(0);
    EXPECT_EQ(memory.counters().live_bytes, 1500);
    EXPECT_EQ(a->host(), nullptr);
    EXPECT_EQ(empty->bytes(), 0);
  }
  const MemoryCounters counters = memory.counters();
  EXPECT_EQ(counters.allocations, 3);
  EXPECT_EQ(counters.frees, 3);
  EXPECT_EQ(counters.live_bytes, 0);
  EXPECT_EQ(counters.peak_bytes, 1500);
}

TEST_F(MemoryTest, RefusesWhatIsTooMuch) {
  Memory& memory = test_.device().memory();
  const MemoryProperties properties = memory.properties();
  const auto larger = memory.Allocate(properties.largest_buffer + 1);
  ASSERT_FALSE(larger);
  EXPECT_EQ(larger.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(larger.error().message.find(std::to_string(properties.largest_buffer)),
            std::string::npos);
  EXPECT_EQ(memory.Allocate(-1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(memory.counters().allocations, 0);
  EXPECT_EQ(memory.counters().live_bytes, 0);
}

TEST_F(MemoryTest, PinnedBytesAreTheHosts) {
  const auto pinned_bytes =
      reinterpret_cast<OpenClPinnedBytes>(test_.backend->Extension("tandem.opencl.pinned_bytes"));
  ASSERT_NE(pinned_bytes, nullptr);
  EXPECT_EQ(test_.backend->Extension("tandem.opencl.other"), nullptr);
  Device& device = test_.device();
  {
    auto pinned = device.AllocatePinned(4096);
    ASSERT_TRUE(pinned) << pinned.error().message;
    EXPECT_EQ(&(*pinned)->memory(), &test_.host);
    ASSERT_NE((*pinned)->host(), nullptr);
    EXPECT_EQ(pinned_bytes(device), 4096);
    EXPECT_EQ(device.memory().counters().live_bytes, 0);
    EXPECT_EQ(test_.host.counters().allocations, 1);
    std::memset((*pinned)->host(), 0x5A, 4096);
    auto stream = test_.Open();
    auto on_device = test_.Take(4096);
    ASSERT_TRUE(
        stream->Copy({.source = pinned->get(), .target = on_device.get(), .row_bytes = 4096}));
    EXPECT_EQ(test_.Download(*stream, *on_device), std::vector<std::byte>(4096, std::byte{0x5A}));
  }
  EXPECT_EQ(pinned_bytes(device), 0);
  auto empty = device.AllocatePinned(0);
  ASSERT_TRUE(empty);
  EXPECT_EQ((*empty)->bytes(), 0);
}

TEST_F(MemoryTest, ADeviceIsFoundOrMissedWithAReason) {
  EXPECT_EQ(test_.backend->name(), "opencl");
  EXPECT_EQ(test_.backend->unavailable(), "");
}

// The bytes that a box moves, one by one.
std::vector<std::pair<int64_t, int64_t>> BytesOfBox(const CopyCall& box) {
  std::vector<std::pair<int64_t, int64_t>> moved;
  for (int64_t plane = 0; plane < box.planes; ++plane)
    for (int64_t row = 0; row < box.rows; ++row)
      for (int64_t i = 0; i < box.row_bytes; ++i)
        moved.emplace_back(
            box.source_offset + plane * box.source_plane_pitch + row * box.source_row_pitch + i,
            box.target_offset + plane * box.target_plane_pitch + row * box.target_row_pitch + i);
  return moved;
}

TEST(Transfers, AreTogetherTheBox) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 3000; ++i) {
    CopyCall box;
    box.row_bytes = 1 + below(5);
    box.rows = 1 + below(4);
    box.planes = 1 + below(3);
    box.source_offset = below(3);
    box.target_offset = below(3);
    // Often such that runs, rows or planes follow each other.
    const auto pitch = [&](int64_t least) { return below(2) == 0 ? least : below(24); };
    box.source_row_pitch = pitch(box.row_bytes);
    box.target_row_pitch = pitch(box.row_bytes);
    box.source_plane_pitch = pitch(box.rows * box.source_row_pitch);
    box.target_plane_pitch = pitch(box.rows * box.target_row_pitch);
    std::vector<std::pair<int64_t, int64_t>> moved;
    for (const CopyCall& part : SplitIntoTransfers(box)) {
      const auto bytes = BytesOfBox(part);
      moved.insert(moved.end(), bytes.begin(), bytes.end());
      if (part.rows == 1 && part.planes == 1) continue;
      EXPECT_GE(part.source_row_pitch, part.row_bytes);
      EXPECT_GE(part.target_row_pitch, part.row_bytes);
      if (part.planes == 1) continue;
      EXPECT_GE(part.source_plane_pitch, part.rows * part.source_row_pitch);
      EXPECT_GE(part.target_plane_pitch, part.rows * part.target_row_pitch);
      EXPECT_EQ(part.source_plane_pitch % part.source_row_pitch, 0);
      EXPECT_EQ(part.target_plane_pitch % part.target_row_pitch, 0);
    }
    auto expected = BytesOfBox(box);
    std::sort(expected.begin(), expected.end());
    std::sort(moved.begin(), moved.end());
    ASSERT_EQ(moved, expected) << i;
  }
}

TEST(Transfers, AreFewWhereRectanglesDo) {
  const CopyCall plain{.row_bytes = 64, .rows = 8, .planes = 2};
  CopyCall packed = plain;
  packed.source_row_pitch = packed.target_row_pitch = 64;
  packed.source_plane_pitch = packed.target_plane_pitch = 512;
  ASSERT_EQ(SplitIntoTransfers(packed).size(), 1u);
  EXPECT_EQ(SplitIntoTransfers(packed)[0].row_bytes, 1024);
  CopyCall strided = packed;
  strided.source_row_pitch = 100;
  strided.source_plane_pitch = 1000;
  EXPECT_EQ(SplitIntoTransfers(strided).size(), 1u);
  // Heads first on one side, tokens first on the other.
  CopyCall permuted = packed;
  permuted.target_row_pitch = 128;
  permuted.target_plane_pitch = 64;
  EXPECT_EQ(SplitIntoTransfers(permuted).size(), 2u);
}

}  // namespace
}  // namespace tandem::opencl
