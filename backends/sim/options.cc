#include <algorithm>
#include <charconv>
#include <functional>
#include <string>

#include "backends/sim/sim.h"
#include "graph/ops.h"

namespace tandem {
namespace {

constexpr std::string_view kKeys =
    "name, memory, largest, alignment, scratch, unsupported, packs_weights, host_readable, "
    "reads_host, declines_copies, waits_for_others, synchronous";

Result<int64_t> ParseSize(std::string_view key, std::string_view text) {
  std::string_view digits = text;
  int64_t unit = 1;
  if (!digits.empty()) {
    const char last = digits.back();
    if (last == 'K' || last == 'k') unit = int64_t{1} << 10;
    if (last == 'M' || last == 'm') unit = int64_t{1} << 20;
    if (last == 'G' || last == 'g') unit = int64_t{1} << 30;
    if (unit != 1) digits.remove_suffix(1);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
    return Fail(ErrorCode::kInvalid,
                "sim: {}={} is no size (a number of bytes, with K, M or G if wanted)", key, text);
  if (__builtin_mul_overflow(value, unit, &value))
    return Fail(ErrorCode::kInvalid, "sim: {}={} is more than 63 bits", key, text);
  return value;
}

Result<bool> ParseFlag(std::string_view key, std::string_view text) {
  if (text == "1" || text == "true" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "no") return false;
  return Fail(ErrorCode::kInvalid, "sim: {}={} is neither true nor false", key, text);
}

Result<std::vector<std::string>> ParseOps(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find('|'), text.size());
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name.empty()) continue;
    const auto all = ops::All();
    const bool is_op = std::any_of(all.begin(), all.end(),
                                   [&](const OpDefinition* op) { return op->name == name; });
    if (!is_op) {
      std::string known;
      for (const OpDefinition* op : all)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", op->name);
      return Fail(ErrorCode::kInvalid, "sim: unsupported={} is no op; there are {}", name, known);
    }
    names.emplace_back(name);
  }
  return names;
}

Result<void> Set(SimOptions& options, std::string_view key, std::string_view value) {
  const auto set_size = [&](int64_t& field) -> Result<void> {
    TANDEM_ASSIGN(field, ParseSize(key, value));
    return {};
  };
  const auto set_flag = [&](bool& field) -> Result<void> {
    TANDEM_ASSIGN(field, ParseFlag(key, value));
    return {};
  };
  if (key == "name") {
    const bool is_plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.';
    });
    if (!is_plain)
      return Fail(ErrorCode::kInvalid, "sim: name={} is not made of letters, digits, _ - and .",
                  value);
    options.name = value;
    return {};
  }
  if (key == "memory") return set_size(options.memory);
  if (key == "largest" || key == "largest_buffer") return set_size(options.largest_buffer);
  if (key == "scratch") return set_size(options.scratch);
  if (key == "alignment") {
    TANDEM_CHECK(set_size(options.alignment));
    // The pages of the host bound what it can align.
    if (options.alignment < 1 || options.alignment > (1 << 20) ||
        (options.alignment & (options.alignment - 1)) != 0)
      return Fail(ErrorCode::kInvalid, "sim: alignment={} is no power of two up to 1M", value);
    return {};
  }
  if (key == "unsupported") {
    TANDEM_ASSIGN(options.unsupported, ParseOps(value));
    return {};
  }
  if (key == "packs_weights") return set_flag(options.packs_weights);
  if (key == "host_readable") return set_flag(options.host_readable);
  if (key == "reads_host") return set_flag(options.reads_host);
  if (key == "declines_copies") return set_flag(options.declines_copies);
  if (key == "waits_for_others") return set_flag(options.waits_for_others);
  if (key == "synchronous") return set_flag(options.synchronous);
  return Fail(ErrorCode::kInvalid, "sim: no option is named '{}'; there are {}", key, kKeys);
}

}  // namespace

Result<SimOptions> ParseSimOptions(std::string_view spec) {
  SimOptions options;
  std::vector<std::string_view> seen;
  while (!spec.empty()) {
    const size_t end = std::min(spec.find(','), spec.size());
    const std::string_view item = spec.substr(0, end);
    spec.remove_prefix(std::min(end + 1, spec.size()));
    if (item.empty()) return Fail(ErrorCode::kInvalid, "sim: an empty option between two commas");
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    // A flag alone is set; for other keys "true" is wrong and says so.
    const std::string_view value =
        equals == std::string_view::npos ? "true" : item.substr(equals + 1);
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return Fail(ErrorCode::kInvalid, "sim: {} is given twice", key);
    seen.push_back(key);
    const bool needs_value =
        equals == std::string_view::npos && (key == "name" || key == "unsupported");
    if (needs_value) return Fail(ErrorCode::kInvalid, "sim: {} needs a value: {}=...", key, key);
    TANDEM_CHECK(Set(options, key, value));
  }
  return options;
}

}  // namespace tandem
