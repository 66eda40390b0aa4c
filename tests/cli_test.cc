// `tandem` as a user meets it: run, dump, devices and help, on small models with random weights;
// the real model where it is there.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "gtest/gtest.h"
#include "models/tiny_llama.h"
#include "tests/tandem_process.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

using testing_process::Outcome;
using testing_process::RunTandem;
using Arguments = std::vector<std::string>;

constexpr int kLayers = 4;

const std::string& TinyModel() {
  static const TemporaryFile file(
      WriteTinyLlama({.layers = kLayers, .matrices = Type::kQ4_1}).Bytes());
  static const std::string path = file.path();
  return path;
}

Arguments operator+(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Outcome MustRun(const Arguments& arguments,
                const testing_process::Surroundings& surroundings = {}) {
  Outcome outcome = RunTandem(arguments, surroundings);
  EXPECT_EQ(outcome.status, 0) << testing::PrintToString(arguments) << "\n" << outcome.err;
  EXPECT_FALSE(outcome.timed_out);
  return outcome;
}

// Greedy text of the small model.
Outcome Generate(const Arguments& more) {
  return MustRun(Arguments{"run", TinyModel(), "--temp", "0"} + more);
}

// The number that the first group of the pattern finds.
double NumberIn(const std::string& text, const std::string& pattern) {
  std::smatch match;
  if (std::regex_search(text, match, std::regex(pattern))) return std::stod(match[1]);
  ADD_FAILURE() << "no " << pattern << " in:\n" << text;
  return -1;
}

bool HasOpenCl() {
  static const bool has = MustRun({"devices"}).Has("opencl:0");
  return has;
}

// ---------------------------------------------------------------------------------------- run

TEST(Run, PutsTextOnStdoutAndAllElseOnStderr) {
  const Outcome outcome = Generate({"-p", "the mouse", "-n", "8"});
  EXPECT_TRUE(outcome.out.starts_with("the mouse")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("\n"));
  EXPECT_GT(outcome.out.size(), std::string("the mouse\n").size());
  for (const char* word : {"tokens/s", "memory", "load"}) EXPECT_FALSE(outcome.Has(word));
  EXPECT_FALSE(outcome.Says("the mouse"));
  const Outcome quiet = Generate({"-p", "the mouse", "-n", "8", "--no-display-prompt"});
  EXPECT_EQ("the mouse" + quiet.out, outcome.out);
}

TEST(Run, SumsUpWhatItTook) {
  const Outcome outcome =
      Generate({"-p", "abcdef", "-n", "5", "-ngl", "2", "--device", "sim:name=a"});
  EXPECT_GE(NumberIn(outcome.err, "load +([0-9.]+) s"), 0);
  EXPECT_EQ(NumberIn(outcome.err, "prompt +([0-9]+) tokens"), 6);
  EXPECT_GT(NumberIn(outcome.err, "prompt .* ([0-9.]+) tokens/s"), 0);
  EXPECT_EQ(NumberIn(outcome.err, "decode +([0-9]+) tokens"), 4);  // The prompt gave the first.
  EXPECT_GT(NumberIn(outcome.err, "decode .* ([0-9.]+) tokens/s"), 0);
  EXPECT_GT(NumberIn(outcome.err, "([0-9]+) bytes copied"), 0);
  EXPECT_LE(NumberIn(outcome.err, "a token .* ([0-9.]+) host waits"), 2);
  EXPECT_EQ(NumberIn(outcome.err, "([0-9]+) plans"), 2);  // One each for a prompt and a token.
  EXPECT_GT(NumberIn(outcome.err, "in all .* ([0-9]+) host waits"), 0);
  EXPECT_GT(NumberIn(outcome.err, "memory +sim:a +([0-9.]+)"), 0);
  EXPECT_GT(NumberIn(outcome.err, "memory +host +([0-9.]+)"), 0);
  EXPECT_TRUE(outcome.Says("weights") && outcome.Says("states") && outcome.Says("arenas"));
}

TEST(Run, OnOneDeviceCopiesNothing) {
  for (const Arguments& where : {Arguments{"-ngl", "0"}, Arguments{"--device", "none"},
                                 Arguments{"-ngl", "all", "--device", "cpu:0"}}) {
    const Outcome outcome = Generate(Arguments{"-p", "abc", "-n", "6"} + where);
    EXPECT_EQ(NumberIn(outcome.err, "([0-9]+) bytes copied"), 0);
  }
}

TEST(Run, RepeatsItself) {
  const Arguments prompt = {"-p", "the end of the", "-n", "24"};
  const std::string greedy = Generate(prompt).out;
  EXPECT_EQ(Generate(prompt).out, greedy);
  EXPECT_EQ(Generate(prompt + Arguments{"--seed", "3"}).out, greedy);

  const auto sampled = [&](const std::string& seed) {
    return MustRun(Arguments{"run", TinyModel(), "--temp", "1.5", "--top-k", "0", "--seed", seed} +
                   prompt)
        .out;
  };
  std::set<std::string> texts;
  for (const char* seed : {"1", "2", "3"}) {
    texts.insert(sampled(seed));
    EXPECT_EQ(sampled(seed), sampled(seed));
  }
  EXPECT_GT(texts.size(), 1u);
  EXPECT_EQ(texts.count(greedy), 0u);
  // The likeliest alone is left.
  EXPECT_EQ(MustRun(Arguments{"run", TinyModel(), "--top-k", "1"} + prompt).out, greedy);
}

TEST(Run, WritesAsManyTokensAsAsked) {
  EXPECT_EQ(Generate({"-p", "abc", "-n", "0"}).out, "abc\n");
  const auto decoded = [](const std::string& n) {
    const Outcome outcome = Generate({"-p", "abc", "-n", n, "-c", "40"});
    return NumberIn(outcome.err, "decode +([0-9]+) tokens");
  };
  EXPECT_EQ(decoded("1"), 0);
  EXPECT_EQ(decoded("2"), 1);
  EXPECT_EQ(decoded("17"), 16);
  // The context ends it: three of 40 were the prompt.
  const Outcome full = Generate({"-p", "abc", "-n", "-1", "-c", "40"});
  EXPECT_EQ(NumberIn(full.err, "decode +([0-9]+) tokens"), 37);
  EXPECT_TRUE(full.Says("context of 40 tokens is full"));
  // Of options that are given twice the last counts.
  EXPECT_EQ(NumberIn(Generate({"-p", "abc", "-n", "9", "-n", "2"}).err, "decode +([0-9]+) tokens"),
            1);
}

TEST(Run, ReadsThePromptFromAFile) {
  const std::string text = "line one\n\tline \"two\" \xC3\xA9\n\n";
  const TemporaryFile exact(text), with_newline(text + "\n");
  const std::string expected = Generate({"-p", text, "-n", "9"}).out;
  EXPECT_TRUE(expected.starts_with(text));
  // The last newline of a file is the editor's.
  EXPECT_EQ(Generate({"-f", with_newline.path(), "-n", "9"}).out, expected);
  EXPECT_EQ(Generate({"-f", exact.path(), "-n", "9"}).out,
            Generate({"-p", text.substr(0, text.size() - 1), "-n", "9"}).out);
  // A prompt of several batches.
  const std::string longer(100, 'q');
  EXPECT_EQ(Generate({"-p", longer, "-n", "5", "-b", "7"}).out,
            Generate({"-p", longer, "-n", "5"}).out);
  // What looks like an option is none behind -p.
  EXPECT_TRUE(Generate({"-p", "-5", "-n", "2"}).out.starts_with("-5"));
}

TEST(Run, WritesTheSameOnAnyNumberOfThreads) {
  for (const Arguments& mode : {Arguments{}, Arguments{"--exact"}}) {
    const Arguments options = Arguments{"-p", "once more", "-n", "20"} + mode;
    const std::string one = Generate(options + Arguments{"-t", "1"}).out;
    for (const char* threads : {"2", "3"})
      EXPECT_EQ(Generate(options + Arguments{"-t", threads}).out, one) << threads;
  }
}

TEST(Run, WritesTheSameOnAnyDevices) {
  const Arguments options = {"-p", "all the same", "-n", "12", "--exact", "-c", "64"};
  const std::string expected = Generate(options).out;
  std::vector<Arguments> places = {
      {"-ngl", "2", "--device", "sim:0"},
      {"-ngl", "all", "--device", "sim:memory=2M,largest=1M"},
      {"-ngl", "all", "--device", "sim:unsupported=rope|softmax|attention|swiglu"},
      {"-ngl", "all", "--device", "sim:unsupported=matmul,scratch=1000,packs_weights"},
      {"-ngl", "3", "--device", "sim:waits_for_others=0,alignment=4096"},
      {"-ngl", "all", "--device", "sim:synchronous"},
      {"-ngl", "0", "-ot", "blk\\.[13]\\.=sim:name=odd"},
      {"-ngl", "all", "--device", "sim:name=a", "-ot", "ffn_{1,2}=cpu:0,attn_q=sim:name=b"},
      {"-ngl", "all", "--device", "sim:name=a,declines_copies", "-ot",
       "blk\\.1\\.=sim:name=b,declines_copies"},
      {"-ngl", "1", "--device", "sim:0", "--no-memory-reuse"}};
  if (HasOpenCl()) {
    places.push_back({"-ngl", "all", "--device", "opencl:0"});
    places.push_back({"-ngl", "3", "--device", "opencl:0", "-ot", "blk\\.2\\.ffn=sim:0"});
  }
  for (const Arguments& place : places) {
    SCOPED_TRACE(testing::PrintToString(place));
    const Outcome outcome = Generate(options + place);
    EXPECT_EQ(outcome.out, expected);
    EXPECT_GT(NumberIn(outcome.err, "([0-9]+) bytes copied"), 0);
  }
}

TEST(Run, SpeaksTheChatTemplate) {
  // A prompt of ChatML has more tokens than the message, and is not shown.
  const Outcome chat = Generate({"-p", "hi", "-n", "4", "--chat"});
  EXPECT_GT(NumberIn(chat.err, "prompt +([0-9]+) tokens"), 10);
  EXPECT_FALSE(chat.Has("hi")) << chat.out;
  EXPECT_FALSE(chat.Has("im_start")) << chat.out;
  const Outcome system = Generate({"-p", "hi", "-n", "4", "--chat", "--system", "Be brief."});
  EXPECT_GT(NumberIn(system.err, "prompt +([0-9]+) tokens"),
            NumberIn(chat.err, "prompt +([0-9]+) tokens"));
}

// --------------------------------------------------------------------------------------- dump

struct DumpedNode {
  std::string device, op, name, reason;
};
struct DumpedCopy {
  std::string from, to, size, cause;
};
struct Dumped {
  std::vector<std::string> splits;  // Their devices.
  std::vector<DumpedNode> nodes;
  std::vector<DumpedCopy> copies;
  std::map<std::string, std::pair<double, double>> arenas;  // Bytes and lower bound, by memory.
  bool says_no_copies = false;

  std::set<std::string> DevicesOf(const std::string& name_part) const {
    std::set<std::string> devices;
    for (const DumpedNode& node : nodes)
      if (node.name.find(name_part) != std::string::npos) devices.insert(node.device);
    return devices;
  }
};

// Of the box of one token.
Dumped Dump(const std::string& model, const Arguments& options) {
  const Outcome outcome = MustRun(Arguments{"dump", model, "--box", "token"} + options);
  EXPECT_EQ(outcome.err, "");
  static const std::regex split_line(R"( +([0-9]+)  (\S+) +([0-9]+)  .*)");
  static const std::regex node_line(R"( +[0-9]+  split [0-9]+ +(\S+) +(\S+) +(\S+) +(\S.*))");
  static const std::regex copy_line(
      R"(  before split [0-9]+ +([0-9.]+ \S+)  (\S+) -> (\S+)  (\S+: \S+))");
  static const std::regex arena_line(R"(  (\S+) +([0-9]+) bytes, lower bound ([0-9]+) .*)");
  Dumped dumped;
  std::string section;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (!line.starts_with(" ")) {
      section = line.substr(0, line.find(' '));
    } else if (section == "splits" && std::regex_match(line, m, split_line)) {
      EXPECT_EQ(std::stoul(m[1]), dumped.splits.size());
      dumped.splits.push_back(m[2]);
    } else if (section == "nodes" && std::regex_match(line, m, node_line)) {
      dumped.nodes.push_back({m[1], m[2], m[3], m[4]});
    } else if (section == "copies" && std::regex_match(line, m, copy_line)) {
      dumped.copies.push_back({m[2], m[3], m[1], m[4]});
    } else if (section == "copies" && line == "  none") {
      dumped.says_no_copies = true;
    } else if (section == "arenas" && std::regex_match(line, m, arena_line)) {
      dumped.arenas[m[1]] = {std::stod(m[2]), std::stod(m[3])};
    } else if (section == "nodes" || section == "copies" || section == "arenas") {
      ADD_FAILURE() << section << ": " << line;
    }
  }
  EXPECT_FALSE(dumped.splits.empty());
  EXPECT_FALSE(dumped.nodes.empty());
  EXPECT_EQ(dumped.copies.empty(), dumped.says_no_copies);
  EXPECT_FALSE(dumped.arenas.empty());
  for (const auto& [memory, bytes] : dumped.arenas) {
    EXPECT_GT(bytes.second, 0) << memory;
    EXPECT_GE(bytes.first, bytes.second) << memory;
    EXPECT_LE(bytes.first, 1.2 * bytes.second) << memory;
  }
  return dumped;
}

