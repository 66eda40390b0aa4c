// Runs computation graphs on several devices as one job.
//
// A Scheduler holds graphs, plans each for its size boxes, reserves one set of memory for all of
// them, materialises weights where they are needed, and runs. All planning happens on paper and
// before anything is allocated; a run of a planned graph plans nothing and allocates nothing.
//
//   auto scheduler = *Scheduler::Create({.devices = {gpu, cpu}});
//   GraphHandle g = *scheduler->Add({.name = "decode", .graph = graph, .boxes = boxes});
//   TANDEM_CHECK(scheduler->Reserve());
//   TANDEM_CHECK(scheduler->Load());
//   TANDEM_CHECK(scheduler->Run(g, {.symbols = {...}, .inputs = {...}}));
//   HostTensor logits = *scheduler->Output(g, graph->outputs()[0]);
//
// Threads: one at a time, but for Cancel() and counters(). Schedulers may share devices.
//
// Errors: whatever fails returns an error and leaves the scheduler usable. A failed Reserve()
// changes nothing. A failed or cancelled run marks the states that it may have written as
// undefined; a run that reads one is kUndefined until it is reset or written.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/device.h"
#include "graph/graph.h"
#include "scheduler/plan.h"

namespace tandem {

using GraphHandle = int32_t;

struct SchedulerOptions {
  // In order of preference for ties; one of them must have host memory (a CPU), and is added by
  // the caller. A name may appear once.
  std::vector<Device*> devices;
  PlanOptions plan;
};

struct InputBinding {
  TensorId tensor = kNone;
  // Packed, as many bytes as the input has at the run's sizes. Read until Run() returns, in
  // place where the device can reach it.
  std::span<const std::byte> bytes;
};

struct RunArguments {
  std::vector<int64_t> symbols;      // Parallel to the graph's symbols; within a box.
  std::vector<InputBinding> inputs;  // Each input that some node reads, once.
  // Called between splits; true stops the run: kCancelled.
  std::function<bool()> stop;
};

// Only grows. Taken from what happened, not from what was planned.
struct SchedulerCounters {
  int64_t plans = 0;  // Plans made.
  int64_t runs = 0;
  int64_t allocations = 0;  // Buffers asked from devices.
  int64_t binds = 0;        // Runs at sizes other than the last of their plan.
  int64_t host_waits = 0;   // Times a run blocked its caller on a device.
  int64_t bridges = 0;      // Waits that a device could not do by itself.
  int64_t splits = 0;       // Handed to streams.
  int64_t copies = 0;       // Transfers between memories.
  int64_t copied_bytes = 0;
};

// What one memory holds (or would hold, before Load).
struct MemoryUse {
  std::string memory;
  int64_t weights = 0;           // Packed.
  int64_t imported_weights = 0;  // Read in place from the file; not part of the total.
  int64_t states = 0;
  int64_t arenas = 0;             // Activations, copies and scratch of all plans.
  int64_t arena_lower_bound = 0;  // Largest of the plans' bounds.
  int64_t Total() const { return weights + states + arenas; }
};

class Scheduler {
 public:
  static Result<std::unique_ptr<Scheduler>> Create(SchedulerOptions options);
  ~Scheduler();

  // Declares a graph, with one box for all sizes if it names none; graphs of one scheduler run one
  // after another and share memory.
  Result<GraphHandle> Add(GraphSpec spec);
  // Forgets a graph; its memory is given back with the next Reserve().
  Result<void> Remove(GraphHandle graph);
  // Plans every graph and box that has no plan yet, on paper, and says what memory would be
  // used. Allocates nothing, touches no device memory and no weight.
  Result<std::vector<MemoryUse>> Measure();
  // Measure(), check budgets, then allocate arenas and states (zeroed). Calling again after Add()
  // grows what is there.
  Result<void> Reserve();
  // Packs and uploads the weights that Reserve() found. `progress` gets bytes done and in all.
  Result<void> Load(const std::function<void(int64_t done, int64_t total)>& progress = {});

  // Runs and waits for the results. Inputs may change once it returned.
  Result<void> Run(GraphHandle graph, const RunArguments& arguments);
  // An output of the last run of that graph, valid until the next run of any graph.
  Result<HostTensor> Output(GraphHandle graph, TensorId tensor) const;

  // Zeroes a state, all slices; it is defined afterwards.
  Result<void> ResetState(const State& state);
  // Host copies of one slice: SliceBytes() each.
  Result<void> WriteState(const State& state, int slice, std::span<const std::byte> bytes);
  Result<void> ReadState(const State& state, int slice, std::span<std::byte> bytes);

  // Makes the current run (of another thread) stop at the next split.
  void Cancel();

  // After Measure() or Reserve().
  const Plan& plan(GraphHandle graph, int box) const;
  int boxes(GraphHandle graph) const;
  const Machine& machine() const;
  SchedulerCounters counters() const;
  std::vector<MemoryUse> memory() const;

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
