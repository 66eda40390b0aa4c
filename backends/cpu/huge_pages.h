// Blocks of some kilobytes to some megabytes on 2 MB pages.
//
// A model's weights are hundreds of buffers of a few hundred kilobytes. Each in a mapping of its
// own would lie on 4 KB pages, and streaming them would walk the page table every 64 lines. Here
// they share regions that ask for huge pages. Only pages that are touched take memory; a region
// that holds nothing is given back. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tandem::cpu {

class HugePages {
 public:
  static constexpr int64_t kPage = int64_t{2} << 20;
  static constexpr int64_t kRegion = int64_t{32} << 20;
  static constexpr int64_t kLargest = kRegion / 4;

  // 64-byte aligned; null if the system has no memory. 0 < bytes <= kLargest.
  std::byte* Allocate(int64_t bytes);
  // What Allocate gave; whether it was given by this object is the answer.
  bool Free(std::byte* data);

 private:
  struct Region {
    std::byte* base = nullptr;
    std::map<int64_t, int64_t> free;  // Offset to bytes; neighbours are merged.
    std::map<int64_t, int64_t> used;
  };

  static std::byte* Take(Region& region, int64_t bytes);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Region>> regions_;
};

// Asks for huge pages where the whole ones of a range lie; a kernel without them says no.
void AdviseHugePages(std::byte* data, int64_t bytes);

}  // namespace tandem::cpu
