// Which kernel serves which op.
#include <algorithm>
#include <array>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"

namespace tandem::cpu {
namespace {

constexpr std::array<const CpuKernel*, 12> kByName = {
    &kRowsKernel,  &kRmsNormKernel, &kRopeKernel,       &kSoftmaxKernel,
    &kSiluKernel,  &kSwigluKernel,  &kAddKernel,        &kMulKernel,
    &kScaleKernel, &kCopyKernel,    &kUpdateRowsKernel, &kArgmaxKernel};

// An op that a user defined: its reference kernel, on the stream's thread alone. The CPU is the
// device of last resort, so it computes whatever says how.
Result<void> RunReference(const KernelContext&, const KernelCall& call) {
  constexpr size_t kFewInputs = 16;
  std::array<HostTensor, kFewInputs> few;
  std::vector<HostTensor> many;
  std::span<HostTensor> inputs(few);
  if (call.inputs.size() > kFewInputs) {
    many.resize(call.inputs.size());
    inputs = many;
  }
  inputs = inputs.first(call.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = {call.inputs[i].layout, Data(call.inputs[i])};
  Result<void> result =
      call.op->reference(inputs, {call.output.layout, Data(call.output)}, call.attributes);
  if (result) return result;
  return Fail(result.error().code, "node {}: {}: {}", call.name, call.op->name,
              result.error().message);
}

const CpuKernel kReferenceKernel = {"", RunReference};

Result<KernelChoice> FindAny(const KernelQuery& query, int members) {
  if (query.op->name == "matmul") return FindMatmul(query, members);
  if (query.op->name == "attention") return FindAttention(query, members);
  KernelChoice choice;
  const auto found = std::find_if(kByName.begin(), kByName.end(), [&](const CpuKernel* kernel) {
    return kernel->op == query.op->name;
  });
  if (found != kByName.end()) {
    choice.kernel = *found;
  } else if (query.op->reference != nullptr) {
    choice.kernel = &kReferenceKernel;
  } else {
    return Fail(ErrorCode::kUnsupported, "cpu: no kernel named {}", query.op->name);
  }
  return choice;
}

}  // namespace

Result<KernelChoice> FindKernel(const KernelQuery& query, int members) {
  TANDEM_ASSIGN(KernelChoice choice, FindAny(query, members));
  choice.weights.resize(query.inputs.size());
  for (size_t i = 0; i < query.inputs.size(); ++i)
    if (query.constant[i] && query.present[i] && choice.weights[i].name.empty())
      choice.weights[i].bytes = query.inputs[i].PackedBytes();
  return choice;
}

}  // namespace tandem::cpu
