// The backends of this process, and devices by name and kind.
//
// `opencl:0` is a device by name, `opencl` the first of a backend, `gpu`, `accelerator` and `cpu`
// the first of a kind; `gpu` falls back to no other kind, except that an OpenCL device that is no
// GPU answers to `accelerator`. Upper and lower case are the same. `sim:SPEC` makes a simulated
// device (sim/sim.h has the grammar), or gives the one made before from the same options; `sim`
// and `sim:0` are the one with no options, and `sim:NAME` is one that was made.
//
// Thread safe after construction, but for Add() and for Find() of a sim:SPEC.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/device.h"

namespace tandem {

class Registry {
 public:
  // All built-in backends: cpu first, then opencl, then sim (without devices).
  static Registry WithBuiltins();

  Registry() = default;
  ~Registry();
  Registry(Registry&&) = default;
  Registry& operator=(Registry&&) = delete;

  void Add(std::unique_ptr<Backend> backend);
  std::span<const std::unique_ptr<Backend>> backends() const { return backends_; }
  Backend* FindBackend(std::string_view name) const;  // Null if there is none.
  // Valid as long as the registry. The error lists the devices that there are, and why a backend has none.
  Result<Device*> Find(std::string_view spec);
  // The device whose memory is the host's; the registry must have a backend "cpu".
  Device& cpu() const;

 private:
  std::vector<std::unique_ptr<Backend>> backends_;  // Later ones may use the memory of earlier.
};

}  // namespace tandem
