// tandem run: text from a model, as it comes, and then what it took.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "models/chat.h"
#include "models/sampler.h"
#include "scheduler/dump.h"
#include "tools/command.h"
#include "tools/model_options.h"

namespace tandem {
namespace {

struct RunCommand {
  ModelOptions model;
  SamplerOptions sampler;
  std::string prompt, prompt_file, system;
  int64_t tokens = 128;
  int64_t seed = -1;
  bool chat = false;
  bool quiet = false;
};

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::atomic<bool> interrupted{false};

// A line on a terminal that is overwritten; nothing where stderr is a file.
class Progress {
 public:
  void operator()(int64_t done, int64_t total) {
    if (!is_terminal_ || total == 0) return;
    const auto percent = static_cast<int>(100 * done / total);
    if (percent == shown_) return;
    shown_ = percent;
    fmt::print(stderr, "\rloading {:>3} % of {}{}", percent, FormatBytes(total),
               percent == 100 ? "\n" : "");
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  int shown_ = -1;
};

// The file without the newline that editors put at the end.
Result<std::string> ReadPrompt(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  std::string text;
  char part[1 << 14];
  while (file != nullptr) {
    const size_t bytes = std::fread(part, 1, sizeof part, file.get());
    text.append(part, bytes);
    if (bytes < sizeof part) break;
  }
  if (file == nullptr || std::ferror(file.get()) != 0)
    return Fail(ErrorCode::kNotFound, "--file {}: can not be read: {}", path, std::strerror(errno));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::vector<Token>> PromptTokens(const RunCommand& command, const GgufFile& file,
                                        const Tokenizer& tokenizer) {
  std::string text = command.prompt;
  if (!command.prompt_file.empty()) {
    TANDEM_ASSIGN(text, ReadPrompt(command.prompt_file));
  }
  if (text.empty())
    return Fail(ErrorCode::kInvalid, "the prompt is empty: give -p TEXT, or -f FILE with text");
  std::vector<Token> tokens;
  if (command.chat) {
    TANDEM_ASSIGN(const std::string system, ChatMlDefaultSystem(file));
    std::vector<ChatMessage> messages;
    if (!command.system.empty()) messages.push_back({"system", command.system});
    messages.push_back({"user", text});
    tokens = tokenizer.EncodePrompt(FormatChatMl(messages, system), true);
  } else {
    tokens = tokenizer.EncodePrompt(text, true);
  }
  if (tokens.empty()) return Fail(ErrorCode::kInvalid, "the prompt makes no tokens");
  return tokens;
}

struct Timings {
  double load = 0, prompt = 0, decode = 0;
  int64_t prompt_tokens = 0, decoded = 0;
  SchedulerCounters before_decode, after;
};

double Rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

void PrintSummary(const Timings& t, const Scheduler& scheduler) {
  const double decoded = static_cast<double>(std::max<int64_t>(t.decoded, 1));
  const auto per_token = [&](int64_t SchedulerCounters::*counter) {
    return static_cast<double>(t.after.*counter - t.before_decode.*counter) / decoded;
  };
  fmt::print(stderr, "\nload      {:.2f} s\n", t.load);
  fmt::print(stderr, "prompt    {} tokens, {:.1f} tokens/s\n", t.prompt_tokens,
             Rate(t.prompt_tokens, t.prompt));
  fmt::print(stderr, "decode    {} tokens, {:.1f} tokens/s\n", t.decoded,
             Rate(t.decoded, t.decode));
  if (t.decoded > 0)
    fmt::print(stderr, "a token   {:.0f} bytes copied in {:.1f} transfers, {:.2f} host waits\n",
               per_token(&SchedulerCounters::copied_bytes), per_token(&SchedulerCounters::copies),
               per_token(&SchedulerCounters::host_waits));
  fmt::print(stderr, "in all    {} plans, {} allocations, {} host waits, {} bridges\n",
             t.after.plans, t.after.allocations, t.after.host_waits, t.after.bridges);
  for (const MemoryUse& use : scheduler.memory())
    fmt::print(stderr, "memory    {:<10} {} (weights {}, states {}, arenas {})\n", use.memory,
               FormatBytes(use.Total()), FormatBytes(use.weights), FormatBytes(use.states),
               FormatBytes(use.arenas));
}

Result<void> Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Fail(ErrorCode::kInvalid, "the text can not be written: {}", std::strerror(errno));
  return {};
}

// Decodes until the model ends, -n is reached or the context is full.
Result<void> Decode(const RunCommand& command, Generator& generator, const Tokenizer& tokenizer,
                    Sampler& sampler, Timings& timings) {
  Utf8Stream text;
  for (int64_t i = 0; command.tokens < 0 || i < command.tokens; ++i) {
    Token token = generator.next();
    if (command.sampler.temperature > 0) {
      TANDEM_ASSIGN(token, sampler.Pick(generator.logits()));
    }
    if (tokenizer.EndsGeneration(token) || interrupted) break;
    TANDEM_CHECK(Print(text.Push(tokenizer.Decode(token))));
    if (i + 1 == command.tokens) break;
    if (generator.length() == generator.context()) {
      fmt::print(stderr, "\nthe context of {} tokens is full", generator.context());
      break;
    }
    TANDEM_CHECK(generator.Feed({&token, 1}));
    ++timings.decoded;
  }
  return Print(text.Finish() + "\n");
}

Result<void> Run(RunCommand& command) {
  const auto start = Clock::now();
  TANDEM_ASSIGN(ModelOptions::Resolved model, command.model.Resolve());
  model.generator.model.logits = command.sampler.temperature > 0;
  TANDEM_ASSIGN(const auto tokenizer, Tokenizer::FromGguf(*model.file));
  TANDEM_ASSIGN(const std::vector<Token> prompt, PromptTokens(command, *model.file, *tokenizer));
  command.sampler.seed =
      command.seed < 0 ? std::random_device()() : static_cast<uint64_t>(command.seed);
  TANDEM_ASSIGN(Sampler sampler, Sampler::Create(command.sampler));
  if (static_cast<int64_t>(prompt.size()) > model.generator.model.context)
    return Fail(ErrorCode::kInvalid, "the prompt has {} tokens, more than the context of {} (-c)",
                prompt.size(), model.generator.model.context);
  TANDEM_ASSIGN(auto generator, Generator::Create(*model.file, model.generator));
  TANDEM_CHECK(generator->Reserve());
  TANDEM_CHECK(generator->Load(Progress()));
  Timings timings;
  timings.load = SecondsSince(start);

  std::signal(SIGINT, [](int) { interrupted = true; });
  const auto prompt_start = Clock::now();
  if (!command.chat && !command.quiet) TANDEM_CHECK(Print(tokenizer->Decode(prompt, true)));
  TANDEM_CHECK(generator->Feed(prompt));
  timings.prompt = SecondsSince(prompt_start);
  timings.prompt_tokens = static_cast<int64_t>(prompt.size());
  timings.before_decode = generator->scheduler().counters();
  const auto decode_start = Clock::now();
  TANDEM_CHECK(Decode(command, *generator, *tokenizer, sampler, timings));
  timings.decode = SecondsSince(decode_start);
  timings.after = generator->scheduler().counters();
  PrintSummary(timings, generator->scheduler());
  return {};
}

}  // namespace

Command AddRunCommand(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("run", "Generate text; text goes to stdout, all else to stderr");
  auto command = std::make_shared<RunCommand>();
  command->model.AddTo(*sub);
  auto* prompt = sub->add_option("-p,--prompt", command->prompt, "The prompt")->type_name("TEXT");
  sub->add_option("-f,--file", command->prompt_file,
                  "The prompt is in a file; a newline at its end is left out")
      ->type_name("FILE")
      ->excludes(prompt);
  sub->add_option("-n,--n-predict", command->tokens, "Tokens to generate; -1: until the model ends")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
  auto* chat = sub->add_flag("--chat", command->chat, "The prompt is a user's message (ChatML)");
  sub->add_option("--system", command->system, "System message, with --chat")
      ->type_name("TEXT")
      ->needs(chat);
  sub->add_option("--temp", command->sampler.temperature,
                  "Temperature; 0 takes the likeliest token")
      ->type_name("T")
      ->capture_default_str();
  sub->add_option("--top-k", command->sampler.top_k, "Sample from the k likeliest; 0: all")
      ->type_name("K")
      ->capture_default_str();
  sub->add_option("--top-p", command->sampler.top_p, "Sample from the likeliest that sum up to p")
      ->type_name("P")
      ->capture_default_str();
  sub->add_option("-s,--seed", command->seed, "Seed of the sampler; -1: a new one")
      ->type_name("SEED")
      ->check(CLI::Range(int64_t{-1}, INT64_MAX))
      ->capture_default_str();
  sub->add_flag("--no-display-prompt", command->quiet, "Do not print the prompt");
  return {sub, [command] { return Run(*command); }};
}

}  // namespace tandem
