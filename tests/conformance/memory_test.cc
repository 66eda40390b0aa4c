// Promises on memories: counters, limits, alignment, imports, access.

#include <cstdint>

#include "tests/conformance/device_test.h"

namespace tandem::conformance {
namespace {

class MemoryTest : public DeviceTest {};

TEST_P(MemoryTest, CountsWhatIsTaken) {
  const MemoryCounters before = memory().counters();
  auto a = Take(memory(), 1000);
  auto b = Take(memory(), 24);
  MemoryCounters now = memory().counters();
  EXPECT_EQ(now.allocations - before.allocations, 2);
  EXPECT_EQ(now.frees, before.frees);
  EXPECT_EQ(now.live_bytes - before.live_bytes, 1024);
  EXPECT_GE(now.peak_bytes, now.live_bytes);
  EXPECT_EQ(a->bytes(), 1000);
  EXPECT_EQ(&a->memory(), &memory());
  a.reset();
  now = memory().counters();
  EXPECT_EQ(now.frees - before.frees, 1);
  EXPECT_EQ(now.live_bytes - before.live_bytes, 24);
  EXPECT_GE(now.peak_bytes - before.live_bytes, 1024);
  b.reset();
  now = memory().counters();
  EXPECT_EQ(now.frees - before.frees, 2);
  EXPECT_EQ(now.live_bytes, before.live_bytes);
}

TEST_P(MemoryTest, ZeroBytesAreABuffer) {
  const MemoryCounters before = memory().counters();
  auto empty = Take(memory(), 0);
  EXPECT_EQ(empty->bytes(), 0);
  EXPECT_EQ(memory().counters().live_bytes, before.live_bytes);
  auto stream = Open(device());
  auto other = Take(memory(), 0);
  EXPECT_OK(CopyAll(*stream, *empty, *other));
  auto on_host = Take(host(), 0);
  EXPECT_OK(CopyAll(*stream, *on_host, *other));
  EXPECT_OK(Finish(*stream));
}

TEST_P(MemoryTest, SaysWhatItHasNotGot) {
  const MemoryCounters before = memory().counters();
  const int64_t capacity = memory().properties().capacity;
  // More than there is, or than any machine has.
  const int64_t too_much = capacity < INT64_MAX ? capacity - before.live_bytes + 1 : INT64_MAX / 2;
  const auto refused = memory().Allocate(too_much);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message.find(memory().name()), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find(std::to_string(too_much)), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(memory().Allocate(-1));
  const MemoryCounters after = memory().counters();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_TRUE(Take(memory(), 16));  // It goes on.
}

TEST_P(MemoryTest, RefusesMoreThanItsLargestBuffer) {
  const int64_t largest = memory().properties().largest_buffer;
  ASSERT_GT(largest, 0);
  if (largest == INT64_MAX) return;
  const auto refused = memory().Allocate(largest + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message.find(std::to_string(largest + 1)), std::string::npos)
      << refused.error().message;
}

TEST_P(MemoryTest, AlignsWhatTheHostSees) {
  const MemoryProperties properties = memory().properties();
  ASSERT_GT(properties.alignment, 0);
  EXPECT_EQ(properties.alignment & (properties.alignment - 1), 0);
  for (const int64_t bytes : {1, 7, 64, 1000, 100'000}) {
    auto buffer = Take(memory(), bytes);
    ASSERT_EQ(buffer->host() != nullptr, properties.host_access);
    if (buffer->host() == nullptr) continue;
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(buffer->host()) % static_cast<uintptr_t>(properties.alignment),
        0u);
  }
}

TEST_P(MemoryTest, HasAccessToItsOwn) {
  EXPECT_EQ(device().AccessTo(memory()), Access::kWrite);
  EXPECT_FALSE(memory().name().empty());
  EXPECT_TRUE(host().properties().host_access);
  EXPECT_TRUE(device().CopiesBetween(host(), memory()));
  EXPECT_TRUE(device().CopiesBetween(memory(), host()));
  EXPECT_TRUE(device().CopiesBetween(memory(), memory()));
}

// A device that says that it reads a memory does so in a kernel.
TEST_P(MemoryTest, ReadsInPlaceWhereItHasAccess) {
  for (const Subject& partner : Subjects()) {
    Memory& theirs = partner.device->memory();
    if (device().AccessTo(theirs) == Access::kNone) continue;
    SCOPED_TRACE(partner.name);
    auto stream = Open(device());
    auto x = Take(theirs, 64 * sizeof(float)), y = Take(memory(), 64 * sizeof(float));
    auto upload = Open(*partner.device);
    auto values = OnHost(std::vector<float>(64, 4.0f));
    ASSERT_OK(CopyAll(*upload, *values, *x));
    ASSERT_OK(Finish(*upload));
    const ScaleCall call(device(), *x, *y, 64, 2.0, 1.0);
    ASSERT_OK(stream->Run(call.calls()));
    EXPECT_EQ(Floats(*stream, *y), std::vector<float>(64, 9.0f));
  }
}

TEST_P(MemoryTest, TakesHostMemoryInPlaceOrSaysNo) {
  const size_t count = 4096;
  auto owner = std::make_shared<std::vector<float>>(count, 2.5f);
  const std::weak_ptr<std::vector<float>> watched = owner;
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  const MemoryCounters before = memory().counters();
  auto imported = memory().Import(data, count * sizeof(float), owner);
  owner.reset();
  if (!imported) {
    EXPECT_EQ(imported.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE(imported.error().message.empty());
    EXPECT_TRUE(watched.expired());
    return;
  }
  const MemoryCounters now = memory().counters();
  EXPECT_EQ(now.allocations - before.allocations, 1);
  EXPECT_EQ(now.live_bytes, before.live_bytes);
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ((*imported)->bytes(), static_cast<int64_t>(count * sizeof(float)));
  {
    auto stream = Open(device());
    auto y = Take(memory(), (*imported)->bytes());
    const ScaleCall call(device(), **imported, *y, count, 2.0, 0.0);
    ASSERT_OK(stream->Run(call.calls()));
    EXPECT_EQ(Floats(*stream, *y), std::vector<float>(count, 5.0f));
    EXPECT_EQ(Floats(*stream, **imported), std::vector<float>(count, 2.5f));
  }
  imported->reset();
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(memory().counters().live_bytes, before.live_bytes);
}

TEST_P(MemoryTest, DescribesItsDevice) {
  const DeviceProperties properties = device().properties();
  EXPECT_FALSE(device().name().empty());
  EXPECT_FALSE(properties.description.empty());
  EXPECT_GT(properties.flops, 0);
  EXPECT_GT(properties.memory_bandwidth, 0);
  EXPECT_GT(properties.link_bandwidth, 0);
  EXPECT_GE(properties.launch_seconds, 0);
}

TANDEM_FOR_EACH_SUBJECT(MemoryTest);

}  // namespace
}  // namespace tandem::conformance