TEST(Dump, OfOneDeviceHasNoCopies) {
  for (const Arguments& where :
       {Arguments{"-ngl", "0"}, Arguments{"-ngl", "0", "--device", "sim:0"}, Arguments{}}) {
    const Dumped dumped = Dump(TinyModel(), where);
    EXPECT_EQ(dumped.splits, std::vector<std::string>{"cpu:0"});
    EXPECT_TRUE(dumped.says_no_copies);
    EXPECT_EQ(dumped.DevicesOf(""), std::set<std::string>{"cpu:0"});
    EXPECT_EQ(dumped.arenas.size(), 1u);
  }
}

TEST(Dump, CountsLayersFromTheEnd) {
  for (int layers = 1; layers <= kLayers + 1; ++layers) {
    SCOPED_TRACE(layers);
    const std::string n = layers > kLayers ? "all" : std::to_string(layers);
    const Dumped dumped = Dump(TinyModel(), {"-ngl", n, "--device", "sim:0"});
    EXPECT_EQ(dumped.splits, (std::vector<std::string>{"cpu:0", "sim:0"}));
    EXPECT_EQ(dumped.DevicesOf("token_embd"), std::set<std::string>{"cpu:0"});
    EXPECT_EQ(dumped.DevicesOf("output_norm"), std::set<std::string>{"sim:0"});
    for (int layer = 0; layer < kLayers; ++layer) {
      const char* device = layer >= kLayers + 1 - layers ? "sim:0" : "cpu:0";
      EXPECT_EQ(dumped.DevicesOf("blk." + std::to_string(layer) + "."),
                std::set<std::string>{device});
    }
    for (const DumpedNode& node : dumped.nodes) EXPECT_FALSE(node.reason.empty()) << node.name;
    // The activation goes there, the logits come back; each has bytes and a cause.
    const auto goes = [&](const std::string& from, const std::string& to, const std::string& why) {
      return std::ranges::any_of(dumped.copies, [&](const DumpedCopy& copy) {
        return copy.from == from && copy.to == to && copy.cause.starts_with(why);
      });
    };
    EXPECT_TRUE(goes("host", "sim:0", "activation: "));
    EXPECT_TRUE(goes("sim:0", "host", "output: "));
    EXPECT_EQ(dumped.arenas.size(), 2u);
  }
}

