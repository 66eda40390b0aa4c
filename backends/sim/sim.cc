#include "backends/sim/sim.h"

#include <algorithm>
#include <system_error>

#include "backends/sim/faults.h"
#include "backends/sim/memory.h"
#include "backends/sim/stream.h"
#include "backends/sim/weights.h"

namespace tandem {
namespace sim {
namespace {

// Where devices that pack weights do it: the matrices.
bool IsWeight(const OpDefinition& op, size_t input) {
  return (op.name == "matmul" && input == 1) || (op.name == "rows" && input == 0);
}

class SimDevice final : public Device {
 public:
  SimDevice(SimOptions options, Memory& host)
      : options_(std::move(options)),
        name_("sim:" + options_.name),
        host_(host),
        faults_(name_),
        memory_(options_, name_, faults_) {}

  std::string_view name() const override { return name_; }

  DeviceProperties properties() const override {
    DeviceProperties properties;
    properties.kind = DeviceKind::kSimulated;
    properties.description =
        options_.memory == INT64_MAX
            ? "simulated: reference kernels, unlimited memory"
            : fmt::format("simulated: reference kernels, {} bytes of memory", options_.memory);
    properties.asynchronous = !options_.synchronous;
    properties.waits_for_others = options_.waits_for_others && !options_.synchronous;
    return properties;
  }

  Memory& memory() override { return memory_; }

  Access AccessTo(const Memory& memory) const override {
    if (&memory == &memory_) return Access::kWrite;
    if (&memory == &host_ && options_.reads_host) return Access::kRead;
    return Access::kNone;
  }

  bool CopiesBetween(const Memory& source, const Memory& target) const override {
    if (&source == &memory_) return Copies(target);
    if (&target == &memory_) return Copies(source);
    return source.properties().host_access && target.properties().host_access;
  }

  Result<KernelChoice> FindKernel(const KernelQuery& query) const override {
    const auto& declined = options_.unsupported;
    if (std::find(declined.begin(), declined.end(), query.op->name) != declined.end())
      return Fail(ErrorCode::kUnsupported, "device {}: is told not to support {}", name_,
                  query.op->name);
    if (query.op->reference == nullptr)
      return Fail(ErrorCode::kUnsupported, "device {}: op {} has no reference kernel", name_,
                  query.op->name);
    KernelChoice choice;
    choice.kernel = query.op;
    choice.scratch_bytes = options_.scratch;
    for (size_t i = 0; i < query.inputs.size(); ++i) {
      const bool packs = options_.packs_weights && query.constant[i] && IsWeight(*query.op, i);
      const int64_t bytes = query.inputs[i].PackedBytes();
      choice.weights.push_back(packs ? PackedLayout(bytes) : WeightLayout{"", bytes});
    }
    return choice;
  }

  Result<void> Pack(const WeightLayout& layout, Type type, std::span<const int64_t> dims,
                    const std::byte* source, std::byte* target) const override {
    if (!IsPacked(layout)) return Device::Pack(layout, type, dims, source, target);
    const WeightLayout expected = PackedLayout(Contiguous(type, dims).PackedBytes());
    if (layout != expected)
      return Fail(ErrorCode::kInvalid, "device {}: layout {} has {} bytes here, not {}", name_,
                  layout.name, expected.bytes, layout.bytes);
    PackBytes(layout, source, target);
    return {};
  }

  Result<std::unique_ptr<Buffer>> AllocatePinned(int64_t bytes) override {
    if (options_.synchronous) return Device::AllocatePinned(bytes);
    return host_.Allocate(bytes);
  }

  Result<std::unique_ptr<Stream>> CreateStream() override {
    try {
      return std::make_unique<SimStream>(*this, memory_, options_, faults_, counters_);
    } catch (const std::system_error& error) {
      return Fail(ErrorCode::kDevice, "device {}: no thread for a stream: {}", name_, error.what());
    }
  }

  DeviceCounters counters() const override {
    return {.kernels = counters_.kernels,
            .copies = counters_.copies,
            .bytes_in = counters_.bytes_in,
            .bytes_out = counters_.bytes_out,
            .bytes_within = counters_.bytes_within,
            .fills = counters_.fills,
            .handovers = counters_.handovers};
  }

  const SimOptions& options() const { return options_; }
  Faults& faults() { return faults_; }
  const Faults& faults() const { return faults_; }

 private:
  // Between its own memory and this one.
  bool Copies(const Memory& other) const {
    if (&other == &memory_ || other.properties().host_access) return true;
    const auto* simulated = dynamic_cast<const SimMemory*>(&other);
    return simulated != nullptr && !options_.declines_copies && !simulated->declines_copies();
  }

  const SimOptions options_;
  const std::string name_;
  Memory& host_;
  Faults faults_;
  SimMemory memory_;
  LiveCounters counters_;
};

class SimBackend final : public Backend {
 public:
  explicit SimBackend(Memory& host) : host_(host) {}

  std::string_view name() const override { return "sim"; }
  std::span<Device* const> devices() const override { return devices_; }
  std::string_view unavailable() const override { return unavailable_; }
  void* Extension(std::string_view) const override { return nullptr; }

  Result<Device*> Add(const SimOptions& options) {
    for (const auto& device : owned_)
      if (device->options().name == options.name)
        return Fail(ErrorCode::kInvalid,
                    "sim: there is a device {} already; another needs a name=... of its own",
                    device->name());
    owned_.push_back(std::make_unique<SimDevice>(options, host_));
    devices_.push_back(owned_.back().get());
    if (!has_left_out_) unavailable_.clear();
    return devices_.back();
  }

  void LeaveOut(const Error& error) {
    unavailable_ = error.message;
    has_left_out_ = true;
  }

 private:
  Memory& host_;
  std::vector<std::unique_ptr<SimDevice>> owned_;
  std::vector<Device*> devices_;
  std::string unavailable_ = "none is made yet; a device named sim:KEY=VALUE,... makes one";
  bool has_left_out_ = false;
};

}  // namespace
}  // namespace sim

std::unique_ptr<Backend> MakeSimBackend(std::vector<SimOptions> devices, Memory& host) {
  auto backend = std::make_unique<sim::SimBackend>(host);
  for (const SimOptions& options : devices)
    if (auto added = backend->Add(options); !added) backend->LeaveOut(added.error());
  return backend;
}

Result<Device*> AddSimDevice(Backend& backend, const SimOptions& options) {
  auto* simulated = dynamic_cast<sim::SimBackend*>(&backend);
  if (simulated == nullptr)
    return Fail(ErrorCode::kInvalid, "backend {}: is not the one of simulated devices",
                backend.name());
  return simulated->Add(options);
}

const SimOptions& OptionsOf(const Device& device) {
  return static_cast<const sim::SimDevice&>(device).options();
}

void ArmFault(Device& device, SimFault fault) {
  static_cast<sim::SimDevice&>(device).faults().Arm(fault);
}

int ClearFaults(Device& device) { return static_cast<sim::SimDevice&>(device).faults().Clear(); }

int64_t CallCount(const Device& device, SimCall call) {
  return static_cast<const sim::SimDevice&>(device).faults().Count(call);
}

}  // namespace tandem
