#include "tests/layers/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

namespace tandem::layers {
namespace {

namespace fs = std::filesystem;

// The tree that this test was built from: WORKSPACE lies beside the test as a link into it.
fs::path Root() { return fs::canonical("WORKSPACE").parent_path(); }

std::string Contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The reason of the only violation, or empty.
std::string ReasonFor(std::string_view path, std::string_view include) {
  const auto violations = CheckSource(path, "#include \"" + std::string(include) + "\"\n");
  EXPECT_LE(violations.size(), 1u);
  return violations.empty() ? "" : violations.front().reason;
}

TEST(LayersTest, NoSourceOfTheTreeIncludesUpwards) {
  std::set<std::string> folders;
  for (const std::string& path : Sources(Root())) {
    folders.insert(path.substr(0, path.find('/')));
    for (const Violation& v : CheckSource(path, Contents(Root() / path)))
      ADD_FAILURE() << v.file << ":" << v.line << ": " << v.include << ": " << v.reason;
  }
  const std::set<std::string> all = {"allocator", "backends", "graph", "models",
                                     "scheduler", "tests",    "tools"};
  EXPECT_EQ(folders, all);
}

TEST(LayersTest, OneWrongLineInARealFileIsFound) {
  const struct {
    const char* file;
    const char* include;
  } kMutations[] = {
      {"graph/shape.h", "scheduler/plan.h"},     {"graph/graph.h", "allocator/planner.h"},
      {"allocator/planner.cc", "graph/graph.h"}, {"allocator/planner.cc", "backends/device.h"},
      {"backends/device.h", "scheduler/plan.h"}, {"backends/sim/sim.cc", "backends/cpu/cpu.h"},
      {"scheduler/place.cc", "models/llama.h"},  {"models/llama.cc", "backends/device.h"},
      {"tools/main.cc", "tests/rig.h"},          {"models/llama.cc", "tools/command.h"},
  };
  for (const auto& mutation : kMutations) {
    std::string contents = Contents(Root() / mutation.file);
    ASSERT_FALSE(contents.empty()) << mutation.file;
    ASSERT_TRUE(CheckSource(mutation.file, contents).empty()) << mutation.file;
    const size_t first = contents.find("#include");
    ASSERT_NE(first, std::string::npos) << mutation.file;
    contents.insert(first, "#include \"" + std::string(mutation.include) + "\"\n");
    const auto violations = CheckSource(mutation.file, contents);
    ASSERT_EQ(violations.size(), 1u) << mutation.file;
    EXPECT_EQ(violations.front().include, mutation.include);
    EXPECT_EQ(violations.front().line,
              1 + std::count(contents.begin(), contents.begin() + static_cast<long>(first), '\n'));
  }
}

TEST(LayersTest, DownwardsIsAllowed) {
  EXPECT_EQ(ReasonFor("tools/main.cc", "models/llama.h"), "");
  EXPECT_EQ(ReasonFor("tools/main.cc", "graph/graph.h"), "");
  EXPECT_EQ(ReasonFor("models/llama.cc", "graph/builder.h"), "");
  EXPECT_EQ(ReasonFor("scheduler/reserve.cc", "allocator/planner.h"), "");
  EXPECT_EQ(ReasonFor("scheduler/plan.h", "backends/device.h"), "");
  EXPECT_EQ(ReasonFor("backends/cpu/cpu.cc", "backends/device.h"), "");
  EXPECT_EQ(ReasonFor("backends/registry.cc", "backends/opencl/opencl.h"), "");
  EXPECT_EQ(ReasonFor("allocator/planner.h", "graph/result.h"), "");
}

TEST(LayersTest, TestsIncludeWhatTheyTest) {
  EXPECT_EQ(ReasonFor("tests/rig.h", "scheduler/scheduler.h"), "");
  EXPECT_EQ(ReasonFor("models/llama_test.cc", "tests/testing/test_data.h"), "");
  EXPECT_EQ(ReasonFor("models/llama.h", "tests/testing/test_data.h"), "only tests include tests/");
  // A unit test is of its own layer.
  EXPECT_EQ(ReasonFor("graph/graph_test.cc", "scheduler/plan.h"), "graph/ lies below scheduler/");
}

TEST(LayersTest, NarrowLayers) {
  EXPECT_EQ(ReasonFor("allocator/planner.h", "graph/graph.h"),
            "allocator/ includes graph/result.h alone");
  EXPECT_EQ(ReasonFor("models/llama.h", "scheduler/plan.h"), "models/ includes graph/ alone");
  EXPECT_EQ(ReasonFor("backends/cpu/cpu.cc", "backends/sim/sim.h"),
            "a backend includes no other backend");
}

TEST(LayersTest, EverySpellingOfAnIncludeIsSeen) {
  for (const char* line :
       {"#include <scheduler/plan.h>", "  #  include\t\"scheduler/plan.h\"  // Why.",
        "#include \"scheduler/plan.h\"\r", "#include_next \"scheduler/plan.h\""})
    EXPECT_EQ(CheckSource("graph/graph.h", line).size(), 1u) << line;
  EXPECT_TRUE(CheckSource("graph/graph.h", "// #include \"scheduler/plan.h\"").empty());
  EXPECT_TRUE(CheckSource("graph/graph.h", "#include <vector>").empty());
}

TEST(LayersTest, FilesAreNamedFromTheRoot) {
  EXPECT_NE(ReasonFor("graph/graph.h", "shape.h"), "");
  EXPECT_NE(ReasonFor("graph/graph.h", "../scheduler/plan.h"), "");
  EXPECT_EQ(ReasonFor("graph/graph_test.cc", "gtest/gtest.h"), "");
}

TEST(LayersTest, ANewFolderMustFindItsLayer) {
  EXPECT_EQ(CheckSource("misc/strings.h", "").size(), 1u);
  EXPECT_EQ(CheckSource("main.cc", "").size(), 1u);
}

}  // namespace
}  // namespace tandem::layers