TEST(Dump, TellsWhyANodeIsWhereItIs) {
  const Dumped pinned = Dump(TinyModel(), {"-ot", "blk\\.[13]\\.=sim:name=b"});
  EXPECT_EQ(pinned.splits, (std::vector<std::string>{"cpu:0", "sim:b", "cpu:0", "sim:b", "cpu:0"}));
  for (const DumpedNode& node : pinned.nodes)
    EXPECT_EQ(node.reason.find("blk\\.[13]\\.") != std::string::npos, node.device == "sim:b")
        << node.name << ": " << node.reason;

  const Dumped declined =
      Dump(TinyModel(), {"-ngl", "all", "--device", "sim:unsupported=rope|swiglu"});
  int count = 0;
  for (const DumpedNode& node : declined.nodes) {
    const bool is_declined = node.op == "rope" || node.op == "swiglu";
    if (node.name == "token_embd") continue;
    EXPECT_EQ(node.device, is_declined ? "cpu:0" : "sim:0") << node.name;
    if (!is_declined) continue;
    ++count;
    EXPECT_NE(node.reason.find("sim:0"), std::string::npos) << node.reason;
    EXPECT_NE(node.reason.find("declines " + node.op), std::string::npos) << node.reason;
  }
  EXPECT_EQ(count, 3 * kLayers);
}

