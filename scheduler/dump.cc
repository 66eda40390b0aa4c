#include "scheduler/dump.h"

#include <algorithm>
#include <iterator>

namespace tandem {
namespace {

using Out = std::back_insert_iterator<std::string>;

void DescribeNodes(const Machine& machine, const Plan& plan, std::string& text) {
  fmt::format_to(Out(text), "nodes\n");
  for (size_t s = 0; s < plan.splits.size(); ++s) {
    const Split& split = plan.splits[s];
    for (int32_t i = split.first; i < split.first + split.count; ++i) {
      const NodeId id = plan.order[i];
      const Node& node = plan.graph->node(id);
      fmt::format_to(Out(text), "  {:>4}  split {:<3} {:<12} {:<12} {:<24} {}\n", id, s,
                     machine.devices[split.device]->name(), node.op->name, node.name,
                     plan.placement[id].reason);
    }
  }
}

void DescribeCopies(const Machine& machine, const Plan& plan, std::string& text) {
  fmt::format_to(Out(text), "copies\n");
  if (plan.copies.empty()) fmt::format_to(Out(text), "  none\n");
  for (const Copy& copy : plan.copies)
    fmt::format_to(Out(text), "  before split {:<3} {:>10}  {} -> {}  {}: {}{}\n", copy.before,
                   FormatBytes(copy.bytes),
                   machine.memories[plan.replicas[copy.source].memory]->name(),
                   machine.memories[plan.replicas[copy.target].memory]->name(),
                   ToString(copy.cause), plan.graph->tensor(copy.region.tensor).name,
                   copy.is_staging ? " (staged through the host)" : "");
}

void DescribeArenas(const Machine& machine, const Plan& plan, std::string& text) {
  fmt::format_to(Out(text), "arenas\n");
  for (const ArenaUse& arena : plan.arenas) {
    if (arena.bytes == 0) {
      fmt::format_to(Out(text), "  {:<12} nothing\n", machine.memories[arena.memory]->name());
      continue;
    }
    const double over = static_cast<double>(arena.bytes) /
                        static_cast<double>(std::max<int64_t>(arena.lower_bound, 1));
    fmt::format_to(Out(text), "  {:<12} {} bytes, lower bound {} ({:.3f}), by {}{}\n",
                   machine.memories[arena.memory]->name(), arena.bytes, arena.lower_bound, over,
                   arena.strategy,
                   arena.chunk_bytes.size() > 1
                       ? fmt::format(", in {} buffers", arena.chunk_bytes.size())
                       : "");
  }
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  for (const char unit : {'k', 'M', 'G', 'T'}) {
    value /= 1000;
    if (value < 999.95) return fmt::format("{:.1f} {}B", value, unit);
  }
  return fmt::format("{:.1f} PB", value / 1000);
}

std::string DescribeSplits(const Machine& machine, const Plan& plan) {
  std::string text;
  fmt::format_to(Out(text), "  split  device        nodes  copied in   from .. to\n");
  size_t copy = 0;
  for (size_t s = 0; s <= plan.splits.size(); ++s) {
    int64_t bytes = 0;
    int count = 0;
    for (; copy < plan.copies.size() && plan.copies[copy].before == static_cast<int32_t>(s);
         ++copy) {
      bytes += plan.copies[copy].bytes;
      ++count;
    }
    const std::string moved = count == 0 ? "-" : fmt::format("{} ({})", FormatBytes(bytes), count);
    if (s == plan.splits.size()) {
      if (count > 0)
        fmt::format_to(Out(text), "    end  {:<12}  {:>5}  {:<10}  outputs\n", "", "", moved);
      break;
    }
    const Split& split = plan.splits[s];
    fmt::format_to(Out(text), "  {:>5}  {:<12}  {:>5}  {:<10}  {} .. {}\n", s,
                   machine.devices[split.device]->name(), split.count, moved,
                   plan.graph->node(plan.order[split.first]).name,
                   plan.graph->node(plan.order[split.first + split.count - 1]).name);
  }
  return text;
}

std::string DescribePlan(const Machine& machine, const Plan& plan, const DumpOptions& options) {
  std::string text;
  fmt::format_to(Out(text), "graph {}, box {} (", plan.graph_name, plan.box.name);
  for (size_t i = 0; i < plan.box.ranges.size(); ++i) {
    const SizeRange& range = plan.box.ranges[i];
    fmt::format_to(Out(text), "{}{} {}", i == 0 ? "" : ", ", plan.graph->symbols()[i].name,
                   range.lower == range.upper ? fmt::format("{}", range.lower)
                                              : fmt::format("{}..{}", range.lower, range.upper));
  }
  fmt::format_to(Out(text), "): nodes {}, splits {}, copies {}, waits between streams {}\nsplits\n",
                 plan.order.size(), plan.splits.size(), plan.copies.size(), [&] {
                   size_t waits = 0;
                   for (const Step& step : plan.steps) waits += step.waits.size();
                   return waits;
                 }());
  text += DescribeSplits(machine, plan);
  if (options.nodes) DescribeNodes(machine, plan, text);
  if (options.copies) DescribeCopies(machine, plan, text);
  DescribeArenas(machine, plan, text);
  return text;
}

}  // namespace tandem
