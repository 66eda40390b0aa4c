// tandem: run models over several devices, and see where time and memory go.
#include <cstdio>
#include <string>
#include <vector>

#include "tools/command.h"

namespace {

// CLI11 has no long options behind one dash; these are known from llama.cpp.
std::string LongName(const std::string& argument) {
  if (argument == "-ngl") return "--gpu-layers";
  if (argument == "-ot") return "--override-tensor";
  if (argument == "-dev") return "--device";
  return argument;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs models over several devices: CPU, OpenCL, simulated."};
  app.name("tandem");
  app.require_subcommand(1);
  app.footer("`tandem COMMAND -h` lists the options of a command.");
  app.set_help_all_flag("--help-all", "Help on all commands");
  const tandem::Command commands[] = {tandem::AddRunCommand(app), tandem::AddDumpCommand(app),
                                      tandem::AddDevicesCommand(app), tandem::AddBenchCommand(app)};
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) arguments.push_back(LongName(argv[i]));
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "tandem: %s (see tandem -h)\n", error.what());
    return 1;
  }
  for (const tandem::Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (const auto result = command.run(); !result) {
      std::fprintf(stderr, "tandem: %s\n", result.error().message.c_str());
      return 1;
    }
  }
  return 0;
}
