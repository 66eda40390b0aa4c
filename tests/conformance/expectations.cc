#include "tests/conformance/expectations.h"

#include "tests/conformance/cases.h"

namespace tandem::conformance {
namespace {

struct Expectation {
  std::string_view subject;  // Begins with this.
  std::string_view op;
  bool (*applies)(const Case& c);
  std::string_view why;
};

bool Always(const Case&) { return true; }

constexpr Expectation kTable[] = {
    {"sim_capped", "argmax", Always, "told so in its options"},
    {"opencl", "squares", Always, "an op of the user's has no OpenCL kernel"},
};

}  // namespace

std::optional<std::string_view> ExpectedToDecline(const Subject& subject, const Case& c) {
  for (const Expectation& e : kTable)
    if (subject.name.starts_with(e.subject) && c.op->name == e.op && e.applies(c)) return e.why;
  return std::nullopt;
}

}  // namespace tandem::conformance
