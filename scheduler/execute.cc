#include "scheduler/execute.h"

namespace tandem {
namespace {

Result<void> HandOver(const BoundPlan& bound, const Step& step, Stream& stream,
                      ExecuteCounters& counters) {
  if (step.split != kNone) {
    ++counters.splits;
    return stream.Run(bound.Calls(bound.plan().splits[step.split]));
  }
  for (const CopyCall& call : bound.Copies(step.copy)) {
    TANDEM_CHECK(stream.Copy(call));
    ++counters.copies;
    counters.copied_bytes += call.Bytes();
  }
  return {};
}

Result<void> HandOverAll(const BoundPlan& bound, std::span<const std::unique_ptr<Stream>> streams,
                         std::span<uint64_t> points, const std::function<bool()>& stop,
                         ExecuteCounters& counters) {
  const Plan& plan = bound.plan();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    Stream& stream = *streams[step.stream];
    if (step.split != kNone && stop && stop())
      return Fail(ErrorCode::kCancelled, "graph {}: stopped before split {} of {}", plan.graph_name,
                  step.split, plan.splits.size());
    for (const StepId wait : step.waits) {
      Stream& other = *streams[plan.steps[wait].stream];
      const Result<void> waited = stream.Wait(other, points[wait]);
      if (waited) continue;
      if (waited.error().code != ErrorCode::kUnsupported) return waited;
      ++counters.bridges;
      ++counters.host_waits;
      TANDEM_CHECK(other.Synchronize(points[wait]));
    }
    TANDEM_CHECK(HandOver(bound, step, stream, counters));
    if (step.records) points[i] = stream.Record();
  }
  for (const StepId last : plan.final_steps) {
    ++counters.host_waits;
    TANDEM_CHECK(streams[plan.steps[last].stream]->Synchronize(points[last]));
  }
  return {};
}

}  // namespace

Result<void> Execute(const BoundPlan& bound, std::span<const std::unique_ptr<Stream>> streams,
                     std::span<uint64_t> points, const std::function<bool()>& stop,
                     ExecuteCounters& counters) {
  Result<void> result = HandOverAll(bound, streams, points, stop, counters);
  if (!result) Drain(streams);
  return result;
}

void Drain(std::span<const std::unique_ptr<Stream>> streams) {
  // Outcomes do not matter here: the first error is on its way to the caller.
  for (const auto& stream : streams) static_cast<void>(stream->Synchronize(stream->Record()));
  for (const auto& stream : streams) stream->Reset();
}

}  // namespace tandem
