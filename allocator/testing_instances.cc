#include "allocator/testing_instances.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace tandem::testing_instances {
namespace {

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) {
    while (!field.empty() && (field.back() == '\r' || field.back() == ' ')) field.pop_back();
    fields.push_back(field);
  }
  return fields;
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Instance> Read(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  const std::vector<std::string> header = Fields(line);
  std::vector<size_t> columns;
  for (const char* name : {"lower", "upper", "size"}) {
    const auto at = std::find(header.begin(), header.end(), name);
    if (at == header.end()) return std::nullopt;
    columns.push_back(static_cast<size_t>(at - header.begin()));
  }
  Instance instance;
  instance.name = path.filename().string();
  // Both extensions off: NAME.CAPACITY.csv.
  const std::string capacity = path.stem().extension().string();
  if (capacity.size() > 1) instance.capacity = Number(capacity.substr(1)).value_or(0);
  while (std::getline(in, line)) {
    const std::vector<std::string> fields = Fields(line);
    std::vector<int64_t> values;
    for (const size_t column : columns) {
      const auto value = column < fields.size() ? Number(fields[column]) : std::nullopt;
      if (!value) return std::nullopt;
      values.push_back(*value);
    }
    instance.lifetimes.push_back({values[0], values[1], values[2]});
  }
  return instance;
}

}  // namespace

std::vector<Instance> ReadFolder(const std::string& folder) {
  std::vector<Instance> instances;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".csv") continue;
    if (std::optional<Instance> instance = Read(entry.path()))
      instances.push_back(std::move(*instance));
  }
  std::sort(instances.begin(), instances.end(),
            [](const Instance& a, const Instance& b) { return a.name < b.name; });
  return instances;
}

}  // namespace tandem::testing_instances
