#include "scheduler/reservation.h"

#include <algorithm>

namespace tandem {
namespace {

int64_t AlignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

Result<void> Finish(Stream& stream, const Result<void>& enqueued) {
  const Result<void> finished = stream.Synchronize(stream.Record());
  if (enqueued && finished) return {};
  stream.Reset();
  return enqueued ? finished : enqueued;
}

}  // namespace

Reservation::Reservation(const Machine& machine)
    : machine_(machine), arenas_(machine.memories.size()) {}

std::vector<std::vector<int64_t>> Reservation::ChunkBytes(
    std::span<const std::shared_ptr<const Plan>> plans) const {
  std::vector<std::vector<int64_t>> bytes(machine_.memories.size());
  for (const auto& plan : plans)
    for (const ArenaUse& arena : plan->arenas) {
      std::vector<int64_t>& chunks = bytes[arena.memory];
      chunks.resize(std::max(chunks.size(), arena.chunk_bytes.size()), 0);
      for (size_t c = 0; c < arena.chunk_bytes.size(); ++c)
        chunks[c] = std::max(chunks[c], arena.chunk_bytes[c]);
    }
  return bytes;
}

std::vector<MemoryUse> Reservation::Measure(std::span<const std::shared_ptr<const Plan>> plans,
                                            const StateHomes& homes) const {
  std::vector<MemoryUse> use(machine_.memories.size());
  const std::vector<std::vector<int64_t>> chunks = ChunkBytes(plans);
  for (size_t m = 0; m < use.size(); ++m) {
    use[m].memory = machine_.memories[m]->name();
    for (const int64_t bytes : chunks[m]) use[m].arenas += bytes;
  }
  for (const auto& plan : plans)
    for (const ArenaUse& arena : plan->arenas)
      use[arena.memory].arena_lower_bound =
          std::max(use[arena.memory].arena_lower_bound, arena.lower_bound);
  for (const auto& [slice, memory] : homes)
    use[memory].states +=
        AlignUp(slice.first->SliceBytes(), machine_.memories[memory]->properties().alignment);
  return use;
}

DeviceIndex Reservation::OwnerOf(MemoryIndex memory) const {
  return static_cast<DeviceIndex>(
      std::find(machine_.memory_of.begin(), machine_.memory_of.end(), memory) -
      machine_.memory_of.begin());
}

// The host's arena is pinned where another device has such memory: transfers then overlap.
Result<std::unique_ptr<Buffer>> Reservation::AllocateArena(MemoryIndex memory,
                                                           int64_t bytes) const {
  if (memory == machine_.host_memory)
    for (size_t d = 0; d < machine_.devices.size(); ++d) {
      if (machine_.memory_of[d] == memory) continue;
      auto pinned = machine_.devices[d]->AllocatePinned(bytes);
      if (pinned || pinned.error().code != ErrorCode::kUnsupported) return pinned;
    }
  return machine_.memories[memory]->Allocate(bytes);
}

Result<std::map<Reservation::SliceKey, Reservation::Home>> Reservation::NewHomes(
    const StateHomes& homes, std::span<const std::unique_ptr<Stream>> streams,
    int64_t& allocations) const {
  std::map<SliceKey, Home> made;
  for (size_t m = 0; m < machine_.memories.size(); ++m) {
    const MemoryProperties properties = machine_.memories[m]->properties();
    std::vector<Home*> group;  // Of one buffer to be.
    int64_t bytes = 0;
    const auto allocate = [&]() -> Result<void> {
      if (group.empty()) return {};
      TANDEM_ASSIGN(std::shared_ptr<Buffer> buffer, machine_.memories[m]->Allocate(bytes));
      ++allocations;
      for (Home* home : group) home->buffer = buffer;
      Stream& stream = *streams[OwnerOf(static_cast<MemoryIndex>(m))];
      TANDEM_CHECK(Finish(stream, stream.Fill(*buffer, 0)));
      group.clear();
      bytes = 0;
      return {};
    };
    for (const auto& [slice, memory] : homes) {
      if (memory != static_cast<MemoryIndex>(m) || states_.contains(slice)) continue;
      const int64_t needed = AlignUp(slice.first->SliceBytes(), properties.alignment);
      if (needed > properties.largest_buffer)
        return Fail(
            ErrorCode::kOutOfMemory,
            "state {} slice {} needs {} bytes in memory {}, whose largest buffer is {} bytes",
            slice.first->name, slice.second, needed, machine_.memories[m]->name(),
            properties.largest_buffer);
      if (needed > properties.largest_buffer - bytes) TANDEM_CHECK(allocate());
      Home& home = made[slice];
      home.memory = memory;
      home.offset = bytes;
      group.push_back(&home);
      bytes += needed;
    }
    TANDEM_CHECK(allocate());
  }
  return made;
}

Result<void> Reservation::Grow(std::span<const std::shared_ptr<const Plan>> plans,
                               const StateHomes& homes,
                               std::span<const std::unique_ptr<Stream>> streams) {
  const std::vector<std::vector<int64_t>> wanted = ChunkBytes(plans);
  int64_t allocations = 0;
  TANDEM_ASSIGN(auto made, NewHomes(homes, streams, allocations));
  std::vector<Chunks> arenas(arenas_.size());
  for (size_t m = 0; m < arenas.size(); ++m) {
    arenas[m].resize(wanted[m].size());
    for (size_t c = 0; c < wanted[m].size(); ++c) {
      if (c < arenas_[m].size() && arenas_[m][c]->bytes() == wanted[m][c]) continue;
      TANDEM_ASSIGN(arenas[m][c], AllocateArena(static_cast<MemoryIndex>(m), wanted[m][c]));
      ++allocations;
    }
  }
  for (size_t m = 0; m < arenas.size(); ++m) {
    for (size_t c = 0; c < arenas[m].size(); ++c)
      if (arenas[m][c] == nullptr) arenas[m][c] = std::move(arenas_[m][c]);
    arenas_[m] = std::move(arenas[m]);
  }
  std::erase_if(states_, [&](const auto& home) { return !homes.contains(home.first); });
  states_.merge(made);
  allocations_ += allocations;
  return {};
}

std::vector<Storage> Reservation::Storages(const Plan& plan) const {
  std::vector<Storage> storages(plan.replicas.size());
  for (size_t r = 0; r < storages.size(); ++r) {
    const Replica& replica = plan.replicas[r];
    if (replica.kind == ReplicaKind::kArena && replica.bytes > 0) {
      storages[r] = {arenas_[replica.memory][replica.chunk].get(), replica.offset};
    } else if (replica.kind == ReplicaKind::kState) {
      const Tensor& tensor = plan.graph->tensor(replica.region.tensor);
      const Home& home = states_.at({tensor.state.get(), tensor.slice});
      storages[r] = {home.buffer.get(), home.offset};
    }
  }
  return storages;
}

std::vector<Storage> Reservation::Scratches(const Plan& plan) const {
  std::vector<Storage> storages(plan.scratch.size());
  for (size_t n = 0; n < storages.size(); ++n) {
    const Scratch& scratch = plan.scratch[n];
    if (scratch.bytes == 0) continue;
    const MemoryIndex memory = machine_.memory_of[plan.placement[n].device];
    storages[n] = {arenas_[memory][scratch.chunk].get(), scratch.offset};
  }
  return storages;
}

Result<void> Reservation::CheckDefined(const Plan& plan) const {
  for (const Replica& replica : plan.replicas) {
    if (replica.kind != ReplicaKind::kState) continue;
    const Tensor& tensor = plan.graph->tensor(replica.region.tensor);
    const Home& home = states_.at({tensor.state.get(), tensor.slice});
    if (!home.undefined.empty())
      return Fail(ErrorCode::kUndefined,
                  "state {} slice {} is undefined since a run failed ({}); reset or write it",
                  tensor.state->name, tensor.slice, home.undefined);
  }
  return {};
}

void Reservation::MarkUndefined(const Plan& plan, const std::string& why) {
  for (const NodeId node : plan.order) {
    const Tensor& output = plan.graph->tensor(plan.graph->node(node).output);
    if (output.state != nullptr) states_.at({output.state.get(), output.slice}).undefined = why;
  }
}

Result<Reservation::Home*> Reservation::Find(const State& state, int slice) {
  const auto home = states_.find({&state, slice});
  if (home == states_.end())
    return Fail(ErrorCode::kNotFound, "state {} slice {} is in no reserved graph", state.name,
                slice);
  return &home->second;
}

Result<void> Reservation::ResetState(const State& state,
                                     std::span<const std::unique_ptr<Stream>> streams) {
  bool found = false;
  for (auto& [slice, home] : states_) {
    if (slice.first != &state) continue;
    found = true;
    Stream& stream = *streams[OwnerOf(home.memory)];
    TANDEM_CHECK(Finish(stream, stream.Fill(*home.buffer, home.offset, state.SliceBytes(), 0)));
    home.undefined.clear();
  }
  if (!found) return Fail(ErrorCode::kNotFound, "state {} is in no reserved graph", state.name);
  return {};
}

Result<void> Reservation::Transfer(const Home& home, CopyCall call,
                                   std::span<const std::unique_ptr<Stream>> streams) const {
  Stream& stream = *streams[OwnerOf(home.memory)];
  return Finish(stream, stream.Copy(call));
}

Result<void> Reservation::WriteState(const State& state, int slice,
                                     std::span<const std::byte> bytes,
                                     std::span<const std::unique_ptr<Stream>> streams) {
  TANDEM_ASSIGN(Home * home, Find(state, slice));
  if (static_cast<int64_t>(bytes.size()) != state.SliceBytes())
    return Fail(ErrorCode::kInvalid, "state {} slice {} has {} bytes, not {}", state.name, slice,
                state.SliceBytes(), bytes.size());
  HostBytes host(*machine_.memories[machine_.host_memory]);
  host.Point(bytes.data(), state.SliceBytes());
  CopyCall call;
  call.source = &host;
  call.target = home->buffer.get();
  call.target_offset = home->offset;
  call.row_bytes = state.SliceBytes();
  TANDEM_CHECK(Transfer(*home, call, streams));
  home->undefined.clear();
  return {};
}

Result<void> Reservation::ReadState(const State& state, int slice, std::span<std::byte> bytes,
                                    std::span<const std::unique_ptr<Stream>> streams) {
  TANDEM_ASSIGN(Home * home, Find(state, slice));
  if (static_cast<int64_t>(bytes.size()) != state.SliceBytes())
    return Fail(ErrorCode::kInvalid, "state {} slice {} has {} bytes, not {}", state.name, slice,
                state.SliceBytes(), bytes.size());
  if (!home->undefined.empty())
    return Fail(ErrorCode::kUndefined, "state {} slice {} is undefined since a run failed ({})",
                state.name, slice, home->undefined);
  HostBytes host(*machine_.memories[machine_.host_memory]);
  host.Point(bytes.data(), state.SliceBytes());
  CopyCall call;
  call.source = home->buffer.get();
  call.source_offset = home->offset;
  call.target = &host;
  call.row_bytes = state.SliceBytes();
  return Transfer(*home, call, streams);
}

}  // namespace tandem
