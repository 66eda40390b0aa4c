// The reservation: arenas that serve all plans of a scheduler, and the homes of states.
//
// The arena of a memory has, chunk by chunk, the largest size that any plan asks for, so switching
// plans costs nothing. Growing replaces arenas (nothing in them outlives a run) and adds homes of
// states (which never move). States begin as zeros. A slice that a failed run may have written is
// undefined until it is reset or written.
//
// One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "scheduler/bind.h"
#include "scheduler/scheduler.h"

namespace tandem {

class Reservation {
 public:
  explicit Reservation(const Machine& machine);

  // What these plans would need, one entry for each memory; weights are left out. Pure.
  std::vector<MemoryUse> Measure(std::span<const std::shared_ptr<const Plan>> plans,
                                 const StateHomes& homes) const;
  // Allocates what is missing and gives back what is too large; changes nothing on failure.
  Result<void> Grow(std::span<const std::shared_ptr<const Plan>> plans, const StateHomes& homes,
                    std::span<const std::unique_ptr<Stream>> streams);

  // Buffers of a plan's replicas (constants and inputs are left null) and scratch.
  std::vector<Storage> Storages(const Plan& plan) const;
  std::vector<Storage> Scratches(const Plan& plan) const;

  Result<void> CheckDefined(const Plan& plan) const;
  void MarkUndefined(const Plan& plan, const std::string& why);

  Result<void> ResetState(const State& state, std::span<const std::unique_ptr<Stream>> streams);
  Result<void> WriteState(const State& state, int slice, std::span<const std::byte> bytes,
                          std::span<const std::unique_ptr<Stream>> streams);
  Result<void> ReadState(const State& state, int slice, std::span<std::byte> bytes,
                         std::span<const std::unique_ptr<Stream>> streams);
  int64_t allocations() const { return allocations_; }

 private:
  using SliceKey = std::pair<const State*, int>;
  struct Home {
    MemoryIndex memory = kNone;
    std::shared_ptr<Buffer> buffer;  // Shared with the other slices in it.
    int64_t offset = 0;
    std::string undefined;  // Why, if it is.
  };
  using Chunks = std::vector<std::unique_ptr<Buffer>>;

  std::vector<std::vector<int64_t>> ChunkBytes(
      std::span<const std::shared_ptr<const Plan>> plans) const;
  Result<std::unique_ptr<Buffer>> AllocateArena(MemoryIndex memory, int64_t bytes) const;
  Result<std::map<SliceKey, Home>> NewHomes(const StateHomes& homes,
                                            std::span<const std::unique_ptr<Stream>> streams,
                                            int64_t& allocations) const;
  DeviceIndex OwnerOf(MemoryIndex memory) const;
  Result<Home*> Find(const State& state, int slice);
  Result<void> Transfer(const Home& home, CopyCall call,
                        std::span<const std::unique_ptr<Stream>> streams) const;

  const Machine& machine_;
  std::vector<Chunks> arenas_;  // By memory.
  std::map<SliceKey, Home> states_;
  int64_t allocations_ = 0;
};

}  // namespace tandem
