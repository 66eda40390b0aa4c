#include "tools/model_options.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "backends/cpu/cpu.h"

namespace tandem {
namespace {

using Pair = std::pair<std::string, std::string>;

// The two sides of the '=' at `at`, if there are two.
std::optional<Pair> CutAt(const std::string& text, size_t at) {
  if (at == std::string::npos || at == 0 || at + 1 >= text.size()) return std::nullopt;
  return Pair(text.substr(0, at), text.substr(at + 1));
}

// PATTERN=DEVICE, or several with commas between them. A device is what follows the last '='; a
// comma before any '=' is the pattern's own. A sim:SPEC, which has '=' and ',' too, goes on to the
// end.
Result<std::vector<Pair>> CutOverrides(const std::string& text) {
  // Deeper brackets than so would overflow the stack of std::regex.
  constexpr size_t kLongestPattern = 1000;
  const size_t sim = text.find("=sim:");
  std::vector<Pair> pairs;
  for (size_t start = 0; start <= text.size();) {
    const size_t equals = text.find('=', start);
    const size_t comma = std::min(text.find(',', equals), text.size());
    const bool is_sim = sim >= start && sim < comma;
    const size_t end = is_sim ? text.size() : comma;
    const std::string part = text.substr(start, end - start);
    const auto pair = CutAt(part, is_sim ? sim - start : part.rfind('='));
    if (!pair || pair->first.size() > kLongestPattern)
      return Fail(
          ErrorCode::kInvalid,
          "--override-tensor {}: expected PATTERN=DEVICE, with at most {} characters before "
          "the '='",
          text, kLongestPattern);
    pairs.push_back(*pair);
    start = end + 1;
  }
  return pairs;
}

}  // namespace

Result<int64_t> ParseSize(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (error != std::errc() || value < 0 || shift < 0 || value > (INT64_MAX >> shift))
    return Fail(ErrorCode::kInvalid, "\"{}\" is no size (a number, with K, M or G)", text);
  return value << shift;
}

void ModelOptions::AddTo(CLI::App& command) {
  command.add_option("MODEL", model_, "A GGUF file of the llama family")->required();
  command.add_option("-c,--ctx-size", context_, "Tokens that the context holds")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command.add_option("-b,--batch-size", batch_, "Largest number of prompt tokens at once")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--gpu-layers,--n-gpu-layers", layers_,
                  "The last N layers go to the device, the output layer counted first; \"all\" for "
                  "all (default: 0; all where --device is given)")
      ->type_name("N");
  command
      .add_option("--device", device_,
                  "Where layers go: opencl:0, gpu, accelerator, sim:KEY=VALUE,..., or none "
                  "(default: the first gpu or accelerator); `tandem devices` lists them")
      ->type_name("DEVICE");
  command
      .add_option("--override-tensor", overrides_,
                  "Weights and nodes whose name the regular expression finds go to that device; "
                  "the first that matches counts (repeatable, or separated by commas)")
      ->type_name("PATTERN=DEVICE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  command
      .add_option("--max-memory", limits_,
                  "Weights, caches and buffers there may not take more: 512M, 4G (repeatable)")
      ->type_name("DEVICE=SIZE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  command
      .add_option("-t,--threads", threads_,
                  "Threads of the CPU device (default: one for each core)")
      ->type_name("N")
      ->check(CLI::Range(0, 4096));
  command.add_flag("--exact", exact_,
                   "Activations and caches in f32: slower, no rounding to 8 bits");
  command.add_flag("--no-memory-reuse", no_reuse_, "Each tensor has memory of its own");
}

Result<int64_t> ModelOptions::Layers() const {
  if (layers_.empty()) return device_.empty() ? 0 : -1;
  if (layers_ == "all") return -1;
  int64_t layers = 0;
  const char* end = layers_.data() + layers_.size();
  const auto [rest, error] = std::from_chars(layers_.data(), end, layers);
  if (error != std::errc() || rest != end)
    return Fail(ErrorCode::kInvalid, "-ngl {}: expected a number or \"all\"", layers_);
  return layers;
}

Result<Device*> ModelOptions::Offload(Registry& registry) const {
  if (device_ == "none") return nullptr;
  if (!device_.empty()) {
    auto found = registry.Find(device_);
    if (!found) return Fail(found.error().code, "--device {}: {}", device_, found.error().message);
    return *found;
  }
  if (auto gpu = registry.Find("gpu")) return *gpu;
  auto accelerator = registry.Find("accelerator");
  if (!accelerator)
    return Fail(ErrorCode::kNotFound, "-ngl {}: there is no device to offload to: {}", layers_,
                accelerator.error().message);
  return *accelerator;
}

Result<ModelOptions::Resolved> ModelOptions::Resolve() const {
  Resolved resolved;
  TANDEM_ASSIGN(resolved.file, GgufFile::Open(model_));
  TANDEM_ASSIGN(const int64_t layers, Layers());
  resolved.registry = std::make_shared<Registry>(Registry::WithBuiltins());
  Registry& registry = *resolved.registry;
  GeneratorOptions& options = resolved.generator;
  options.model.context = context_;
  options.model.max_tokens = std::min(batch_, context_);
  options.model.exact = exact_;
  options.reuse_memory = !no_reuse_;
  options.host = &registry.cpu();
  options.offloaded_layers = layers;
  if (layers != 0 || !device_.empty()) {  // A device that is named must be there.
    TANDEM_ASSIGN(options.offload, Offload(registry));
  }
  for (const std::string& text : overrides_) {
    TANDEM_ASSIGN(const std::vector<Pair> pairs, CutOverrides(text));
    for (const auto& [pattern, name] : pairs) {
      auto device = registry.Find(name);
      if (!device)
        return Fail(device.error().code, "--override-tensor {}: {}", text, device.error().message);
      options.overrides.push_back({pattern, *device});
    }
  }
  for (const std::string& text : limits_) {
    const auto pair = CutAt(text, text.rfind('='));
    if (!pair) return Fail(ErrorCode::kInvalid, "--max-memory {}: expected DEVICE=SIZE", text);
    auto device = registry.Find(pair->first);
    if (!device)
      return Fail(device.error().code, "--max-memory {}: {}", text, device.error().message);
    const auto bytes = ParseSize(pair->second);
    if (!bytes) return Fail(bytes.error().code, "--max-memory {}: {}", text, bytes.error().message);
    options.limits.push_back({*device, *bytes});
  }
  if (threads_ > 0) {
    void* function = registry.FindBackend("cpu")->Extension("tandem.cpu.set_threads");
    if (function == nullptr)
      return Fail(ErrorCode::kUnsupported, "-t {}: the CPU backend has no threads to set",
                  threads_);
    TANDEM_CHECK(reinterpret_cast<CpuSetThreads>(function)(registry.cpu(), threads_));
  }
  return resolved;
}

}  // namespace tandem
