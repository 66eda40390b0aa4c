// Launching the kernels of kernels/*.cl on a queue.
//
// A Launcher belongs to one stream and one thread at a time: OpenCL's kernel objects hold their
// arguments. Status codes are collected, so that a launch is a list of arguments and one check:
//
//   launcher.Begin(KernelId::kArgmax);
//   launcher.Tensor(x);
//   launcher.Tensor(y);
//   return launcher.Enqueue({rows, 1, 1});
#pragma once

#include <CL/cl.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backends/device.h"
#include "backends/opencl/handle.h"

namespace tandem::opencl {

enum class KernelId : uint8_t {
  kMatmulF32One,
  kMatmulF16One,
  kMatmulBF16One,
  kMatmulQ4_0One,
  kMatmulQ4_1One,
  kMatmulQ8_0One,
  kMatmulF32,
  kMatmulF16,
  kMatmulBF16,
  kMatmulQ4_0,
  kMatmulQ4_1,
  kMatmulQ8_0,
  kMatmulAny,
  kAttentionF32,
  kAttentionF16,
  kAttentionAny,
  kRows,
  kUpdateRows,
  kRmsNorm,
  kSoftmax,
  kRope,
  kElementwise,
  kCopy,
  kArgmax,
};
inline constexpr int kKernelCount = 24;

// A tensor as kernels get it: see kernels/tensor.cl. `buffer` is null for no bytes.
struct DeviceTensor {
  struct Parameter {
    int64_t offset = 0;
    std::array<int64_t, 4> size{1, 1, 1, 1};
    std::array<int64_t, 4> stride{};
    int64_t type = 0;
  };
  Parameter parameter;
  cl_mem buffer = nullptr;

  int64_t& size(int i) { return parameter.size[i]; }
  int64_t& stride(int i) { return parameter.stride[i]; }
  int64_t size(int i) const { return parameter.size[i]; }
  int64_t stride(int i) const { return parameter.stride[i]; }
  int64_t rows() const { return size(0) * size(1) * size(2); }
};

// What a rope kernel's position makes of each pair, in turns; see kernels/rope.cl.
inline constexpr int kRopePairs = 48;
struct RopeTurns {
  std::array<float, kRopePairs> turns{}, rest{};
};

class Launcher {
 public:
  // All of them outlive the launcher. `lanes` is what the program was built for; `faults` holds
  // the Fault of kernels/rows.cl.
  Launcher(cl_program program, cl_command_queue queue, int lanes, cl_mem faults)
      : program_(program), queue_(queue), lanes_(lanes), faults_(faults) {}

  // The next launches are of call `node` of a batch and wait for these. With `wants_event`, the
  // last launch leaves its event.
  void Prepare(std::span<const cl_event> before, int32_t node, bool wants_event);
  EventHandle TakeEvent() { return std::move(event_); }

  void Begin(KernelId id);
  void Tensor(const DeviceTensor& tensor);
  void Number(int32_t value) { Set(sizeof value, &value); }
  void Number(float value) { Set(sizeof value, &value); }
  void Local(int64_t bytes) { Set(static_cast<size_t>(bytes), nullptr); }
  void Turns(const RopeTurns& turns) { Set(sizeof turns, &turns); }
  void Faults() {
    Set(sizeof faults_, &faults_);
    Number(node_);
  }
  // Nothing if a count is 0.
  cl_int Enqueue(std::array<int64_t, 3> groups);

  int lanes() const { return lanes_; }
  // Cached: powers are slow and the same for every layer.
  std::span<const RopeTurns> TurnsFor(double base, double scale, int64_t rotated);

 private:
  void Set(size_t bytes, const void* value);

  const cl_program program_;
  const cl_command_queue queue_;
  const int lanes_;
  const cl_mem faults_;
  std::array<KernelHandle, kKernelCount> kernels_;
  std::span<const cl_event> before_;
  int32_t node_ = 0;
  bool wants_event_ = false;
  EventHandle event_;
  cl_kernel kernel_ = nullptr;
  cl_uint argument_ = 0;
  cl_int status_ = CL_SUCCESS;

  struct RopeKey {
    double base = 0, scale = 0;
    int64_t rotated = 0;
    bool operator==(const RopeKey&) const = default;
  } turns_of_;
  std::vector<RopeTurns> turns_;
};

}  // namespace tandem::opencl
