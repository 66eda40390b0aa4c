// tandem bench: prompt and decode rates, and their ratio to a peer measured in the same run.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/cpu/cpu.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/peer_script.h"

namespace tandem {
namespace {

struct BenchCommand {
  ModelOptions model;
  int64_t prompt_tokens = 512, decoded_tokens = 128;
  int rounds = 3, repeats = 3;
  bool peers = false;
};

struct Rates {
  double prompt = 0, decode = 0;  // Tokens a second.
  void Raise(const Rates& other) {
    prompt = std::max(prompt, other.prompt);
    decode = std::max(decode, other.decode);
  }
};

double SecondsOf(const std::function<Result<void>()>& work, Result<void>& result) {
  const auto start = std::chrono::steady_clock::now();
  result = work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The same work as bench_peer.py does: the same tokens, a decode that begins after eight.
Result<Rates> MeasureOurs(const BenchCommand& command, Generator& generator) {
  std::vector<Token> prompt;
  for (int64_t i = 0; i < command.prompt_tokens; ++i)
    prompt.push_back(static_cast<Token>((7 + 31 * i) % 1000 + 100));
  Rates best;
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    Result<void> result = generator.Truncate(0);
    TANDEM_CHECK(result);
    double seconds = SecondsOf([&] { return generator.Feed(prompt); }, result);
    TANDEM_CHECK(result);
    best.prompt = std::max(best.prompt, static_cast<double>(command.prompt_tokens) / seconds);
    TANDEM_CHECK(generator.Truncate(std::min<int64_t>(8, command.prompt_tokens)));
    seconds = SecondsOf(
        [&]() -> Result<void> {
          for (int64_t i = 0; i < command.decoded_tokens; ++i)
            TANDEM_CHECK(generator.Feed({&prompt[i % command.prompt_tokens], 1}));
          return {};
        },
        result);
    TANDEM_CHECK(result);
    best.decode = std::max(best.decode, static_cast<double>(command.decoded_tokens) / seconds);
  }
  return best;
}

Result<std::string> PeerPython() {
  if (const char* set = std::getenv("TANDEM_PEER_PYTHON")) return std::string(set);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr ? cache : fmt::format("{}/.cache", home ? home : ".");
  std::string python = folder + "/tandem/peers/venv/bin/python";
  if (access(python.c_str(), X_OK) != 0)
    return Fail(ErrorCode::kNotFound, "--peers: no {}: run tools/fetch_peers.sh first", python);
  return python;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

Result<Rates> MeasurePeer(const BenchCommand& command, const std::string& python,
                          const std::string& path, int threads) {
  const std::string line = fmt::format(
      "{} -c {} {} {} {} {} {} 2>/dev/null", Quoted(python), Quoted(kPeerScript), Quoted(path),
      threads, command.prompt_tokens, command.decoded_tokens, command.repeats);
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return Fail(ErrorCode::kInternal, "--peers: can not start {}", python);
  std::string output;
  char chunk[256];
  while (std::fgets(chunk, sizeof chunk, pipe) != nullptr) output += chunk;
  const int status = pclose(pipe);
  const auto json = nlohmann::json::parse(output, nullptr, false);
  if (status != 0 || !json.is_object() || !json.contains("prompt") || !json.contains("decode"))
    return Fail(ErrorCode::kInternal, "--peers: llama-cpp-python failed (status {}): {}", status,
                output);
  return Rates{json["prompt"], json["decode"]};
}

Result<void> Bench(const BenchCommand& command) {
  std::string python;
  if (command.peers) {
    TANDEM_ASSIGN(python, PeerPython());
  }
  TANDEM_ASSIGN(const ModelOptions::Resolved model, command.model.Resolve());
  void* function = model.registry->FindBackend("cpu")->Extension("tandem.cpu.threads");
  const int threads =
      function == nullptr ? 1 : reinterpret_cast<CpuThreads>(function)(model.registry->cpu());
  GeneratorOptions options = model.generator;
  options.model.context = command.prompt_tokens + command.decoded_tokens + 64;
  options.model.max_tokens = std::max<int64_t>(command.prompt_tokens, 1);
  TANDEM_ASSIGN(auto generator, Generator::Create(*model.file, options));
  TANDEM_CHECK(generator->Reserve());
  TANDEM_CHECK(generator->Load());
  Rates ours, theirs;
  for (int round = 0; round < command.rounds; ++round) {
    TANDEM_ASSIGN(const Rates rates, MeasureOurs(command, *generator));
    ours.Raise(rates);
    if (!command.peers) continue;
    TANDEM_ASSIGN(const Rates peer, MeasurePeer(command, python, model.file->path(), threads));
    theirs.Raise(peer);
  }
  fmt::print("{} threads, best of {} rounds of {}\n", threads, command.rounds, command.repeats);
  fmt::print("{:<24} {:>14} {:>14}\n", "tokens/s", fmt::format("prompt {}", command.prompt_tokens),
             fmt::format("decode {}", command.decoded_tokens));
  fmt::print("{:<24} {:>14.1f} {:>14.1f}\n", "tandem", ours.prompt, ours.decode);
  if (!command.peers) return {};
  fmt::print("{:<24} {:>14.1f} {:>14.1f}\n", "llama-cpp-python", theirs.prompt, theirs.decode);
  fmt::print("{:<24} {:>14.2f} {:>14.2f}\n", "ratio", ours.prompt / theirs.prompt,
             ours.decode / theirs.decode);
  return {};
}

}  // namespace

Command AddBenchCommand(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("bench", "Measure prompt and decode rates");
  auto command = std::make_shared<BenchCommand>();
  command->model.AddTo(*sub);
  sub->add_flag(
      "--peers", command->peers,
      "Alternate with llama-cpp-python on the CPU, same file and threads, and print the ratio");
  sub->add_option("--prompt-tokens", command->prompt_tokens, "Length of the prompt")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--decode-tokens", command->decoded_tokens, "Tokens to decode")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--rounds", command->rounds, "Times to alternate")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--repeats", command->repeats, "Measurements in a round; the best counts")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  return {sub, [command] { return Bench(*command); }};
}

}  // namespace tandem
