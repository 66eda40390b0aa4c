#include "tests/layers/layers.h"

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <sstream>

namespace tandem::layers {
namespace {

namespace fs = std::filesystem;

// From the lowest to the highest.
constexpr std::array<std::string_view, 7> kLayers = {"graph",  "allocator", "backends", "scheduler",
                                                     "models", "tools",     "tests"};

constexpr std::array<std::string_view, 9> kExtensions = {".h",  ".hpp", ".cc",  ".cpp", ".inc",
                                                         ".cl", ".cu",  ".cuh", ".c"};

std::string_view Folder(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// The backend that a file belongs to; empty for the files of backends/ itself.
std::string_view Backend(std::string_view path) {
  return Folder(path) == "backends" ? Folder(path.substr(std::string_view("backends/").size()))
                                    : std::string_view();
}

std::optional<int> Rank(std::string_view path) {
  const auto at = std::find(kLayers.begin(), kLayers.end(), Folder(path));
  if (at == kLayers.end()) return std::nullopt;
  return static_cast<int>(at - kLayers.begin());
}

bool IsTest(std::string_view path) {
  if (Folder(path) == "tests") return true;
  return path.ends_with("_test.cc") || path.ends_with("_fuzz.cc") || path.ends_with("_bench.cc");
}

// Why `path` may not include `include`, a file of the tree; empty if it may.
std::string Reason(std::string_view path, std::string_view include) {
  const std::string_view from = Folder(path), to = Folder(include);
  if (to == "tests") return IsTest(path) ? "" : "only tests include tests/";
  if (from == to) {
    if (!Backend(include).empty() && !Backend(path).empty() && Backend(path) != Backend(include))
      return "a backend includes no other backend";
    return "";
  }
  if (*Rank(include) > *Rank(path))
    return std::string(from) + "/ lies below " + std::string(to) + "/";
  if (from == "models" && to != "graph") return "models/ includes graph/ alone";
  if (from == "allocator" && include != "graph/result.h")
    return "allocator/ includes graph/result.h alone";
  return "";
}

}  // namespace

std::vector<Violation> CheckSource(std::string_view path, std::string_view contents) {
  static const std::regex kInclude(R"(^\s*#\s*include(_next)?\s*(["<])([^">]+)[">])");
  std::vector<Violation> violations;
  if (!Rank(path)) {
    violations.push_back({std::string(path), 0, "", "the folder belongs to no layer"});
    return violations;
  }
  std::istringstream stream{std::string(contents)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const bool quoted = match[2] == "\"";
    const std::string include = match[3];
    std::string reason;
    if (Rank(include))
      reason = Reason(path, include);
    else if (quoted && (Folder(include).empty() || include.front() == '.'))
      reason = "files of the tree are named from its root";
    if (!reason.empty()) violations.push_back({std::string(path), number, include, reason});
  }
  return violations;
}

std::vector<std::string> Sources(const fs::path& root) {
  std::vector<std::string> sources;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    const fs::path path = fs::relative(it->path(), root);
    const std::string name = path.filename().string();
    if (it->is_directory() && !it->is_symlink()) {
      if (name.front() == '.' || path == "third_party") it.disable_recursion_pending();
    } else if (it->is_regular_file() && std::find(kExtensions.begin(), kExtensions.end(),
                                                  path.extension().string()) != kExtensions.end()) {
      sources.push_back(path.generic_string());
    }
  }
  std::sort(sources.begin(), sources.end());
  return sources;
}

}  // namespace tandem::layers
