// The weight store: one materialisation of each constant for each memory and layout in use.
//
// A plain constant that the host's devices read is imported: its bytes stay where they are (a
// mapped file). Anything else is packed once on the host and, for a device with memory of its
// own, uploaded. Planning needs no data: layouts and sizes come from devices beforehand.
//
// One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "scheduler/plan.h"

namespace tandem {

class WeightStore {
 public:
  using Key = std::tuple<const Constant*, MemoryIndex, std::string>;  // And a layout's name.

  explicit WeightStore(const Machine& machine) : machine_(machine) {}

  // Notes what these plans need, and gives back what none of them does. Idempotent.
  void Retain(std::span<const std::shared_ptr<const Plan>> plans);
  // Bytes that the store has, or will have, in a memory; and those that it reads in place there.
  int64_t Bytes(MemoryIndex memory) const;
  int64_t ImportedBytes(MemoryIndex memory) const;
  // The largest constant of a memory that is not imported, for checks against its largest buffer.
  struct Largest {
    const Constant* constant = nullptr;
    int64_t bytes = 0;
  };
  Largest LargestIn(MemoryIndex memory) const;

  // Allocates or imports what has no buffer yet, and says what. On failure nothing is kept.
  Result<std::vector<Key>> Allocate();
  // Takes an Allocate() back.
  void Release(std::span<const Key> keys);
  // Fills what is not filled yet. Errors: a constant without data; a device's failure.
  Result<void> Load(std::span<const std::unique_ptr<Stream>> streams,
                    const std::function<void(int64_t done, int64_t total)>& progress);
  bool IsLoaded() const;
  int64_t allocations() const { return allocations_; }  // Buffers taken, imports left out.
  // Null before Allocate().
  Buffer* Find(const Constant& constant, MemoryIndex memory, const WeightLayout& layout) const;

 private:
  struct Entry {
    std::shared_ptr<const Constant> constant;
    DeviceIndex device = kNone;  // That named the layout.
    WeightLayout layout;
    bool imported = false;
    bool loaded = false;
    std::unique_ptr<Buffer> buffer;
  };

  void Want(const Plan& plan, std::set<Key>& wanted);
  Result<void> Fill(const Key& key, Entry& entry, Stream& stream);

  const Machine& machine_;
  std::map<Key, Entry> entries_;
  int64_t allocations_ = 0;
  std::vector<Key> order_;  // In order of first use: files are read forwards.
};

}  // namespace tandem
