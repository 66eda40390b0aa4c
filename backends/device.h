// What a device is: the interface between the scheduler and any way to compute.
//
// Why this shape. The scheduler plans on paper and then only enqueues, so everything that it
// must know beforehand (which ops, which weight layouts, how much scratch, which alignment) is
// asked from pure functions of Device, and everything that happens at a run goes through a
// Stream, which is asynchronous on every device, the CPU included. Order comes from streams and
// timeline points alone. Rejected: events as objects that must be created, recorded and reset
// (a 64-bit value on a stream's timeline needs no pool and can not be recorded twice); kernels
// that allocate their own scratch (memory that no plan counts); copies that silently go through
// the host (a device declines instead, and the scheduler stages and says so).
//
// Ownership. A Backend owns its Devices; a Device owns its Memory. Buffers and Streams are owned
// by who asked for them and must not outlive the Device. Destroying a Stream waits for what it
// was given. Destroying a Buffer that a pending command uses is the caller's error.
//
// Threads. Device and Memory may be used from any number of threads. A Stream takes commands
// from one thread at a time; Reached, Synchronize and OnReached may be called from any.
//
// Errors. Asking functions return them at once. Failures of commands travel on the timeline:
// after a command of a stream has failed, the later ones of that stream are skipped, points
// recorded after it are reached with the error, and a stream that waits for such a point fails
// with the same error. Reset() makes a drained stream usable again.
//
//   auto stream = *device.CreateStream();
//   TANDEM_CHECK(stream->Copy(upload));
//   TANDEM_CHECK(stream->Run(calls));           // calls live until the point is reached
//   uint64_t point = stream->Record();
//   TANDEM_CHECK(other->Wait(*stream, point));  // other's next commands come after it
//   TANDEM_CHECK(stream->Synchronize(point));   // the host waits
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "graph/result.h"
#include "graph/shape.h"

namespace tandem {

class Memory;
class Device;

// A range of one memory.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual Memory& memory() const = 0;
  virtual int64_t bytes() const = 0;
  // Where the host and every device with access to host memory see the bytes; null if they do
  // not. Aligned to the memory's alignment.
  virtual std::byte* host() const = 0;
};

struct MemoryProperties {
  int64_t alignment = 64;  // Of buffers, and of offsets that the scheduler gives out.
  int64_t largest_buffer = INT64_MAX;
  int64_t capacity = INT64_MAX;  // Bytes that may be live at once. Enforced by Allocate.
  bool host_access = false;      // Buffers have host().
};

// Counted where the bytes are really taken, not where they are planned.
struct MemoryCounters {
  int64_t allocations = 0;  // Calls that succeeded, imports included.
  int64_t frees = 0;
  int64_t live_bytes = 0;  // Imported bytes are not counted: they are somebody else's.
  int64_t peak_bytes = 0;
};

// A heap.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::string_view name() const = 0;  // "host", "opencl:0".
  virtual MemoryProperties properties() const = 0;
  virtual MemoryCounters counters() const = 0;
  // Uninitialised bytes. kOutOfMemory names the memory, the bytes asked for and those free.
  // Zero bytes give a valid empty buffer and cost nothing.
  virtual Result<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;
  // The caller's bytes as a buffer, in place. `owner` lives as long as the buffer. The bytes
  // may be read-only, if no command writes them. kUnsupported where the memory is not the
  // host's.
  virtual Result<std::unique_ptr<Buffer>> Import(const std::byte* data, int64_t bytes,
                                                 std::shared_ptr<const void> owner);
};

enum class Access : uint8_t { kNone, kRead, kWrite };  // kWrite includes reading.

// How a device wants the bytes of a constant. `name` is empty for the plain, row-major layout
// of the file. Two layouts are the same if their names and bytes are.
struct WeightLayout {
  std::string name;
  int64_t bytes = 0;
  bool operator==(const WeightLayout&) const = default;
};

// A question to a device: an op at the largest sizes of a size box. The answer holds for all
// smaller sizes.
struct KernelQuery {
  const OpDefinition* op = nullptr;
  std::span<const double> attributes;
  std::span<const Layout> inputs;  // Of an absent optional input: zero elements, rank 0.
  std::span<const bool> present;   // Parallel to inputs.
  std::span<const bool> constant;  // Parallel to inputs: weights, which can be packed.
  Layout output;
};

struct KernelChoice {
  const void* kernel = nullptr;       // The device's own token, handed back in KernelCall.
  int64_t scratch_bytes = 0;          // For any size up to those asked.
  std::vector<WeightLayout> weights;  // Parallel to inputs; plain where not constant.
};

struct TensorArg {
  Layout layout;                         // As bound for this run.
  Buffer* buffer = nullptr;              // Null for an absent optional input.
  int64_t offset = 0;                    // Of the first element, in bytes.
  const WeightLayout* packed = nullptr;  // Null: plain, as `layout` says.
};

struct KernelCall {
  const void* kernel = nullptr;
  const OpDefinition* op = nullptr;
  std::span<const double> attributes;
  std::span<const TensorArg> inputs;
  TensorArg output;
  Buffer* scratch = nullptr;  // Null if the kernel asked for none.
  int64_t scratch_offset = 0;
  int64_t scratch_bytes = 0;
  std::string_view name;  // Of the node, for errors.
};

