// The subcommands of `tandem`. Each adds itself to the command line and, when chosen, runs and
// returns; an error is printed by main() as one line, with exit status 1.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "graph/result.h"

namespace tandem {

struct Command {
  CLI::App* app = nullptr;
  std::function<Result<void>()> run;
};

Command AddDevicesCommand(CLI::App& app);
Command AddRunCommand(CLI::App& app);
Command AddDumpCommand(CLI::App& app);
Command AddBenchCommand(CLI::App& app);

}  // namespace tandem
