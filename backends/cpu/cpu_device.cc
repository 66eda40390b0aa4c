#include "backends/cpu/cpu_device.h"

#include <hwloc.h>

#include <algorithm>
#include <thread>

#include "backends/cpu/cpu.h"

namespace tandem::cpu {

// Cores rather than hardware threads: two threads of one core share the units that these kernels
// keep busy.
CpuDevice::Cores CpuDevice::FindCores() {
  Cores cores{static_cast<int>(std::max(1u, std::thread::hardware_concurrency())), ""};
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return cores;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) != 0)
      hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
    int usable = 0;
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;)
      usable += hwloc_bitmap_intersects(core->cpuset, allowed) != 0 ? 1 : 0;
    if (usable > 0) cores.usable = usable;
    hwloc_bitmap_free(allowed);
    if (const char* model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "CPUModel"))
      cores.model = model;
    for (hwloc_obj_t package = nullptr;
         cores.model.empty() &&
         (package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, package)) != nullptr;)
      if (const char* model = hwloc_obj_get_info_by_name(package, "CPUModel")) cores.model = model;
  }
  hwloc_topology_destroy(topology);
  return cores;
}

CpuDevice::CpuDevice(const Simd& simd, int threads)
    : cores_(FindCores()),
      default_threads_(threads > 0 ? threads : cores_.usable),
      members_(std::max(default_threads_, cores_.usable)) {
  state_.simd = &simd;
  state_.memory = &memory_;
  state_.threads = default_threads_;
}

DeviceProperties CpuDevice::properties() const {
  const int threads = state_.threads;
  // Rough: what one core of these widths does with block weights and gets from memory.
  const double flops = state_.simd->name == "avx512" ? 2.5e11
                       : state_.simd->name == "avx2" ? 1.4e11
                                                     : 5e9;
  return {.kind = DeviceKind::kCpu,
          .description =
              fmt::format("{}, {} thread{}, {}", cores_.model.empty() ? "processor" : cores_.model,
                          threads, threads == 1 ? "" : "s", state_.simd->spelling),
          .asynchronous = true,
          .waits_for_others = true,
          .flops = flops * threads,
          .memory_bandwidth = std::min(25e9 * threads, 2e11),
          .link_bandwidth = 1e10,
          .launch_seconds = 5e-7};
}

Access CpuDevice::AccessTo(const Memory& memory) const {
  if (&memory == &memory_) return Access::kWrite;
  return memory.properties().host_access ? Access::kRead : Access::kNone;
}

Result<KernelChoice> CpuDevice::FindKernel(const KernelQuery& query) const {
  return cpu::FindKernel(query, members_);
}

Result<void> CpuDevice::Pack(const WeightLayout& layout, Type type, std::span<const int64_t> dims,
                             const std::byte* source, std::byte* target) const {
  if (layout.name.empty()) return Device::Pack(layout, type, dims, source, target);
  const std::optional<TileFormat> format = TileFormatOf(layout);
  if (!format || TileFormatOf(type) != format || TileLayout(*format, dims) != layout)
    return Fail(ErrorCode::kUnsupported,
                "device {}: no weight layout named {} of {} bytes for type {}", name(), layout.name,
                layout.bytes, Info(type).name);
  PackTiles(*format, dims, source, target);
  return {};
}

Result<std::unique_ptr<Buffer>> CpuDevice::AllocatePinned(int64_t bytes) {
  return memory_.Allocate(bytes);
}

Result<std::unique_ptr<Stream>> CpuDevice::CreateStream() {
  return std::make_unique<CpuStream>(*this, state_);
}

DeviceCounters CpuDevice::counters() const {
  return {.kernels = state_.kernels,
          .copies = state_.copies,
          .bytes_in = state_.bytes_in,
          .bytes_out = state_.bytes_out,
          .bytes_within = state_.bytes_within,
          .fills = state_.fills,
          .handovers = state_.handovers};
}

void CpuDevice::SetThreads(int threads) {
  state_.threads = threads > 0 ? threads : default_threads_;
}

int CpuDevice::threads() const { return state_.threads; }

namespace {

Result<void> SetThreadsOf(Device& device, int threads) {
  auto* cpu = dynamic_cast<CpuDevice*>(&device);
  if (cpu == nullptr)
    return Fail(ErrorCode::kInvalid, "tandem.cpu.set_threads: device {} is not the CPU's",
                device.name());
  if (threads < 0)
    return Fail(ErrorCode::kInvalid, "tandem.cpu.set_threads: {} threads for device {}", threads,
                device.name());
  cpu->SetThreads(threads);
  return {};
}

int ThreadsOf(const Device& device) {
  const auto* cpu = dynamic_cast<const CpuDevice*>(&device);
  return cpu == nullptr ? 0 : cpu->threads();
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) {
    const Simd* simd = FindSimd(options.isa);
    if (simd == nullptr) {
      unavailable_ = fmt::format("this processor has no instruction set named {}", options.isa);
      return;
    }
    if (options.threads < 0) {
      unavailable_ = fmt::format("{} threads were asked for", options.threads);
      return;
    }
    device_ = std::make_unique<CpuDevice>(*simd, options.threads);
    devices_[0] = device_.get();
  }

  std::string_view name() const override { return "cpu"; }
  std::span<Device* const> devices() const override {
    return {devices_, device_ ? size_t{1} : size_t{0}};
  }
  std::string_view unavailable() const override { return unavailable_; }
  void* Extension(std::string_view name) const override {
    if (name == "tandem.cpu.set_threads")
      return reinterpret_cast<void*>(static_cast<CpuSetThreads>(SetThreadsOf));
    if (name == "tandem.cpu.threads")
      return reinterpret_cast<void*>(static_cast<CpuThreads>(ThreadsOf));
    return nullptr;
  }

 private:
  std::unique_ptr<CpuDevice> device_;
  Device* devices_[1] = {};
  std::string unavailable_;
};

}  // namespace
}  // namespace tandem::cpu

namespace tandem {

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

}  // namespace tandem
