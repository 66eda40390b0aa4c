// tandem: run models over several devices, and see where time and memory go.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "models/mapped_file.h"
#include "tools/command.h"
#include "tools/help.h"

namespace tandem {
namespace {

// One line, whatever the names and arguments in the message hold.
int Refuse(std::string message) {
  for (char& c : message)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  std::fprintf(stderr, "tandem: %s\n", message.c_str());
  return 1;
}

// Libraries throw; here is where that ends.
Result<void> RunCommands(std::span<const Command> commands) try {
  for (const Command& command : commands)
    if (command.app->parsed()) TANDEM_CHECK(command.run());
  return {};
} catch (const std::exception& exception) {
  return Fail(ErrorCode::kInvalid, "{}", exception.what());
}

int Main(int argc, char** argv) {
  CLI::App app{"Runs models over several devices: CPU, OpenCL, simulated."};
  app.name("tandem");
  app.require_subcommand(1);
  app.footer("`tandem COMMAND -h` lists the options of a command.");
  app.set_help_flag("-h,--help", "Print this and exit");
  app.set_help_all_flag("--help-all", "Print the help of all commands and exit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const Command commands[] = {AddRunCommand(app), AddDumpCommand(app), AddDevicesCommand(app),
                              AddBenchCommand(app)};
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) arguments.push_back(LongOption(argv[i]));
  const auto is_first = [&](const Command& c) { return c.app->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::ranges::none_of(commands, is_first))
    return Refuse(fmt::format("there is no command '{}': there are run, dump, devices and bench",
                              Printable(argv[1])));
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Refuse(fmt::format("{} (see tandem -h)", error.what()));
  }
  if (const auto result = RunCommands(commands); !result) return Refuse(result.error().message);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return Refuse(fmt::format("the output can not be written: {}", std::strerror(errno)));
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
