// The options that say which model runs where; shared by run, dump and bench.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "models/gguf.h"
#include "tools/generator.h"

namespace tandem {

class ModelOptions {
 public:
  // Adds them to a command. Names and meanings are llama.cpp's where it has them.
  void AddTo(CLI::App& command);

  // Opens the file, finds the devices, sets threads. Errors name the option.
  struct Resolved {
    std::shared_ptr<Registry> registry;  // Owns the devices.
    std::shared_ptr<const GgufFile> file;
    GeneratorOptions generator;
  };
  Result<Resolved> Resolve() const;

  int64_t context_ = 4096;
  int64_t batch_ = 512;

 private:
  Result<int64_t> Layers() const;
  Result<Device*> Offload(Registry& registry) const;

  std::string model_;
  std::string layers_;  // Empty: not given.
  std::string device_;
  std::vector<std::string> overrides_, limits_;
  int threads_ = 0;
  bool exact_ = false;
  bool no_reuse_ = false;
};

// "512M", "4G", "1000": bytes, in powers of 1024.
Result<int64_t> ParseSize(const std::string& text);

}  // namespace tandem
