// What devices are known not to support, with the reason. A case that is declined without being
// listed here fails, and so does one that is listed and runs after all: "unsupported" is a fact.
#pragma once

#include <optional>
#include <string_view>

#include "tests/conformance/case.h"
#include "tests/conformance/subjects.h"

namespace tandem::conformance {

// Why this subject declines the case, if it is expected to.
std::optional<std::string_view> ExpectedToDecline(const Subject& subject, const Case& c);

}  // namespace tandem::conformance
