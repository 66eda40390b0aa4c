#include "scheduler/order.h"

#include <algorithm>

namespace tandem {
namespace {

class Orderer {
 public:
  Orderer(const Machine& machine, Plan& plan)
      : plan_(plan),
        streams_(machine.devices.size()),
        last_of_(streams_, kNone),
        writer_(plan.replicas.size(), kNone),
        readers_(plan.replicas.size()) {}

  void Run() {
    size_t copy = 0;
    for (size_t split = 0; split <= plan_.splits.size(); ++split) {
      for (; copy < plan_.copies.size() && plan_.copies[copy].before == static_cast<int32_t>(split);
           ++copy)
        AddCopy(static_cast<int32_t>(copy));
      if (split < plan_.splits.size()) AddSplit(static_cast<int32_t>(split));
    }
    Finish();
  }

 private:
  void AddCopy(int32_t index) {
    const Copy& copy = plan_.copies[index];
    Step step;
    step.stream = copy.device;
    step.copy = index;
    needs_.clear();
    Read(copy.source);
    Write(copy.target);
    Commit(std::move(step));
    readers_[copy.source].push_back(static_cast<StepId>(plan_.steps.size() - 1));
    SetWriter(copy.target);
  }

  void AddSplit(int32_t index) {
    const Split& split = plan_.splits[index];
    Step step;
    step.stream = split.device;
    step.split = index;
    needs_.clear();
    const auto each = [&](auto&& on_input, auto&& on_output) {
      for (int32_t i = 0; i < split.count; ++i) {
        const NodeId node = plan_.order[split.first + i];
        for (const Operand& input : plan_.Inputs(node))
          if (input.replica != kNone) on_input(input.replica);
        on_output(plan_.Output(node).replica);
      }
    };
    each([&](ReplicaId r) { Read(r); }, [&](ReplicaId r) { Write(r); });
    Commit(std::move(step));
    const auto id = static_cast<StepId>(plan_.steps.size() - 1);
    each(
        [&](ReplicaId r) {
          if (readers_[r].empty() || readers_[r].back() != id) readers_[r].push_back(id);
        },
        [&](ReplicaId r) { SetWriter(r); });
  }

  void Read(ReplicaId replica) {
    if (writer_[replica] != kNone) needs_.push_back(writer_[replica]);
  }
  void Write(ReplicaId replica) {
    Read(replica);
    needs_.insert(needs_.end(), readers_[replica].begin(), readers_[replica].end());
  }
  void SetWriter(ReplicaId replica) {
    writer_[replica] = static_cast<StepId>(plan_.steps.size() - 1);
    readers_[replica].clear();
  }

  // Turns needs into waits: the latest first, and none that is known to be done already.
  void Commit(Step step) {
    const auto id = static_cast<StepId>(plan_.steps.size());
    std::vector<StepId> clock(streams_, kNone);
    if (last_of_[step.stream] != kNone) clock = clocks_[last_of_[step.stream]];
    std::sort(needs_.begin(), needs_.end(), std::greater<>());
    needs_.erase(std::unique(needs_.begin(), needs_.end()), needs_.end());
    for (const StepId need : needs_) {
      const StreamIndex other = plan_.steps[need].stream;
      if (other == step.stream || clock[other] >= need) continue;
      step.waits.push_back(need);
      plan_.steps[need].records = true;
      for (size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], clocks_[need][s]);
    }
    clock[step.stream] = id;
    last_of_[step.stream] = id;
    clocks_.push_back(std::move(clock));
    plan_.steps.push_back(std::move(step));
  }

  void Finish() {
    for (const StepId last : last_of_) {
      if (last == kNone) continue;
      const StreamIndex stream = plan_.steps[last].stream;
      const bool covered = std::any_of(last_of_.begin(), last_of_.end(), [&](StepId other) {
        return other != kNone && other != last && clocks_[other][stream] >= last;
      });
      if (covered) continue;
      plan_.steps[last].records = true;
      plan_.final_steps.push_back(last);
    }
  }

  Plan& plan_;
  const size_t streams_;
  std::vector<StepId> last_of_;               // Of each stream.
  std::vector<std::vector<StepId>> clocks_;   // Of each step: the last step of each stream before.
  std::vector<StepId> writer_;                // Of each replica.
  std::vector<std::vector<StepId>> readers_;  // Of each replica, since it was written.
  std::vector<StepId> needs_;
};

}  // namespace

void OrderSteps(const Machine& machine, Plan& plan) { Orderer(machine, plan).Run(); }

}  // namespace tandem