TEST(Dump, ShowsBothBoxesAndAllMemories) {
  const Outcome whole = MustRun({"dump", TinyModel(), "-ngl", "2", "--device", "sim:0"});
  for (const char* text : {"box token", "box prompt", "memory of all boxes", "lower bound"})
    EXPECT_TRUE(whole.Has(text)) << text;
  const Outcome splits =
      MustRun({"dump", TinyModel(), "-ngl", "2", "--device", "sim:0", "--splits"});
  EXPECT_TRUE(splits.Has("blk.3.attn_norm .. next"));
  EXPECT_FALSE(splits.Has("rms_norm"));
  EXPECT_LT(splits.out.size(), 2000u);
  // A limit that is too small is told, and does not hide the plan.
  const Outcome small = MustRun({"dump", TinyModel(), "--splits", "--max-memory", "cpu:0=1M"});
  EXPECT_TRUE(small.Has("does not fit: the limit is 1.0 MB")) << small.out;
  EXPECT_FALSE(splits.Has("does not fit"));
}

// A copy of the file with a hole for the data.
void ExpectNeedsNoData(const std::string& path, size_t head_bytes, const Arguments& options) {
  std::string head(head_bytes, '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<int64_t>(head.size()));
  const TemporaryFile hole(head);
  std::filesystem::resize_file(hole.path(), std::filesystem::file_size(path));
  const Outcome expected = MustRun(Arguments{"dump", path} + options);
  const Outcome outcome = MustRun(Arguments{"dump", hole.path()} + options);
  EXPECT_EQ(outcome.out, expected.out);
}

TEST(Dump, ReadsNoWeights) {
  const size_t bytes = std::filesystem::file_size(TinyModel());
  ExpectNeedsNoData(TinyModel(), bytes / 4, {"-ngl", "2", "--device", "sim:0"});
}

TEST(Dump, OfAModelLargerThanThisMachine) {
  // A header that promises half a terabyte, and a hole that keeps the promise.
  constexpr uint64_t kWidth = 8192, kFeedForward = 1 << 20, kHeads = 64, kKvHeads = 8;
  constexpr int kBlocks = 8;
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  const auto key = [&](const char* name, uint32_t value) {
    writer.U32(std::string("llama.") + name, value);
  };
  key("block_count", kBlocks);
  key("embedding_length", kWidth);
  key("feed_forward_length", kFeedForward);
  key("context_length", 4096);
  key("attention.head_count", kHeads);
  key("attention.head_count_kv", kKvHeads);
  key("rope.dimension_count", kWidth / kHeads);
  writer.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  WriteTinyTokenizer(&writer);
  uint64_t offset = 0;
  const auto tensor = [&](const std::string& name, const std::vector<uint64_t>& file_dims) {
    writer.RawTensor(name, file_dims, 0, offset);
    uint64_t bytes = 4;
    for (const uint64_t dim : file_dims) bytes *= dim;
    offset += bytes;
  };
  tensor("token_embd.weight", {kWidth, kTinyVocabulary});
  tensor("output_norm.weight", {kWidth});
  for (int block = 0; block < kBlocks; ++block) {
    const std::string prefix = "blk." + std::to_string(block) + ".";
    tensor(prefix + "attn_norm.weight", {kWidth});
    tensor(prefix + "ffn_norm.weight", {kWidth});
    for (const char* name : {"attn_q", "attn_output"})
      tensor(prefix + name + ".weight", {kWidth, kWidth});
    for (const char* name : {"attn_k", "attn_v"})
      tensor(prefix + name + ".weight", {kWidth, kWidth / kHeads * kKvHeads});
    for (const char* name : {"ffn_gate", "ffn_up"})
      tensor(prefix + name + ".weight", {kWidth, kFeedForward});
    tensor(prefix + "ffn_down.weight", {kFeedForward, kWidth});
  }
  ASSERT_GT(offset, uint64_t{500} << 30);
  const TemporaryFile file(writer.Bytes());
  std::error_code error;
  std::filesystem::resize_file(file.path(), writer.Bytes().size() + offset, error);
  if (error) GTEST_SKIP() << "this file system has no holes: " << error.message();
  const Dumped dumped = Dump(file.path(), {"-ngl", "4", "--device", "sim:0"});
  EXPECT_EQ(dumped.splits, (std::vector<std::string>{"cpu:0", "sim:0"}));
  // It says that it fits nowhere, and a run is refused before anything is read.
  EXPECT_TRUE(MustRun({"dump", file.path(), "--splits"}).Has("does not fit"));
  testing_process::ExpectRefused({"run", file.path(), "-p", "hi"}, {"host", "are needed"});
}

// ---------------------------------------------------------------------------- devices and help

TEST(Devices, AreListedAndWhatIsMissingIsTold) {
  const Outcome all = MustRun({"devices"});
  EXPECT_TRUE(std::regex_search(all.out, std::regex("\ncpu:0 +cpu +[0-9.]+ [kMGT]?B"))) << all.out;
  EXPECT_TRUE(std::regex_search(all.out, std::regex("\nsim +-"))) << all.out;
  EXPECT_TRUE(std::regex_search(all.out, std::regex("\nopencl(:0)? +"))) << all.out;
  EXPECT_EQ(all.err, "");

  const std::filesystem::path empty =
      std::filesystem::temp_directory_path() / "tandem-no-opencl-vendors";
  std::filesystem::create_directories(empty);
  const testing_process::Surroundings without = {.environment = {{"OCL_ICD_VENDORS", empty}}};
  const Outcome none = MustRun({"devices"}, without);
  EXPECT_TRUE(none.Has("cpu:0"));
  EXPECT_FALSE(none.Has("opencl:0"));
  EXPECT_TRUE(std::regex_search(none.out, std::regex("\nopencl +- .*no OpenCL platform")))
      << none.out;
  testing_process::ExpectRefused({"run", TinyModel(), "-p", "hi", "--device", "opencl:0"},
                                 {"opencl:0", "no OpenCL platform"}, without);
  testing_process::ExpectRefused({"run", TinyModel(), "-p", "hi", "-ngl", "1"},
                                 {"-ngl 1", "no OpenCL platform"}, without);
  // What needs none runs on.
  MustRun({"run", TinyModel(), "-p", "hi", "-n", "2"}, without);
}

TEST(Help, NamesEveryOptionInLinesThatFit) {
  const std::vector<std::string> model = {"-c",   "-ngl", "--device", "--override-tensor",
                                          "-ot",  "-t",   "--exact",  "--max-memory",
                                          "MODEL"};
  const std::map<std::string, std::vector<std::string>> commands = {
      {"", {"run", "dump", "devices", "bench", "-h"}},
      {"run", model + Arguments{"-p", "-f", "-n", "--temp", "--top-k", "--top-p", "--seed",
                                "--chat", "--system", "--no-display-prompt"}},
      {"dump", model + Arguments{"--box", "--splits"}},
      {"devices", {"-h"}},
      {"bench", model + Arguments{"--peers"}}};
  for (const auto& [command, options] : commands)
    for (const char* flag : {"-h", "--help"}) {
      SCOPED_TRACE(command + " " + flag);
      const Outcome help = MustRun(command.empty() ? Arguments{flag} : Arguments{command, flag});
      EXPECT_EQ(help.err, "");
      for (const std::string& option : options)
        EXPECT_TRUE(std::regex_search(help.out, std::regex("(^|[ \n])" + option + "[, \n]")))
            << option << " in:\n"
            << help.out;
      std::istringstream lines(help.out);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    }
}

// ------------------------------------------------------------------------------ the real model

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!path) GTEST_SKIP() << "no model: set TANDEM_MODELS (tools/fetch_models.sh)";
    model_ = *path;
  }
  std::string model_;
};

