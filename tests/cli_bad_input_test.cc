// `tandem` given what it can not use: one line that says what is wrong and where, status 1,
// nothing on stdout. Small models with random weights; the cuts of the real file skip without it.

#include <filesystem>
#include <fstream>
#include <set>

#include "gtest/gtest.h"
#include "models/gguf.h"
#include "models/tiny_llama.h"
#include "tests/tandem_process.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

using testing_process::ExpectRefused;
using testing_process::RunTandem;
using Words = std::vector<std::string>;

const std::string& TinyBytes() {
  static const std::string bytes = WriteTinyLlama({.matrices = Type::kQ4_1}).Bytes();
  return bytes;
}
const std::string& TinyModel() {
  static const TemporaryFile file(TinyBytes());
  static const std::string path = file.path();
  return path;
}

void ExpectFileRefused(const std::string& bytes, const Words& words, const char* command = "run") {
  const TemporaryFile file(bytes);
  Words all = {file.path()};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<std::string> arguments = {command, file.path()};
  if (arguments[0] == "run") arguments.insert(arguments.end(), {"-p", "hi", "-n", "1"});
  ExpectRefused(arguments, all);
}

// `run` on a good model, with these options.
void ExpectOptionsRefused(const std::vector<std::string>& options, const Words& words) {
  std::vector<std::string> arguments = {"run", TinyModel(), "-p", "hi", "-n", "1"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  ExpectRefused(arguments, words);
}

// Where the data begin: after the list of tensors, on a boundary.
size_t DataStart(const std::string& path, const std::string& first_bytes) {
  const auto file = *GgufFile::Open(path);
  size_t end = 0;
  for (const auto& tensor : file->tensors())
    end = std::max(end, first_bytes.find(tensor->name) + tensor->name.size() + 4 +
                            8 * tensor->dims.size() + 4 + 8);
  return (end + 31) / 32 * 32;
}

// The bytes with those behind `after` (and `skip` more) replaced.
std::string Patched(std::string bytes, const std::string& after, size_t skip,
                    const std::string& by) {
  const size_t at = bytes.find(after);
  EXPECT_NE(at, std::string::npos) << after;
  return bytes.replace(at + after.size() + skip, by.size(), by);
}

template <class T>
std::string Number(T value) {
  return GgufWriter::Number<T>(value);
}

TEST(BadFile, IsNoModel) {
  const auto folder = std::filesystem::temp_directory_path();
  for (const char* command : {"run", "dump", "bench"}) {
    ExpectRefused({command, "no/such/model.gguf"}, {"no/such/model.gguf", "No such file"});
    ExpectRefused({command, folder.string()}, {folder.string(), "directory"});
    ExpectFileRefused("", {"empty"}, command);
    ExpectFileRefused("Once upon a time, in a file of text", {"not a GGUF", "byte 0"}, command);
  }
  ExpectRefused({"dump", "/dev/null"}, {"/dev/null", "regular file"});
  ExpectRefused({"dump", "a\nname"}, {"No such file"});  // One line all the same.
}

TEST(BadFile, EndsEarly) {
  const std::string& bytes = TinyBytes();
  const size_t data = DataStart(TinyModel(), bytes);
  ASSERT_LT(data, bytes.size() / 2);
  std::set<size_t> cuts = {data - 1, data, data + 1, bytes.size() - 1};
  for (size_t cut = 1; cut < 40; ++cut) cuts.insert(cut);
  for (size_t cut = 40; cut < data; cut += 67) cuts.insert(cut);
  for (size_t cut = data; cut < bytes.size(); cut += 4999) cuts.insert(cut);
  for (const size_t cut : cuts) {
    SCOPED_TRACE(cut);
    // What is missing: in the header a place, in the data a tensor.
    ExpectFileRefused(bytes.substr(0, cut), {cut < data ? "at byte" : "tensor"},
                      cut % 2 == 0 ? "run" : "dump");
    if (HasFailure()) return;
  }
}

TEST(BadFile, SaysMoreThanItHolds) {
  const std::string& bytes = TinyBytes();
  const std::string version = "GGUF" + Number<uint32_t>(3);
  const uint64_t huge = uint64_t{1} << 62;
  ExpectFileRefused(Patched(bytes, "GGUF", 0, Number<uint32_t>(2)), {"version", "2"});
  ExpectFileRefused(Patched(bytes, version, 0, Number(huge)), {"tensor"});
  ExpectFileRefused(Patched(bytes, version, 8, Number(huge)), {"key"});
  ExpectFileRefused(Patched(bytes, version, 16, Number(huge)), {"byte 24"});  // A key's length.
  // The array of tokens: type 9, element type 8, count.
  ExpectFileRefused(Patched(bytes, "tokenizer.ggml.tokens", 8, Number(huge)),
                    {"tokenizer.ggml.tokens"});
  // A tensor: rank, dimensions, type, offset.
  const std::string name = "blk.0.attn_q.weight";
  ExpectFileRefused(Patched(bytes, name, 0, Number<uint32_t>(99)), {name});
  ExpectFileRefused(Patched(bytes, name, 4, Number(huge)), {name});
  ExpectFileRefused(Patched(bytes, name, 12, Number(huge)), {name});
  ExpectFileRefused(Patched(bytes, name, 24, Number(huge)), {name, "offset"});
  ExpectFileRefused(Patched(bytes, name, 24, Number<uint64_t>(bytes.size() / 32 * 32)),
                    {name, "offset"});
  ExpectFileRefused(Patched(bytes, name, 24, Number<uint64_t>(17)), {name, "17"});
}

TEST(BadFile, HoldsWhatNobodyKnows) {
  const std::string& bytes = TinyBytes();
  const std::string name = "blk.0.attn_q.weight";
  for (const char* command : {"run", "dump"}) {
    ExpectFileRefused(Patched(bytes, "general.architecture", 12, "mamba"),
                      {"architecture", "mamba"}, command);
    for (const uint32_t type : {4u, 12u, 9999u})
      ExpectFileRefused(Patched(bytes, name, 20, Number(type)),
                        {name, "type " + std::to_string(type)}, command);
    ExpectFileRefused(Patched(bytes, "blk.1.ffn_", 0, "gone"), {"blk.1.ffn_"}, command);
    ExpectFileRefused(Patched(bytes, "llama.attention.head_coun", 0, "T"), {"head_count"}, command);
  }
  ExpectFileRefused(Patched(bytes, "tokenizer.ggml.model", 12, "what"), {"tokenizer", "what"});
}

TEST(BadFile, TheRealOneEndsEarly) {
  const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "no model: set TANDEM_MODELS (tools/fetch_models.sh)";
  const auto file = *GgufFile::Open(*path);
  std::string head(std::min<size_t>(4 << 20, file->bytes()), '\0');
  std::ifstream(*path, std::ios::binary).read(head.data(), static_cast<int64_t>(head.size()));
  const size_t data = DataStart(*path, head);
  ASSERT_LT(data, head.size());

  std::set<size_t> cuts = {data - 1, data, data + 1, static_cast<size_t>(file->bytes()) - 1};
  // Behind each key, and within what follows it.
  for (const std::string_view key : file->Keys())
    for (const size_t beyond : {0, 1, 4, 9, 17, 1000}) {
      const size_t cut = head.find(key) + key.size() + beyond;
      if (cut < data) cuts.insert(cut);
    }
  for (size_t cut = 1; cut < data; cut += data / 40) cuts.insert(cut);
  // The ends of tensors: holes behind the header stand for the data, which nobody gets to.
  size_t end = data;
  for (const auto& tensor : file->tensors()) {
    cuts.insert(end + 1);
    end += static_cast<size_t>(tensor->Bytes());
    cuts.insert(end - 1);
  }
  const TemporaryFile cut_file("");
  for (const size_t cut : cuts) {
    SCOPED_TRACE(cut);
    std::ofstream(cut_file.path(), std::ios::binary)
        .write(head.data(), static_cast<int64_t>(std::min(cut, data)));
    std::filesystem::resize_file(cut_file.path(), cut);
    ExpectRefused({"dump", cut_file.path()}, {cut_file.path()});
    if (HasFailure()) return;
  }
}

TEST(BadOption, HasTheWrongValue) {
  ExpectOptionsRefused({"-ngl", "x"}, {"-ngl", "x"});
  ExpectOptionsRefused({"-ngl", "1.5"}, {"-ngl", "1.5"});
  ExpectOptionsRefused({"--gpu-layers", "99999999999999999999"}, {"-ngl", "99999999999999999999"});
  ExpectOptionsRefused({"-c", "0"}, {"--ctx-size", "0"});
  ExpectOptionsRefused({"-c", "-5"}, {"--ctx-size", "-5"});
  ExpectOptionsRefused({"-c", "12x"}, {"--ctx-size", "12x"});
  ExpectOptionsRefused({"-b", "0"}, {"--batch-size", "0"});
  ExpectOptionsRefused({"-t", "-1"}, {"--threads", "-1"});
  ExpectOptionsRefused({"-t", "x"}, {"--threads", "x"});
  ExpectOptionsRefused({"-n", "-2"}, {"--n-predict", "-2"});
  ExpectOptionsRefused({"-n", "many"}, {"--n-predict", "many"});
  ExpectOptionsRefused({"--temp", "nan"}, {"temp", "nan"});
  ExpectOptionsRefused({"--temp", "inf"}, {"temp", "inf"});
  ExpectOptionsRefused({"--temp", "warm"}, {"temp", "warm"});
  ExpectOptionsRefused({"--top-p", "2"}, {"top-p", "2"});
  ExpectOptionsRefused({"--top-p", "nan"}, {"top-p", "nan"});
  ExpectOptionsRefused({"--top-p", "-0.1"}, {"top-p", "-0.1"});
  ExpectOptionsRefused({"--top-k", "x"}, {"top-k", "x"});
  ExpectOptionsRefused({"--seed", "-2"}, {"seed", "-2"});
  ExpectOptionsRefused({"--seed", "x"}, {"seed", "x"});
  ExpectOptionsRefused({"--no-such-option"}, {"--no-such-option"});
  ExpectOptionsRefused({"-c"}, {"--ctx-size"});
  ExpectOptionsRefused({"another.gguf"}, {"another.gguf"});
  ExpectOptionsRefused({"--system", "Be brief."}, {"--system", "--chat"});
  ExpectRefused({"dump", TinyModel(), "--box", "crate"}, {"--box", "crate", "token", "prompt"});
  ExpectRefused({}, {"subcommand"});
  ExpectRefused({"walk"}, {"walk", "run", "dump", "devices"});
  ExpectRefused({"run"}, {"MODEL"});
  ExpectRefused({"devices", "more"}, {"more"});
}

TEST(BadOption, NamesADeviceThatIsNotThere) {
  for (const char* layers : {"0", "1", "all"}) {
    ExpectOptionsRefused({"-ngl", layers, "--device", "tpu:0"}, {"--device", "tpu:0", "cpu:0"});
    ExpectOptionsRefused({"-ngl", layers, "--device", "opencl:99"}, {"opencl:99", "cpu:0"});
  }
  ExpectOptionsRefused({"--device", "sim:memory=lots"}, {"--device", "memory=lots"});
  ExpectOptionsRefused({"--device", "sim:colour=red"}, {"--device", "colour"});
  ExpectOptionsRefused({"--device", "sim:unsupported=dance"}, {"--device", "dance"});
  ExpectOptionsRefused({"-ot", "attn=tpu:0"}, {"--override-tensor", "tpu:0", "cpu:0"});
  ExpectOptionsRefused({"-ot", "attn=cpu:0,ffn=tpu:0"}, {"--override-tensor", "tpu:0"});
  ExpectOptionsRefused({"--max-memory", "tpu:0=1G"}, {"--max-memory", "tpu:0"});
}

TEST(BadOption, IsNoPair) {
  for (const char* text : {"attn", "attn=", "=cpu:0", "attn=cpu:0,", "attn=cpu:0,ffn", ""})
    ExpectOptionsRefused({"-ot", text}, {"--override-tensor", text, "PATTERN=DEVICE"});
  for (const char* text : {"nonsense", "cpu:0=", "=1G"})
    ExpectOptionsRefused({"--max-memory", text}, {"--max-memory", text, "DEVICE=SIZE"});
  for (const char* text : {"cpu:0=1Q", "cpu:0=-1", "cpu:0=1.5G", "cpu:0=99999999999G"})
    ExpectOptionsRefused({"--max-memory", text}, {"--max-memory", text, "size"});
}

TEST(BadOption, IsNoRegularExpression) {
  for (const char* pattern : {"(", "[a", "*x", "a{2"}) {
    ExpectOptionsRefused({"-ot", std::string(pattern) + "=cpu:0"}, {pattern, "regular expression"});
    ExpectRefused({"dump", TinyModel(), "-ot", std::string(pattern) + "=cpu:0"}, {pattern});
  }
  // Deep enough to overflow a stack.
  ExpectOptionsRefused({"-ot", std::string(60000, '(') + "=cpu:0"}, {"--override-tensor"});
}

TEST(BadContext, DoesNotFitAStatedLimit) {
  ExpectOptionsRefused({"--max-memory", "cpu:0=1M"}, {"host", "1048576 bytes", "are needed"});
  ExpectOptionsRefused({"--max-memory", "cpu:0=8M", "--max-memory", "cpu:0=100K"},
                       {"host", "102400 bytes"});
  ExpectOptionsRefused({"--device", "sim:memory=1M"}, {"sim:0", "1048576 bytes", "are needed"});
  ExpectOptionsRefused({"--device", "sim:name=a", "--max-memory", "sim:a=1M"},
                       {"sim:a", "1048576 bytes", "are needed"});
  ExpectOptionsRefused({"--device", "sim:largest=1000"}, {"sim:0", "1000 bytes"});
  ExpectOptionsRefused({"-c", "16777216", "--max-memory", "cpu:0=1G"},
                       {"host", "1073741824 bytes", "are needed"});
  if (RunTandem({"devices"}).Has("opencl:0"))
    ExpectOptionsRefused({"--device", "opencl:0", "--max-memory", "opencl:0=1M"},
                         {"opencl:0", "1048576 bytes", "are needed"});
  // What does not fit with a long context does with a short one.
  const std::vector<std::string> fits = {"run", TinyModel(), "-p", "hi",           "-n",
                                         "1",   "-c",        "64", "--max-memory", "cpu:0=1M"};
  EXPECT_EQ(RunTandem(fits).status, 0);
}

TEST(BadPrompt, IsRefused) {
  const TemporaryFile empty(""), newline("\n");
  const auto folder = std::filesystem::temp_directory_path().string();
  const std::string& model = TinyModel();
  ExpectRefused({"run", model, "-f", "no/such/prompt"}, {"--file no/such/prompt", "No such file"});
  ExpectRefused({"run", model, "-f", folder}, {"--file " + folder, "directory"});
  ExpectRefused({"run", model, "-f", empty.path()}, {"prompt is empty"});
  ExpectRefused({"run", model, "-f", newline.path()}, {"prompt is empty"});
  ExpectRefused({"run", model, "-p", ""}, {"prompt is empty"});
  ExpectRefused({"run", model, "--chat"}, {"prompt is empty"});
  ExpectRefused({"run", model}, {"prompt is empty"});
  ExpectRefused({"run", model, "-p", "hi", "-f", newline.path()}, {"--prompt", "--file"});
  // A token for each byte.
  ExpectRefused({"run", model, "-p", std::string(65, 'q'), "-c", "64"}, {"65 tokens", "64"});
  EXPECT_EQ(RunTandem({"run", model, "-p", std::string(64, 'q'), "-c", "64"}).status, 0);
}

TEST(BadOutput, CanNotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const std::string& model = TinyModel();
  ExpectRefused({"run", model, "-p", "hi", "-n", "8"}, {"written", "No space"},
                {.out_file = "/dev/full"});
  ExpectRefused({"dump", model}, {"No space"}, {.out_file = "/dev/full"});
  ExpectRefused({"devices"}, {"No space"}, {.out_file = "/dev/full"});
}

}  // namespace
}  // namespace tandem
