#include "backends/cpu/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace tandem::cpu {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

void AdviseHugePages(std::byte* data, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto start = (reinterpret_cast<uintptr_t>(data) + HugePages::kPage - 1) / HugePages::kPage *
                     HugePages::kPage;
  const auto end = reinterpret_cast<uintptr_t>(data + bytes) / HugePages::kPage * HugePages::kPage;
  if (end > start) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#else
  static_cast<void>(data);
  static_cast<void>(bytes);
#endif
}

// First fit: buffers of a model are made together and freed together.
std::byte* HugePages::Take(Region& region, int64_t bytes) {
  for (auto block = region.free.begin(); block != region.free.end(); ++block) {
    const auto [offset, size] = *block;
    if (size < bytes) continue;
    region.free.erase(block);
    if (size > bytes) region.free.emplace(offset + bytes, size - bytes);
    region.used.emplace(offset, bytes);
    return region.base + offset;
  }
  return nullptr;
}

std::byte* HugePages::Allocate(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard lock(mutex_);
  for (const auto& region : regions_)
    if (std::byte* data = Take(*region, rounded)) return data;
  void* base = nullptr;
  if (posix_memalign(&base, kPage, kRegion) != 0) return nullptr;
  auto region = std::make_unique<Region>();
  region->base = static_cast<std::byte*>(base);
  region->free.emplace(0, kRegion);
  AdviseHugePages(region->base, kRegion);
  std::byte* data = Take(*region, rounded);
  regions_.push_back(std::move(region));
  return data;
}

bool HugePages::Free(std::byte* data) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const auto& region) {
    return data >= region->base && data < region->base + kRegion;
  });
  if (found == regions_.end()) return false;
  Region& region = **found;
  const auto block = region.used.find(data - region.base);
  int64_t offset = block->first, bytes = block->second;
  region.used.erase(block);
  if (region.used.empty()) {
    std::free(region.base);
    regions_.erase(found);
    return true;
  }
  auto next = region.free.lower_bound(offset);
  if (next != region.free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = region.free.erase(next);
  }
  if (next != region.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      region.free.erase(before);
    }
  }
  region.free.emplace(offset, bytes);
  return true;
}

}  // namespace tandem::cpu
