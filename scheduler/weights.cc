#include "scheduler/weights.h"

#include <algorithm>

#include "scheduler/host_bytes.h"

namespace tandem {

void WeightStore::Retain(std::span<const std::shared_ptr<const Plan>> plans) {
  std::set<Key> wanted;
  for (const auto& plan : plans) Want(*plan, wanted);
  std::erase_if(entries_, [&](const auto& item) { return !wanted.contains(item.first); });
  std::erase_if(order_, [&](const Key& key) { return !wanted.contains(key); });
}

void WeightStore::Want(const Plan& plan, std::set<Key>& wanted) {
  const auto want = [&](const Operand& operand, DeviceIndex device) {
    if (operand.replica == kNone) return;
    const Replica& replica = plan.replicas[operand.replica];
    if (replica.kind != ReplicaKind::kConstant) return;
    const auto& constant = plan.graph->tensor(replica.region.tensor).constant;
    const Key key{constant.get(), replica.memory, replica.weight.name};
    wanted.insert(key);
    const auto [slot, is_new] = entries_.try_emplace(key);
    if (!is_new) return;
    Entry& entry = slot->second;
    entry.constant = constant;
    entry.device = device;
    entry.layout = replica.weight;
    entry.imported = replica.memory == machine_.host_memory && replica.weight.name.empty();
    order_.push_back(key);
  };
  for (const NodeId node : plan.order)
    for (const Operand& operand : plan.Inputs(node)) want(operand, plan.placement[node].device);
  for (const Operand& output : plan.outputs) want(output, machine_.host_device);
}

int64_t WeightStore::Bytes(MemoryIndex memory) const {
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries_)
    if (std::get<1>(key) == memory && !entry.imported) bytes += entry.layout.bytes;
  return bytes;
}

int64_t WeightStore::ImportedBytes(MemoryIndex memory) const {
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries_)
    if (std::get<1>(key) == memory && entry.imported) bytes += entry.layout.bytes;
  return bytes;
}

WeightStore::Largest WeightStore::LargestIn(MemoryIndex memory) const {
  Largest largest;
  for (const auto& [key, entry] : entries_)
    if (std::get<1>(key) == memory && !entry.imported && entry.layout.bytes > largest.bytes)
      largest = {entry.constant.get(), entry.layout.bytes};
  return largest;
}

Result<std::vector<WeightStore::Key>> WeightStore::Allocate() {
  std::vector<std::pair<Entry*, std::unique_ptr<Buffer>>> made;
  std::vector<Key> keys;
  for (auto& [key, entry] : entries_) {
    if (entry.buffer != nullptr) continue;
    // Nothing to import where a graph is only planned: Load() reports it.
    const Constant& constant = *entry.constant;
    if (entry.imported && constant.data == nullptr && entry.layout.bytes > 0) continue;
    Memory& memory = *machine_.memories[std::get<1>(key)];
    auto buffer = entry.imported ? memory.Import(constant.data, entry.layout.bytes, constant.owner)
                                 : memory.Allocate(entry.layout.bytes);
    if (!buffer)
      return Fail(buffer.error().code, "weight {}: {}", constant.name, buffer.error().message);
    made.emplace_back(&entry, std::move(*buffer));
    keys.push_back(key);
  }
  for (auto& [entry, buffer] : made) {
    if (!entry->imported) ++allocations_;
    entry->buffer = std::move(buffer);
  }
  return keys;
}

void WeightStore::Release(std::span<const Key> keys) {
  for (const Key& key : keys) {
    Entry& entry = entries_.at(key);
    entry.buffer.reset();
    entry.loaded = false;
    if (!entry.imported) --allocations_;
  }
}

Result<void> WeightStore::Load(std::span<const std::unique_ptr<Stream>> streams,
                               const std::function<void(int64_t, int64_t)>& progress) {
  int64_t done = 0, total = 0;
  for (const auto& [key, entry] : entries_)
    if (!entry.loaded) total += entry.layout.bytes;
  for (const Key& key : order_) {
    Entry& entry = entries_.at(key);
    if (entry.loaded) continue;
    TANDEM_CHECK(Fill(key, entry, *streams[entry.device]));
    entry.loaded = true;
    done += entry.layout.bytes;
    if (progress) progress(done, total);
  }
  return {};
}

Result<void> WeightStore::Fill(const Key& key, Entry& entry, Stream& stream) {
  const Constant& constant = *entry.constant;
  if (constant.data == nullptr && constant.Bytes() > 0)
    return Fail(ErrorCode::kInvalid,
                "constant {} has no data: the graph was made for planning only", constant.name);
  if (entry.imported || entry.layout.bytes == 0) return {};
  const Device& device = *machine_.devices[entry.device];
  if (std::byte* host = entry.buffer->host(); host != nullptr)
    return device.Pack(entry.layout, constant.type, constant.dims, constant.data, host);
  const std::byte* source = constant.data;
  std::vector<std::byte> packed;
  if (!entry.layout.name.empty()) {
    packed.resize(static_cast<size_t>(entry.layout.bytes));
    TANDEM_CHECK(device.Pack(entry.layout, constant.type, constant.dims, source, packed.data()));
    source = packed.data();
  }
  HostBytes bytes(*machine_.memories[machine_.host_memory]);
  bytes.Point(source, entry.layout.bytes);
  CopyCall copy;
  copy.source = &bytes;
  copy.target = entry.buffer.get();
  copy.row_bytes = entry.layout.bytes;
  const Result<void> enqueued = stream.Copy(copy);
  const Result<void> finished = stream.Synchronize(stream.Record());
  if (!enqueued || !finished) {
    stream.Reset();
    const Error& error = enqueued ? finished.error() : enqueued.error();
    return Fail(error.code, "loading {} ({} bytes) to {}: {}", constant.name, entry.layout.bytes,
                machine_.memories[std::get<1>(key)]->name(), error.message);
  }
  return {};
}

bool WeightStore::IsLoaded() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& item) { return item.second.loaded; });
}

Buffer* WeightStore::Find(const Constant& constant, MemoryIndex memory,
                          const WeightLayout& layout) const {
  const auto slot = entries_.find({&constant, memory, layout.name});
  return slot == entries_.end() ? nullptr : slot->second.buffer.get();
}

}  // namespace tandem
