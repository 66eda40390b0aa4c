#include "tests/conformance/subjects.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "backends/cpu/cpu.h"
#include "backends/opencl/opencl.h"
#include "backends/sim/sim.h"

namespace tandem::conformance {
namespace {

struct Everything {
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<Subject> subjects, partners;
  std::string missing;
  Device* accomplice = nullptr;

  Everything();
  ~Everything() {
    while (!backends.empty()) backends.pop_back();  // Later ones use the memory of earlier ones.
  }

  Backend& Add(std::unique_ptr<Backend> backend) {
    if (backend->devices().empty())
      missing += fmt::format("{}{}: {}", missing.empty() ? "" : "; ", backend->name(),
                             backend->unavailable());
    backends.push_back(std::move(backend));
    return *backends.back();
  }
};

Everything::Everything() {
  Memory* host = nullptr;
  for (const char* isa : {"", "avx512", "avx2", "portable"}) {
    Backend& cpu = Add(MakeCpuBackend({.isa = isa}));
    if (cpu.devices().empty()) continue;
    Device* device = cpu.devices().front();
    if (host == nullptr) host = &device->memory();
    // The best one, which nobody named, is one of the others.
    if (*isa == '\0')
      partners.push_back({"cpu", "cpu", device, &device->memory()});
    else
      subjects.push_back({fmt::format("cpu_{}", isa), "cpu", device, &device->memory()});
  }
  Backend& opencl = Add(MakeOpenClBackend(*host));
  for (size_t i = 0; i < opencl.devices().size(); ++i) {
    subjects.push_back({fmt::format("opencl_{}", i), "opencl", opencl.devices()[i], host});
    if (i == 0) partners.push_back(subjects.back());
  }
  struct Simulated {
    const char* name;
    SimOptions options;
  };
  std::vector<Simulated> simulated(5);
  simulated[0].name = "plain";
  simulated[1].name = "packed";
  simulated[1].options.packs_weights = true;
  simulated[1].options.scratch = 100;
  simulated[1].options.alignment = 4096;
  simulated[2].name = "readable";
  simulated[2].options.host_readable = true;
  simulated[2].options.reads_host = true;
  simulated[2].options.alignment = 1;
  simulated[3].name = "synchronous";
  simulated[3].options.synchronous = true;
  simulated[3].options.declines_copies = true;
  simulated[4].name = "capped";
  simulated[4].options.memory = int64_t{256} << 20;
  simulated[4].options.largest_buffer = int64_t{64} << 20;
  simulated[4].options.unsupported = {"argmax"};
  simulated[4].options.waits_for_others = false;
  std::vector<SimOptions> options;
  for (Simulated& s : simulated) {
    s.options.name = s.name;
    options.push_back(s.options);
  }
  options.emplace_back().name = "accomplice";
  Backend& sim = Add(MakeSimBackend(options, *host));
  for (size_t i = 0; i < simulated.size(); ++i)
    subjects.push_back({fmt::format("sim_{}", simulated[i].name), "sim", sim.devices()[i], host});
  partners.push_back(*std::find_if(subjects.begin(), subjects.end(),
                                   [](const Subject& s) { return s.name == "sim_plain"; }));
  accomplice = sim.devices().back();
}

Everything& All() {
  static Everything everything;
  return everything;
}

}  // namespace

std::span<const Subject> Subjects() { return All().subjects; }
std::span<const Subject> Partners() { return All().partners; }
std::string MissingBackends() { return All().missing; }
Device& Accomplice() { return *All().accomplice; }

}  // namespace tandem::conformance
