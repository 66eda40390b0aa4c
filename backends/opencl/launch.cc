#include "backends/opencl/launch.h"

#include <cmath>
#include <numbers>

namespace tandem::opencl {
namespace {

constexpr const char* kNames[] = {
    "matmul_f32_one",
    "matmul_f16_one",
    "matmul_bf16_one",
    "matmul_q4_0_one",
    "matmul_q4_1_one",
    "matmul_q8_0_one",
    "matmul_f32",
    "matmul_f16",
    "matmul_bf16",
    "matmul_q4_0",
    "matmul_q4_1",
    "matmul_q8_0",
    "matmul_any",
    "attention_f32",
    "attention_f16",
    "attention_any",
    "rows",
    "update_rows",
    "rms_norm",
    "softmax",
    "rope",
    "elementwise",
    "copy",
    "argmax",
};
static_assert(std::size(kNames) == kKernelCount);
static_assert(static_cast<int>(KernelId::kArgmax) == kKernelCount - 1);

}  // namespace

void Launcher::Prepare(std::span<const cl_event> before, int32_t node, bool wants_event) {
  before_ = before;
  node_ = node;
  wants_event_ = wants_event;
  event_.reset();
}

void Launcher::Begin(KernelId id) {
  KernelHandle& kernel = kernels_[static_cast<size_t>(id)];
  status_ = CL_SUCCESS;
  argument_ = 0;
  if (kernel == nullptr)
    kernel.reset(clCreateKernel(program_, kNames[static_cast<size_t>(id)], &status_));
  kernel_ = kernel.get();
}

void Launcher::Set(size_t bytes, const void* value) {
  if (status_ == CL_SUCCESS) status_ = clSetKernelArg(kernel_, argument_++, bytes, value);
}

void Launcher::Tensor(const DeviceTensor& tensor) {
  Set(sizeof tensor.buffer, tensor.buffer == nullptr ? nullptr : &tensor.buffer);
  Set(sizeof tensor.parameter, &tensor.parameter);
}

cl_int Launcher::Enqueue(std::array<int64_t, 3> groups) {
  if (status_ != CL_SUCCESS) return status_;
  if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0) return CL_SUCCESS;
  const size_t local[3] = {static_cast<size_t>(lanes_), 1, 1};
  const size_t global[3] = {static_cast<size_t>(groups[0]) * local[0],
                            static_cast<size_t>(groups[1]), static_cast<size_t>(groups[2])};
  cl_event event = nullptr;
  const cl_int status = clEnqueueNDRangeKernel(
      queue_, kernel_, 3, nullptr, global, local, static_cast<cl_uint>(before_.size()),
      before_.empty() ? nullptr : before_.data(), wants_event_ ? &event : nullptr);
  if (event != nullptr) event_.reset(event);
  return status;
}

std::span<const RopeTurns> Launcher::TurnsFor(double base, double scale, int64_t rotated) {
  const RopeKey key{base, scale, rotated};
  if (turns_of_ == key) return turns_;
  const int64_t pairs = rotated / 2;
  turns_.assign(static_cast<size_t>((pairs + kRopePairs - 1) / kRopePairs), {});
  for (int64_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotated);
    const double turns = scale * std::pow(base, exponent) / (2 * std::numbers::pi);
    RopeTurns& part = turns_[static_cast<size_t>(i / kRopePairs)];
    const auto at = static_cast<size_t>(i % kRopePairs);
    part.turns[at] = static_cast<float>(turns);
    part.rest[at] = static_cast<float>(turns - static_cast<double>(part.turns[at]));
  }
  turns_of_ = key;
  return turns_;
}

}  // namespace tandem::opencl
