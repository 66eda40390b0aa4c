#include "tools/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr size_t kColumns = 98;  // --help-all indents by two.
constexpr size_t kIndent = 28;

constexpr std::pair<std::string_view, std::string_view> kOneDash[] = {
    {"-ngl", "--gpu-layers"}, {"-ot", "--override-tensor"}, {"-dev", "--device"}};

// The name, and the text beside it or, where the name is long, below it.
std::string Entry(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  size_t column = out.size();
  const auto start_line = [&] {
    out += '\n' + std::string(kIndent, ' ');
    column = kIndent;
  };
  if (column + 2 > kIndent) {
    start_line();
  } else {
    out.append(kIndent - column, ' ');
    column = kIndent;
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > kIndent && column + 1 + word.size() > kColumns) start_line();
    if (column > kIndent) word.insert(word.begin(), ' ');
    out += word;
    column += word.size();
  }
  return out + '\n';
}

}  // namespace

std::string LongOption(const std::string& argument) {
  for (const auto& [one_dash, name] : kOneDash)
    if (argument == one_dash) return std::string(name);
  return argument;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::vector<std::string> names;
  if (is_positional) {
    names.push_back(option->get_name(true));
  } else {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) {
      for (const auto& [one_dash, long_name] : kOneDash)
        if (long_name == "--" + name) names.insert(names.begin(), std::string(one_dash));
      names.push_back("--" + name);
    }
  }
  std::string name = fmt::format("{}", fmt::join(names, ", "));
  // Of "INT:INT in [1 - 8]" the first word; a range that is broken is told by the error.
  const std::string type = option->get_type_name();
  if (!is_positional && option->get_type_size() != 0) name += " " + type.substr(0, type.find(':'));
  std::string text = option->get_description();
  if (!option->get_default_str().empty())
    text += fmt::format(" (default: {})", option->get_default_str());
  return Entry(name, text);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return Entry(command->get_name(), command->get_description());
}

}  // namespace tandem
