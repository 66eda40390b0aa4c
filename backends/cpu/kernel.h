// What a kernel of this backend is, and where each op's are found.
//
// A kernel is a constant: FindKernel hands out its address, and a KernelCall brings it back. It
// runs on the stream's thread, shares large work through the team, takes all memory it needs
// from the call's scratch, and never allocates. An error leaves the output undefined.
#pragma once

#include "backends/cpu/rope_table.h"
#include "backends/cpu/simd.h"
#include "backends/cpu/team.h"
#include "backends/device.h"

namespace tandem::cpu {

// What a running kernel may use; it belongs to the stream.
struct KernelContext {
  const Simd& simd;
  Team& team;
  RopeTable& rope;
};

struct CpuKernel {
  std::string_view op;
  Result<void> (*run)(const KernelContext& context, const KernelCall& call);
};

// The kernel for a query, or the reason why there is none. `members` is the largest number of
// threads that scratch is made for; more threads do not need more.
Result<KernelChoice> FindKernel(const KernelQuery& query, int members);

// By op; inputs have been checked for number and type by the op's own shape rule.
Result<KernelChoice> FindMatmul(const KernelQuery& query, int members);
Result<KernelChoice> FindAttention(const KernelQuery& query, int members);
extern const CpuKernel kRowsKernel, kRmsNormKernel, kRopeKernel, kSoftmaxKernel, kSiluKernel,
    kSwigluKernel, kAddKernel, kMulKernel, kScaleKernel, kCopyKernel, kUpdateRowsKernel,
    kArgmaxKernel;

// Where an argument's first element is.
inline std::byte* Data(const TensorArg& argument) {
  return argument.buffer == nullptr ? nullptr : argument.buffer->host() + argument.offset;
}
inline std::byte* Scratch(const KernelCall& call) {
  return call.scratch == nullptr ? nullptr : call.scratch->host() + call.scratch_offset;
}

}  // namespace tandem::cpu
