#include "scheduler/bind.h"

#include <algorithm>

namespace tandem {
namespace {

uint64_t BitOf(SymbolIndex symbol) { return uint64_t{1} << std::min<SymbolIndex>(symbol, 63); }

// One loop of a transfer: how often, and the steps on both sides in bytes.
struct Loop {
  int64_t count, source_step, target_step;
};

// Writes a transfer from a strided layout to its packed form as few boxes of bytes.
void MakeCopies(const Layout& layout, CopyCall call, std::vector<CopyCall>& out) {
  out.clear();
  if (layout.Elements() == 0) return;
  const TypeInfo& info = Info(layout.type);
  int64_t run = info.block_bytes, packed = info.block_bytes;
  std::vector<Loop> loops;  // Inner first.
  for (int d = layout.rank - 1; d >= 0; --d) {
    const int64_t count =
        d == layout.rank - 1 ? layout.dims[d] / info.block_elements : layout.dims[d];
    const int64_t step = layout.strides[d];
    if (count != 1) {
      if (loops.empty() && step == run) {
        run *= count;
      } else if (!loops.empty() && step == loops.back().count * loops.back().source_step &&
                 packed == loops.back().count * loops.back().target_step) {
        loops.back().count *= count;
      } else {
        loops.push_back({count, step, packed});
      }
    }
    packed *= count;
  }
  call.row_bytes = run;
  if (!loops.empty()) {
    call.rows = loops[0].count;
    call.source_row_pitch = loops[0].source_step;
    call.target_row_pitch = loops[0].target_step;
  }
  if (loops.size() > 1) {
    call.planes = loops[1].count;
    call.source_plane_pitch = loops[1].source_step;
    call.target_plane_pitch = loops[1].target_step;
  }
  if (loops.size() < 3) {
    out.push_back(call);
    return;
  }
  // Four separate loops at most: the fourth is inside a box of rows when there are four.
  const Loop outer = loops[2];
  const Loop outermost = loops.size() > 3 ? loops[3] : Loop{1, 0, 0};
  for (int64_t i = 0; i < outermost.count; ++i)
    for (int64_t j = 0; j < outer.count; ++j) {
      CopyCall box = call;
      box.source_offset += i * outermost.source_step + j * outer.source_step;
      box.target_offset += i * outermost.target_step + j * outer.target_step;
      out.push_back(box);
    }
}

}  // namespace

BoundPlan::BoundPlan(const Machine& machine, std::shared_ptr<const Plan> plan,
                     std::vector<Storage> storage, std::vector<Storage> scratch)
    : plan_(std::move(plan)), storage_(std::move(storage)) {
  const Graph& graph = *plan_->graph;
  inputs_.resize(plan_->replicas.size());
  for (size_t r = 0; r < plan_->replicas.size(); ++r)
    if (plan_->replicas[r].kind == ReplicaKind::kInput) {
      inputs_[r] = std::make_unique<HostBytes>(*machine.memories[machine.host_memory]);
      storage_[r] = {inputs_[r].get(), 0};
    }
  args_.resize(plan_->operands.size());
  operand_symbols_.resize(plan_->operands.size(), 0);
  call_of_output_.resize(plan_->operands.size(), nullptr);
  for (size_t i = 0; i < args_.size(); ++i) {
    const Operand& operand = plan_->operands[i];
    if (operand.tensor == kNone) continue;
    const Replica& replica = plan_->replicas[operand.replica];
    args_[i].buffer = storage_[operand.replica].buffer;
    if (replica.kind == ReplicaKind::kConstant && !replica.weight.name.empty())
      args_[i].packed = &replica.weight;
    operand_symbols_[i] = SymbolsOf(operand.tensor);
  }
  calls_.resize(plan_->order.size());
  for (size_t i = 0; i < calls_.size(); ++i) {
    const NodeId id = plan_->order[i];
    const Node& node = graph.node(id);
    const auto begin = static_cast<size_t>(plan_->operand_begin[id]);
    KernelCall& call = calls_[i];
    call.kernel = plan_->placement[id].kernel.kernel;
    call.op = node.op;
    call.attributes = node.attributes;
    call.inputs = {args_.data() + begin, node.inputs.size()};
    call.name = node.name;
    call_of_output_[begin + node.inputs.size()] = &call;
    if (plan_->scratch[id].bytes > 0) {
      call.scratch = scratch[id].buffer;
      call.scratch_offset = scratch[id].offset;
      call.scratch_bytes = plan_->scratch[id].bytes;
    }
  }
  copies_.resize(plan_->copies.size());
  for (const Copy& copy : plan_->copies) copy_symbols_.push_back(SymbolsOf(copy.region.tensor));
}

uint64_t BoundPlan::SymbolsOf(TensorId tensor) const {
  const Graph& graph = *plan_->graph;
  uint64_t bits = 0;
  const auto add = [&](Dim dim) {
    if (!dim.IsConstant()) bits |= BitOf(dim.symbol);
  };
  for (TensorId id = tensor;; id = graph.tensor(id).source) {
    const Tensor& t = graph.tensor(id);
    for (int d = 0; d < t.shape.rank; ++d) add(t.shape[d]);
    if (t.kind != TensorKind::kView) return bits;
    if (t.view.kind == ViewSpec::Kind::kSlice) add(t.view.start);
  }
}

bool BoundPlan::BindSizes(std::span<const int64_t> symbols) {
  uint64_t changed = ~uint64_t{0};
  if (is_bound_) {
    changed = 0;
    for (size_t i = 0; i < symbols.size(); ++i)
      if (symbols[i] != symbols_[i]) changed |= BitOf(static_cast<SymbolIndex>(i));
    if (changed == 0) return false;
  }
  const bool all = !is_bound_;
  symbols_.assign(symbols.begin(), symbols.end());
  is_bound_ = true;
  for (size_t i = 0; i < args_.size(); ++i)
    if (all || (operand_symbols_[i] & changed) != 0) BindOperand(i);
  for (size_t i = 0; i < copies_.size(); ++i)
    if (all || (copy_symbols_[i] & changed) != 0) BindCopy(i);
  return true;
}

void BoundPlan::BindOperand(size_t index) {
  const Operand& operand = plan_->operands[index];
  if (operand.tensor == kNone) return;
  const Replica& replica = plan_->replicas[operand.replica];
  const Placed placed = LocateIn(*plan_->graph, replica, operand.tensor, symbols_);
  TensorArg& arg = args_[index];
  arg.layout = placed.layout;
  arg.offset = storage_[operand.replica].offset + placed.offset;
  if (KernelCall* call = call_of_output_[index]; call != nullptr) call->output = arg;
}

void BoundPlan::BindCopy(size_t index) {
  const Copy& copy = plan_->copies[index];
  const Placed from =
      LocateRegion(*plan_->graph, plan_->replicas[copy.source], copy.region, symbols_);
  CopyCall call;
  call.source = storage_[copy.source].buffer;
  call.source_offset = storage_[copy.source].offset + from.offset;
  call.target = storage_[copy.target].buffer;
  call.target_offset = storage_[copy.target].offset;
  MakeCopies(from.layout, call, copies_[index]);
}

void BoundPlan::PointInput(TensorId input, const std::byte* data, int64_t bytes) {
  for (size_t r = 0; r < inputs_.size(); ++r)
    if (inputs_[r] != nullptr && plan_->replicas[r].region.tensor == input)
      inputs_[r]->Point(data, bytes);
}

HostTensor BoundPlan::Output(size_t index) const {
  const Operand& operand = plan_->outputs[index];
  const Placed placed =
      LocateIn(*plan_->graph, plan_->replicas[operand.replica], operand.tensor, symbols_);
  const Storage& storage = storage_[operand.replica];
  std::byte* base = storage.buffer == nullptr ? nullptr : storage.buffer->host();
  if (base == nullptr) return {placed.layout, nullptr};
  return {placed.layout, base + storage.offset + placed.offset};
}

}  // namespace tandem
