// Promises on copies and fills.

#include <algorithm>

#include "tests/conformance/device_test.h"
#include "tests/conformance/random.h"

namespace tandem::conformance {
namespace {

class CopyTest : public DeviceTest {
 protected:
  std::unique_ptr<Buffer> RandomOnHost(int64_t bytes) {
    auto buffer = Take(host(), bytes);
    for (int64_t i = 0; i < bytes; ++i)
      buffer->host()[i] = static_cast<std::byte>(random_.Below(256));
    return buffer;
  }
  static std::vector<std::byte> All(const Buffer& buffer) {
    return std::vector<std::byte>(buffer.host(), buffer.host() + buffer.bytes());
  }
  // The same on plain bytes.
  static void Apply(const CopyCall& call, const std::vector<std::byte>& source,
                    std::vector<std::byte>& target) {
    for (int64_t p = 0; p < call.planes; ++p)
      for (int64_t r = 0; r < call.rows; ++r)
        std::copy_n(source.begin() + call.source_offset + p * call.source_plane_pitch +
                        r * call.source_row_pitch,
                    call.row_bytes,
                    target.begin() + call.target_offset + p * call.target_plane_pitch +
                        r * call.target_row_pitch);
  }

  Random random_{42};
};

enum class Route { kIn, kOut, kWithin, kHost };

TEST_P(CopyTest, MovesBoxesBetweenAllThatItReaches) {
  auto stream = Open(device());
  const CopyCall boxes[] = {
      {.row_bytes = 4096},
      {.source_offset = 1, .target_offset = 3, .row_bytes = 1},
      {.source_offset = 5, .target_offset = 0, .row_bytes = 1001},
      {.source_offset = 128, .target_offset = 256, .row_bytes = 2048},
      // Rows: dense to dense, gathered, scattered, and of a column 4 bytes wide.
      {.source_row_pitch = 64, .target_row_pitch = 64, .row_bytes = 64, .rows = 16},
      {.source_offset = 8,
       .source_row_pitch = 128,
       .target_row_pitch = 36,
       .row_bytes = 36,
       .rows = 20},
      {.source_row_pitch = 7,
       .target_offset = 3,
       .target_row_pitch = 100,
       .row_bytes = 7,
       .rows = 30},
      {.source_offset = 12,
       .source_row_pitch = 256,
       .target_offset = 4,
       .target_row_pitch = 4,
       .row_bytes = 4,
       .rows = 15},
      // Planes.
      {.source_offset = 16,
       .source_row_pitch = 48,
       .source_plane_pitch = 512,
       .target_offset = 1,
       .target_row_pitch = 33,
       .target_plane_pitch = 400,
       .row_bytes = 31,
       .rows = 9,
       .planes = 7},
      // Heads first to tokens first: planes lie between the rows of each other.
      {.source_row_pitch = 64,
       .source_plane_pitch = 512,
       .target_row_pitch = 256,
       .target_plane_pitch = 64,
       .row_bytes = 64,
       .rows = 8,
       .planes = 4},
      {.source_offset = 100,
       .source_plane_pitch = 1000,
       .target_offset = 50,
       .target_plane_pitch = 500,
       .row_bytes = 300,
       .planes = 3},
      // Nothing at all.
      {.source_offset = 4096, .target_offset = 4096, .row_bytes = 0},
      {.source_row_pitch = 8, .target_row_pitch = 8, .row_bytes = 8, .rows = 0},
      {.row_bytes = 8, .planes = 0},
  };
  for (const Route route : {Route::kIn, Route::kOut, Route::kWithin, Route::kHost})
    for (const CopyCall& box : boxes) {
      SCOPED_TRACE(fmt::format("route {}: {} x {} x {} bytes from {} to {}",
                               static_cast<int>(route), box.planes, box.rows, box.row_bytes,
                               box.source_offset, box.target_offset));
      const int64_t bytes = 4096;
      auto first = RandomOnHost(bytes), second = RandomOnHost(bytes);
      const std::vector<std::byte> source_bytes = All(*first);
      std::vector<std::byte> expected = All(*second);
      Apply(box, source_bytes, expected);
      std::unique_ptr<Buffer> source, target;
      if (route == Route::kOut || route == Route::kWithin) {
        source = Take(memory(), bytes);
        ASSERT_OK(CopyAll(*stream, *first, *source));
      } else {
        source = std::move(first);
      }
      if (route == Route::kIn || route == Route::kWithin) {
        target = Take(memory(), bytes);
        ASSERT_OK(CopyAll(*stream, *second, *target));
      } else {
        target = std::move(second);
      }
      ASSERT_OK(Finish(*stream));
      ASSERT_TRUE(device().CopiesBetween(source->memory(), target->memory()));
      CopyCall call = box;
      call.source = source.get();
      call.target = target.get();
      const DeviceCounters before = device().counters();
      ASSERT_OK(stream->Copy(call));
      ASSERT_OK(Finish(*stream));
      const DeviceCounters after = device().counters();
      EXPECT_EQ(Bytes(*stream, *target), expected);
      EXPECT_EQ(Bytes(*stream, *source), source_bytes);
      if (call.Bytes() == 0) continue;
      const bool from_own = &source->memory() == &memory(), to_own = &target->memory() == &memory();
      EXPECT_EQ(after.copies - before.copies, 1);
      EXPECT_EQ(after.bytes_in - before.bytes_in, !from_own && to_own ? call.Bytes() : 0);
      EXPECT_EQ(after.bytes_out - before.bytes_out, from_own && !to_own ? call.Bytes() : 0);
      EXPECT_EQ(after.bytes_within - before.bytes_within, from_own && to_own ? call.Bytes() : 0);
    }
}

TEST_P(CopyTest, MovesWhatIsPinned) {
  auto stream = Open(device());
  const int64_t bytes = 100'003;
  auto in = device().AllocatePinned(bytes), out = device().AllocatePinned(bytes);
  if (!in) {
    EXPECT_EQ(in.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE(in.error().message.empty());
    return;
  }
  ASSERT_OK(out);
  EXPECT_EQ(&(*in)->memory(), &host());
  ASSERT_NE((*in)->host(), nullptr);
  EXPECT_EQ((*in)->bytes(), bytes);
  for (int64_t i = 0; i < bytes; ++i) (*in)->host()[i] = static_cast<std::byte>(random_.Below(256));
  auto own = Take(memory(), bytes);
  ASSERT_OK(CopyAll(*stream, **in, *own));
  ASSERT_OK(CopyAll(*stream, *own, **out));
  ASSERT_OK(Finish(*stream));
  EXPECT_EQ(All(**in), All(**out));
  EXPECT_OK(device().AllocatePinned(0));
}

TEST_P(CopyTest, PinnedCopiesDoNotHoldTheCallerUp) {
  if (!device().properties().asynchronous) GTEST_SKIP() << "a synchronous device";
  auto pinned = device().AllocatePinned(1 << 20);
  if (!pinned) GTEST_SKIP() << pinned.error().message;
  auto stream = Open(device());
  auto own = Take(memory(), 1 << 20);
  Gate gate;
  if (!gate.HoldUp(*stream)) GTEST_SKIP() << "nothing holds this device up";
  const bool returns = ReturnsAtOnce(gate, [&] {
    EXPECT_OK(CopyAll(*stream, **pinned, *own));
    EXPECT_OK(CopyAll(*stream, *own, **pinned));
  });
  EXPECT_TRUE(returns);
  gate.Open();
  EXPECT_OK(Finish(*stream));
}

TEST_P(CopyTest, EitherMakesOrDeclinesACopyBetweenDevices) {
  for (const Subject& partner : Subjects()) {
    if (partner.device == &device()) continue;
    SCOPED_TRACE(partner.name);
    auto stream = Open(device());
    auto theirs = Open(*partner.device);
    const int64_t bytes = 3000;
    auto first = RandomOnHost(bytes), second = RandomOnHost(bytes);
    auto own = Take(memory(), bytes), other = Take(partner.device->memory(), bytes);
    ASSERT_OK(CopyAll(*stream, *first, *own));
    ASSERT_OK(Finish(*stream));
    ASSERT_OK(CopyAll(*theirs, *second, *other));
    ASSERT_OK(Finish(*theirs));
    const CopyCall call{.source = own.get(),
                        .source_offset = 100,
                        .target = other.get(),
                        .target_offset = 7,
                        .row_bytes = 2001};
    std::vector<std::byte> expected = All(*second);
    const auto copied = stream->Copy(call);
    ASSERT_EQ(bool(copied), device().CopiesBetween(own->memory(), other->memory()));
    if (copied) {
      Apply(call, All(*first), expected);
    } else {
      EXPECT_EQ(copied.error().code, ErrorCode::kUnsupported);
      EXPECT_FALSE(copied.error().message.empty());
    }
    // Declining is no failure, and does nothing.
    ASSERT_OK(Finish(*stream));
    EXPECT_EQ(Bytes(*theirs, *other), expected);
  }
}

TEST_P(CopyTest, FillsARangeOrAllOfABuffer) {
  auto stream = Open(device());
  struct Range {
    int64_t offset, bytes;
  };
  for (const int64_t size : {1, 3, 64, 1000, 4099})
    for (const Range range : {Range{0, size}, Range{0, 1}, Range{size - 1, 1},
                              Range{size / 3, size / 2}, Range{size, 0}, Range{0, 0}}) {
      SCOPED_TRACE(fmt::format("{} bytes at {} of {}", range.bytes, range.offset, size));
      auto content = RandomOnHost(size);
      std::vector<std::byte> expected = All(*content);
      auto buffer = Take(memory(), size);
      ASSERT_OK(CopyAll(*stream, *content, *buffer));
      ASSERT_OK(Finish(*stream));
      const int64_t fills = device().counters().fills;
      ASSERT_OK(stream->Fill(*buffer, range.offset, range.bytes, 0xAB));
      std::fill_n(expected.begin() + range.offset, range.bytes, std::byte{0xAB});
      EXPECT_EQ(Bytes(*stream, *buffer), expected);
      const int64_t done = device().counters().fills - fills;
      EXPECT_EQ(done, range.bytes > 0 ? 1 : 0);
      ASSERT_OK(stream->Fill(*buffer, 0x5A));
      EXPECT_EQ(Bytes(*stream, *buffer),
                std::vector<std::byte>(static_cast<size_t>(size), std::byte{0x5A}));
    }
  auto empty = Take(memory(), 0);
  EXPECT_OK(stream->Fill(*empty, 1));
  EXPECT_OK(Finish(*stream));
}

TANDEM_FOR_EACH_SUBJECT(CopyTest);

}  // namespace
}  // namespace tandem::conformance
