#include "scheduler/plan.h"

#include <algorithm>

namespace tandem {

bool Machine::CanRead(DeviceIndex device, MemoryIndex memory) const {
  if (memory_of[device] == memory) return true;
  // Whoever computes in the host's memory also sees what others map into the host.
  if (memory_of[device] == host_memory && memories[memory]->properties().host_access) return true;
  return devices[device]->AccessTo(*memories[memory]) != Access::kNone;
}

bool Machine::CanWrite(DeviceIndex device, MemoryIndex memory) const {
  return memory_of[device] == memory ||
         devices[device]->AccessTo(*memories[memory]) == Access::kWrite;
}

Result<Machine> MakeMachine(std::span<Device* const> devices) {
  Machine machine;
  for (Device* device : devices) {
    if (device == nullptr) return Fail(ErrorCode::kInvalid, "a device of the list is null");
    for (const Device* other : machine.devices)
      if (other == device || other->name() == device->name())
        return Fail(ErrorCode::kInvalid, "device {} is listed twice", device->name());
    const auto known =
        std::find(machine.memories.begin(), machine.memories.end(), &device->memory());
    const auto memory = static_cast<MemoryIndex>(known - machine.memories.begin());
    if (known == machine.memories.end()) machine.memories.push_back(&device->memory());
    if (machine.host_device == kNone && device->properties().kind == DeviceKind::kCpu) {
      machine.host_device = static_cast<DeviceIndex>(machine.devices.size());
      machine.host_memory = memory;
    }
    machine.devices.push_back(device);
    machine.memory_of.push_back(memory);
  }
  if (machine.host_device == kNone)
    return Fail(ErrorCode::kInvalid,
                "no CPU among the {} devices: one is needed for the host's memory", devices.size());
  return machine;
}

bool SizeBox::Contains(std::span<const int64_t> symbols) const {
  if (symbols.size() != ranges.size()) return false;
  for (size_t i = 0; i < ranges.size(); ++i)
    if (symbols[i] < ranges[i].lower || symbols[i] > ranges[i].upper) return false;
  return true;
}

std::vector<int64_t> UpperBounds(const SizeBox& box) {
  std::vector<int64_t> upper;
  upper.reserve(box.ranges.size());
  for (const SizeRange& range : box.ranges) upper.push_back(range.upper);
  return upper;
}

std::string_view ToString(CopyCause cause) {
  switch (cause) {
    case CopyCause::kActivation:
      return "activation";
    case CopyCause::kInput:
      return "input";
    case CopyCause::kOutput:
      return "output";
    case CopyCause::kStateRead:
      return "state read";
    case CopyCause::kStateWrite:
      return "state write";
  }
  return "unknown";
}

Placed LocateIn(const Graph& graph, const Replica& replica, TensorId tensor,
                std::span<const int64_t> symbols) {
  const TensorId root = graph.tensor(tensor).root;
  // A copied state that was then updated in place holds another root of the same shape.
  if (!replica.is_copy || graph.tensor(replica.region.tensor).root != root)
    return PlaceWithin(graph, tensor, root, RootLayout(graph, root, symbols), symbols);
  const Region& region = replica.region;
  const Tensor& base = graph.tensor(region.tensor);
  Layout packed = Bind(base.type, base.shape, symbols);
  if (region.dim == kNone) return PlaceWithin(graph, tensor, region.tensor, packed, symbols);
  packed.dims[region.dim] = region.size;
  packed = Contiguous(base.type, {packed.dims.data(), static_cast<size_t>(packed.rank)});
  Placed placed = PlaceWithin(graph, tensor, region.tensor, packed, symbols);
  placed.offset -= region.start * packed.strides[region.dim];
  return placed;
}

Placed LocateRegion(const Graph& graph, const Replica& replica, const Region& region,
                    std::span<const int64_t> symbols) {
  Placed placed = LocateIn(graph, replica, region.tensor, symbols);
  if (region.dim != kNone) {
    placed.offset += region.start * placed.layout.strides[region.dim];
    placed.layout.dims[region.dim] = region.size;
  }
  return placed;
}

}  // namespace tandem
