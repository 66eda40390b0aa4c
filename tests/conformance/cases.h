// The table of cases: for each op, types × constant or computed × sizes × arrangements.
//
// Sizes are odd, one, zero and large; arrangements are those that views make. The table comes from
// one seed: the same seed, the same numbers.
#pragma once

#include <vector>

#include "tests/conformance/case.h"

namespace tandem::conformance {

// All cases of a built-in op, or of UserOp(); none for another. The smaller extents come first.
std::vector<Case> CasesFor(const OpDefinition& op, uint64_t seed);

// An op that no device has a kernel for: y = a x^2 + z, z optional.
const OpDefinition& UserOp();

}  // namespace tandem::conformance