// A transfer of a box of bytes: `rows` x `planes` runs of `row_bytes`, with pitches on each
// side. A plain copy has one row and one plane.
struct CopyCall {
  Buffer* source = nullptr;
  int64_t source_offset = 0;
  int64_t source_row_pitch = 0, source_plane_pitch = 0;
  Buffer* target = nullptr;
  int64_t target_offset = 0;
  int64_t target_row_pitch = 0, target_plane_pitch = 0;
  int64_t row_bytes = 0;
  int64_t rows = 1, planes = 1;
  int64_t Bytes() const { return row_bytes * rows * planes; }
};

// An in-order queue of one device.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() const = 0;

  // Runs the calls in order. Returns once they are handed over (one hand-over for all of them);
  // the calls and what they point to must stay until a later point is reached. A call with
  // zero output elements is a no-op.
  virtual Result<void> Run(std::span<const KernelCall> calls) = 0;
  // Between two buffers that this device can reach: its own memory, memories that it has
  // access to, and buffers with host(). Asynchronous where a host side is pinned; otherwise it
  // may return only once the bytes were taken, but never waits for earlier commands of other
  // streams on the calling thread. kUnsupported declines, and nothing was done. Overlapping
  // source and target are the caller's error.
  virtual Result<void> Copy(const CopyCall& call) = 0;
  virtual Result<void> Fill(Buffer& buffer, int64_t offset, int64_t bytes, uint8_t value) = 0;
  Result<void> Fill(Buffer& buffer, uint8_t value) {
    return Fill(buffer, 0, buffer.bytes(), value);
  }

  // A point after all commands so far; points of a stream only grow. 0 is the beginning.
  virtual uint64_t Record() = 0;
  // The next commands of this stream come after the point of `other`, which may belong to any
  // device. Never blocks the caller. kUnsupported where this device can not wait for that one
  // by itself; the scheduler then bridges. A point that was not recorded yet counts as
  // reached.
  virtual Result<void> Wait(Stream& other, uint64_t point) = 0;
  // Whether the point is reached: true, false, or the error with which it was.
  virtual Result<bool> Reached(uint64_t point) = 0;
  // Blocks the calling thread until the point is reached; its error, if it has one.
  virtual Result<void> Synchronize(uint64_t point) = 0;
  // Calls `done` once, from any thread, perhaps before returning, with the point's outcome.
  // `done` must be short and must not use this stream.
  virtual void OnReached(uint64_t point, std::function<void(const Result<void>&)> done) = 0;
  // Forgets a failure. All points must have been reached.
  virtual void Reset() = 0;
};

// Counted by the device itself as it does the work. They only grow.
struct DeviceCounters {
  int64_t kernels = 0;  // Kernel calls that ran here.
  int64_t copies = 0;
  int64_t bytes_in = 0;   // Copied into this device's memory from another.
  int64_t bytes_out = 0;  // Copied out of it.
  int64_t bytes_within = 0;
  int64_t fills = 0;
  int64_t handovers = 0;  // Batches given to the device's queue.
};

enum class DeviceKind : uint8_t { kCpu, kGpu, kAccelerator, kSimulated };
std::string_view ToString(DeviceKind kind);

struct DeviceProperties {
  DeviceKind kind = DeviceKind::kCpu;
  std::string description;       // "AMD EPYC, 2 threads, AVX-512 VNNI".
  bool asynchronous = true;      // Commands return before they are done.
  bool waits_for_others = true;  // Wait() takes streams of other devices.
  // For estimates, until measured profiles exist: rough figures, in operations and bytes a
  // second, of this device and of its link to the host.
  double flops = 1e10;
  double memory_bandwidth = 1e10;
  double link_bandwidth = 1e10;
  double launch_seconds = 1e-6;
};

// One piece of hardware of a backend.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  // "cpu:0", "opencl:0"; unique in a process.
  virtual DeviceProperties properties() const = 0;
  // Where its results are placed. A CPU's is the host's memory.
  virtual Memory& memory() = 0;
  // Its own memory is kWrite.
  virtual Access AccessTo(const Memory& memory) const = 0;
  // Whether its streams copy between these two, so that a copy that would be declined can be
  // planned through the host. By default, where each side is its own or has host access. Pure.
  virtual bool CopiesBetween(const Memory& source, const Memory& target) const;
  // The kernel for an op, or kUnsupported with the reason. Pure.
  virtual Result<KernelChoice> FindKernel(const KernelQuery& query) const = 0;
  // Rearranges a constant into a layout that FindKernel named. `source` is plain and holds
  // BytesOf(type, elements) bytes, `target` layout.bytes. Runs on the host. Pure.
  virtual Result<void> Pack(const WeightLayout& layout, Type type, std::span<const int64_t> dims,
                            const std::byte* source, std::byte* target) const;
  // Host memory from and to which this device's copies are asynchronous. host() is set and
  // memory() is the host's memory. kUnsupported: use ordinary host memory.
  virtual Result<std::unique_ptr<Buffer>> AllocatePinned(int64_t bytes);
  virtual Result<std::unique_ptr<Stream>> CreateStream() = 0;
  virtual DeviceCounters counters() const = 0;
};

// One way to compute.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "opencl", "sim".
  virtual std::span<Device* const> devices() const = 0;
  // Why there is no device, if there is none ("no OpenCL platform found").
  virtual std::string_view unavailable() const = 0;
  // A function that only this backend has, by name; null if it has none of that name. The
  // header of the backend gives the name and the type to cast to.
  virtual void* Extension(std::string_view name) const = 0;
};

}  // namespace tandem
