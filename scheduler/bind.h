// Binding: from a plan and sizes to the calls that streams take.
//
// What does not depend on sizes (buffers, kernels, scratch) is set once for a reservation; what
// does is set again only for operands and copies in whose layout a changed symbol appears, so
// that a decoding step, where one symbol grows, touches few. Nothing is allocated when binding
// sizes. One thread at a time.
#pragma once

#include <memory>

#include "scheduler/host_bytes.h"
#include "scheduler/plan.h"

namespace tandem {

// Where a replica is in real memory.
struct Storage {
  Buffer* buffer = nullptr;
  int64_t offset = 0;
};

// A plan with addresses.
class BoundPlan {
 public:
  // `storage` is parallel to the plan's replicas (null buffers for inputs), `scratch` to its nodes.
  BoundPlan(const Machine& machine, std::shared_ptr<const Plan> plan, std::vector<Storage> storage,
            std::vector<Storage> scratch);

  const Plan& plan() const { return *plan_; }
  // False if they were bound already.
  bool BindSizes(std::span<const int64_t> symbols);
  // The caller's bytes of an input; false if the plan has no such input. A packed tensor.
  void PointInput(TensorId input, const std::byte* data, int64_t bytes);

  std::span<const KernelCall> Calls(const Split& split) const {
    return {calls_.data() + split.first, static_cast<size_t>(split.count)};
  }
  std::span<const CopyCall> Copies(int32_t copy) const { return copies_[copy]; }
  // An output in host memory, at the sizes bound last.
  HostTensor Output(size_t index) const;
  std::span<const int64_t> symbols() const { return symbols_; }

 private:
  void BindOperand(size_t index);
  void BindCopy(size_t index);
  uint64_t SymbolsOf(TensorId tensor) const;

  std::shared_ptr<const Plan> plan_;
  std::vector<Storage> storage_;
  std::vector<std::unique_ptr<HostBytes>> inputs_;  // Parallel to replicas; null if no input.
  std::vector<TensorArg> args_;                     // Parallel to operands.
  std::vector<KernelCall> calls_;                   // Parallel to the plan's order.
  std::vector<KernelCall*> call_of_output_;         // Parallel to operands: whose output it is.
  std::vector<std::vector<CopyCall>> copies_;       // Parallel to the plan's copies.
  std::vector<uint64_t> operand_symbols_;  // Bit i: depends on symbol i; bit 63: also more.
  std::vector<uint64_t> copy_symbols_;
  std::vector<int64_t> symbols_;
  bool is_bound_ = false;
};

}  // namespace tandem
