// How the command line speaks: help that fits a terminal, and llama.cpp's options of several
// letters behind one dash (-ngl), which CLI11 does not know.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

// "--gpu-layers" for "-ngl"; what is no such option as it is.
std::string LongOption(const std::string& argument);

// Lines of at most 100 columns; an option's kind of value, then what it means and its default.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace tandem
