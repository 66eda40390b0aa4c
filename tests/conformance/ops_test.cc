// Every op on every device, against its reference kernel.

#include "graph/ops.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tests/conformance/cases.h"
#include "tests/conformance/device_test.h"
#include "tests/conformance/expectations.h"
#include "tests/conformance/runner.h"
#include "tests/conformance/subjects.h"

namespace tandem::conformance {
namespace {

// TANDEM_CONFORMANCE_SEED gives other numbers; TANDEM_CONFORMANCE=full adds a real model's sizes.
uint64_t Seed() {
  const char* seed = std::getenv("TANDEM_CONFORMANCE_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}
bool IsFull() {
  const char* size = std::getenv("TANDEM_CONFORMANCE");
  return size != nullptr && std::string_view(size) == "full";
}

std::vector<Case> CasesToRun(const OpDefinition& op) {
  std::vector<Case> cases = CasesFor(op, Seed());
  if (!IsFull()) std::erase_if(cases, [](const Case& c) { return c.extent == Extent::kModel; });
  return cases;
}

struct ReadyCase {
  Case c;
  std::optional<Result<Prepared>> prepared;  // When the first device wants it.
};

// References are computed once and serve all devices.
std::vector<ReadyCase>& ReadyCases(const OpDefinition& op) {
  static std::map<const OpDefinition*, std::vector<ReadyCase>> ready;
  std::vector<ReadyCase>& cases = ready[&op];
  if (cases.empty())
    for (Case& c : CasesToRun(op)) cases.push_back({std::move(c), std::nullopt});
  return cases;
}

std::vector<const OpDefinition*> Ops() {
  const auto all = ops::All();
  std::vector<const OpDefinition*> list(all.begin(), all.end());
  list.push_back(&UserOp());
  return list;
}

using Parameters = std::tuple<Subject, const OpDefinition*>;

class Ops_ : public testing::TestWithParam<Parameters> {
 protected:
  const Subject& subject() const { return std::get<0>(GetParam()); }
  const OpDefinition& op() const { return *std::get<1>(GetParam()); }
};

std::string NameOf(const testing::TestParamInfo<Parameters>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param)->name);
}

TEST_P(Ops_, AgreesWithItsReference) {
  auto runner = Runner::Create(*subject().device, *subject().host);
  ASSERT_TRUE(runner) << runner.error().message;
  int ran = 0, declined = 0, failed = 0;
  double worst = 0;
  std::string worst_case;
  for (ReadyCase& ready : ReadyCases(op())) {
    // A simulated device runs the reference itself: large sizes tell nothing new.
    if (subject().backend == "sim" && ready.c.extent != Extent::kSmall) continue;
    if (!ready.prepared) ready.prepared = Prepare(ready.c);
    if (!*ready.prepared) {
      ADD_FAILURE() << ready.prepared->error().message;
      continue;
    }
    const auto expected = ExpectedToDecline(subject(), ready.c);
    const Outcome outcome = (*runner)->Run(ready.c, **ready.prepared);
    if (outcome.verdict == Verdict::kUnsupported) {
      ++declined;
      EXPECT_TRUE(expected) << ready.c.Name() << " is declined: " << outcome.message;
      continue;
    }
    EXPECT_FALSE(expected) << ready.c.Name()
                           << " is supported, but is listed as declined: " << *expected;
    ++ran;
    if (outcome.worst > worst) {
      worst = outcome.worst;
      worst_case = ready.c.Name();
    }
    if (outcome.verdict == Verdict::kFailed) {
      ADD_FAILURE() << ready.c.Name() << " (seed " << ready.c.seed << "): " << outcome.message;
      if (++failed == 20) FAIL() << "and perhaps more";
    }
  }
  RecordProperty("ran", ran);
  RecordProperty("declined", declined);
  RecordProperty("worst_error_in_bounds", fmt::format("{:.3f} in {}", worst, worst_case));
  if (std::getenv("TANDEM_CONFORMANCE_VERBOSE") != nullptr)
    fmt::print("{} {}: {} ran, {} declined, worst {:.3f} of its bound in {}\n", subject().name,
               op().name, ran, declined, worst, worst_case);
}

// What a device says it can do, by types: "matmul F32,Q4_1 as tiles".
std::string ClaimOf(const Case& c, const KernelChoice& choice) {
  std::string claim(c.op->name);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    claim += i == 0 ? " " : ", ";
    if (!c.inputs[i].present) {
      claim += "none";
      continue;
    }
    claim += Info(c.inputs[i].type).name;
    if (!choice.weights[i].name.empty()) claim += " as " + choice.weights[i].name;
  }
  return claim;
}

std::optional<KernelChoice> Ask(Device& device, const Case& c) {
  Prepared prepared;
  for (const Operand& operand : c.inputs) {
    Layout layout;
    layout.type = operand.type;
    if (operand.present) layout = Arrange(operand.type, operand.dims, Arrangement::kPacked).layout;
    prepared.query_inputs.push_back(layout);
  }
  auto output = OutputLayout(c, false);
  if (!output) return std::nullopt;  // No graph has this node.
  prepared.query_output = *output;
  const Question question(c, prepared);
  auto choice = device.FindKernel(question.query);
  if (!choice) return std::nullopt;
  return *choice;
}

// Goes through all types and kinds of the inputs from `next` on.
template <class Visit>
void ForEachTyping(Case& c, size_t next, const Visit& visit) {
  if (next == c.inputs.size()) return visit(c);
  if (!c.inputs[next].present) return ForEachTyping(c, next + 1, visit);
  for (int type = 0; type < kTypeCount; ++type) {
    c.inputs[next].type = static_cast<Type>(type);
    const int64_t columns = c.inputs[next].dims.empty() ? 1 : c.inputs[next].dims.back();
    if (columns % Info(c.inputs[next].type).block_elements != 0) continue;
    for (const bool constant : {false, true}) {
      c.inputs[next].constant = constant;
      ForEachTyping(c, next + 1, visit);
    }
  }
}

TEST_P(Ops_, ClaimsNothingThatNoCaseExercises) {
  std::set<std::string> exercised;
  std::map<std::vector<bool>, std::vector<Case>> templates;  // By which inputs are present.
  for (const Case& c : CasesToRun(op())) {
    if (const auto choice = Ask(*subject().device, c)) exercised.insert(ClaimOf(c, *choice));
    std::vector<bool> present;
    bool fits = true;
    for (const Operand& operand : c.inputs) {
      present.push_back(operand.present);
      fits = fits && operand.arrangement == Arrangement::kPacked;
      for (const int64_t dim : operand.dims) fits = fits && dim > 0;
    }
    auto& of_these = templates[present];
    if (fits && of_these.size() < 2) of_these.push_back(c);
  }
  std::set<std::string> reported;
  for (auto& [present, cases] : templates)
    for (Case& c : cases)
      ForEachTyping(c, 0, [&](const Case& typed) {
        const auto choice = Ask(*subject().device, typed);
        if (!choice) return;
        ASSERT_EQ(choice->weights.size(), typed.inputs.size());
        const std::string claim = ClaimOf(typed, *choice);
        if (!exercised.contains(claim) && reported.insert(claim).second)
          ADD_FAILURE() << subject().name << " claims to support " << claim
                        << ", which no case exercises (" << typed.Name() << ")";
      });
}

INSTANTIATE_TEST_SUITE_P(Devices, Ops_,
                         testing::Combine(testing::ValuesIn(Subjects().begin(), Subjects().end()),
                                          testing::ValuesIn(Ops())),
                         NameOf);

TEST(Backends, AllHaveADevice) {
  if (!MissingBackends().empty()) GTEST_SKIP() << MissingBackends();
}

}  // namespace
}  // namespace tandem::conformance