TEST_F(RealModel, Answers) {
  const Outcome outcome = MustRun(
      {"run", model_, "--chat", "-p", "What is 2+2?", "-n", "24", "--temp", "0", "-c", "256"});
  EXPECT_TRUE(outcome.Has("4")) << outcome.out;
  EXPECT_FALSE(outcome.Has("<|im_")) << outcome.out;
  const Outcome plain =
      MustRun({"run", model_, "-p", "The capital of France is", "-n", "4", "--temp", "0"});
  EXPECT_TRUE(plain.out.starts_with("The capital of France is Paris")) << plain.out;
}

TEST_F(RealModel, WritesTheSameOnOneThreadAndTwo) {
  const Arguments options = {"run", model_, "-p", "Once upon a time", "-n", "16", "--temp",
                             "0",   "-c",   "256"};
  EXPECT_EQ(MustRun(options + Arguments{"-t", "1"}).out,
            MustRun(options + Arguments{"-t", "2"}).out);
}

TEST_F(RealModel, IsDumpedForAnyNumberOfLayers) {
  for (const char* device : {"sim:0", "opencl:0"}) {
    if (std::string(device) == "opencl:0" && !HasOpenCl()) continue;
    for (const auto& [layers, first] : std::map<std::string, int>{
             {"0", 31}, {"1", 30}, {"15", 16}, {"30", 1}, {"all", 0}, {"99", 0}}) {
      SCOPED_TRACE(layers);
      const Dumped dumped = Dump(model_, {"-ngl", layers, "--device", device});
      for (int layer = 0; layer < 30; ++layer)
        EXPECT_EQ(dumped.DevicesOf("blk." + std::to_string(layer) + "."),
                  std::set<std::string>{layer >= first ? device : "cpu:0"});
      EXPECT_EQ(dumped.copies.empty(), layers == "0");
    }
    const Dumped odd = Dump(model_, {"-ot", std::string("blk\\.[0-9]*[13579]\\.=") + device});
    EXPECT_EQ(odd.splits.size(), 31u);
  }
}

TEST_F(RealModel, IsDumpedWithoutItsWeights) {
  // Its header, with tokens and merges, has less than two megabytes.
  ExpectNeedsNoData(model_, 2 << 20, {"-ngl", "15", "--device", "sim:0"});
}

}  // namespace
}  // namespace tandem
