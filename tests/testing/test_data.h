// Where tests find data that is not part of the tree.
//
// TANDEM_SHARED_DATA names the folder with references and instances, TANDEM_MODELS the one with
// model files. Tests skip, with a message, what is absent:
//
//   const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
//   if (!path) GTEST_SKIP() << "no model: set TANDEM_MODELS (tools/fetch_models.sh)";
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace tandem::testing_data {

inline std::optional<std::string> InFolder(const char* variable, const std::string& name) {
  const char* folder = std::getenv(variable);
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

inline std::optional<std::string> SharedData(const std::string& name) {
  return InFolder("TANDEM_SHARED_DATA", name);
}
inline std::optional<std::string> Model(const std::string& name) {
  return InFolder("TANDEM_MODELS", name);
}

}  // namespace tandem::testing_data
