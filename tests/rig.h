// A machine for tests: the host and simulated devices, and short ways to build and run graphs.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "graph/builder.h"
#include "graph/ops.h"
#include "gtest/gtest.h"
#include "scheduler/scheduler.h"

namespace tandem::testing_rig {

// Device numbers: the simulated ones come first (D0 is 0), the host last.
struct Rig {
  std::unique_ptr<Backend> cpu, sim;
  std::vector<Device*> devices;

  explicit Rig(std::vector<SimOptions> options) {
    cpu = MakeCpuBackend({.threads = 1, .isa = {}});
    sim = MakeSimBackend(std::move(options), cpu->devices()[0]->memory());
    devices.assign(sim->devices().begin(), sim->devices().end());
    devices.push_back(cpu->devices()[0]);
  }
  DeviceIndex host() const { return static_cast<DeviceIndex>(devices.size() - 1); }

  std::unique_ptr<Scheduler> MakeScheduler(PlanOptions plan = {}) const {
    auto scheduler = Scheduler::Create({.devices = devices, .plan = std::move(plan)});
    EXPECT_TRUE(scheduler) << scheduler.error().message;
    return std::move(*scheduler);
  }
};

inline SimOptions Sim(std::string name) {
  SimOptions options;
  options.name = std::move(name);
  return options;
}

template <class T>
T Must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    throw std::runtime_error(result.error().message);
  }
  return std::move(*result);
}
inline void Must(Result<void> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    throw std::runtime_error(result.error().message);
  }
}

// Pins nodes by name; the rest is free.
inline std::vector<NodePin> Pins(const Graph& graph,
                                 const std::vector<std::pair<std::string, DeviceIndex>>& pins) {
  std::vector<NodePin> result;
  for (const auto& [name, device] : pins) {
    NodePin pin;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id)
      if (graph.node(id).name == name) pin.node = id;
    EXPECT_NE(pin.node, kNone) << name;
    pin.device = device;
    pin.why = "the test says so";
    result.push_back(pin);
  }
  return result;
}

template <class T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

// The elements of an F32 output, in row-major order whatever its strides.
inline std::vector<float> Floats(const HostTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.layout.Elements()));
  const Layout& l = tensor.layout;
  std::vector<int64_t> index(static_cast<size_t>(l.rank), 0);
  for (float& value : values) {
    int64_t offset = 0;
    for (int d = 0; d < l.rank; ++d) offset += index[d] * l.strides[d];
    std::memcpy(&value, tensor.data + offset, sizeof value);
    for (int d = l.rank - 1; d >= 0 && ++index[d] == l.dims[d]; --d) index[d] = 0;
  }
  return values;
}

inline std::shared_ptr<const Constant> MakeConstant(std::string name, std::vector<int64_t> dims,
                                                    std::vector<float> values) {
  auto owner = std::make_shared<std::vector<float>>(std::move(values));
  auto constant = std::make_shared<Constant>();
  constant->name = std::move(name);
  constant->type = Type::kF32;
  constant->dims = std::move(dims);
  constant->data = reinterpret_cast<const std::byte*>(owner->data());
  constant->owner = owner;
  return constant;
}

inline std::shared_ptr<const State> MakeState(std::string name, std::vector<int64_t> dims,
                                              int slices = 1) {
  auto state = std::make_shared<State>();
  state->name = std::move(name);
  state->type = Type::kF32;
  state->dims = std::move(dims);
  state->slices = slices;
  return state;
}

// One graph with one box, reserved and loaded.
inline GraphHandle Ready(Scheduler& scheduler, std::shared_ptr<const Graph> graph,
                         std::vector<NodePin> pins = {}, std::vector<PatternPin> patterns = {}) {
  GraphSpec spec;
  spec.name = "test";
  spec.graph = std::move(graph);
  spec.node_pins = std::move(pins);
  spec.pattern_pins = std::move(patterns);
  const GraphHandle handle = Must(scheduler.Add(std::move(spec)));
  Must(scheduler.Reserve());
  Must(scheduler.Load());
  return handle;
}

}  // namespace tandem::testing_rig
