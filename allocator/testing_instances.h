// Reads planning instances: files of comma-separated values whose header names id, lower, upper
// and size in any order; NAME.CAPACITY.csv states a height within which a plan exists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/planner.h"

namespace tandem::testing_instances {

struct Instance {
  std::string name;      // Of the file.
  int64_t capacity = 0;  // 0 where the name has none.
  std::vector<Lifetime> lifetimes;
};

// All instances of a folder, by name. Files that are not of this form are left out.
std::vector<Instance> ReadFolder(const std::string& folder);

}  // namespace tandem::testing_instances
