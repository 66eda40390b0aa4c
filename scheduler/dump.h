// A plan in words: for `tandem dump`, tests that compare, and people.
#pragma once

#include <string>

#include "scheduler/plan.h"

namespace tandem {

struct DumpOptions {
  bool nodes = true;   // Each node with its device and reason.
  bool copies = true;  // Each copy with bytes and cause.
};

// One table of splits, then nodes, copies and arenas. Bytes are at the box's upper bounds.
std::string DescribePlan(const Machine& machine, const Plan& plan, const DumpOptions& options = {});
// The splits alone.
std::string DescribeSplits(const Machine& machine, const Plan& plan);

// "1.5 MB", in powers of 1000.
std::string FormatBytes(int64_t bytes);

}  // namespace tandem
