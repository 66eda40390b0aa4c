#include "models/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "models/llama.h"
#include "models/tiny_llama.h"
#include "models/tokenizer.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

using Opened = Result<std::shared_ptr<const GgufFile>>;

Opened OpenBytes(std::string_view bytes) {
  const TemporaryFile file(bytes);
  return GgufFile::Open(file.path());  // The mapping outlives the name.
}

// A message is one line and names the file.
void ExpectFailure(const Opened& opened, std::string_view part, std::string_view what) {
  ASSERT_FALSE(opened.has_value()) << what;
  const std::string& message = opened.error().message;
  EXPECT_NE(message.find(part), std::string::npos) << what << ": " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find("tandem-test-"), std::string::npos) << message;
}

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

GgufWriter SmallFile() {
  GgufWriter w;
  w.U8("small", 200);
  w.I32("negative", -5);
  w.U32("u32", 4000000000u);
  w.U64("huge", UINT64_MAX);
  w.I64("i64", INT64_MIN);
  w.F32("f32", 0.5f);
  w.F64("f64", 0.1);
  w.Bool("yes", true);
  w.String("text", std::string_view("a\0b", 3));
  w.Strings("texts", {"", "x", "yz"});
  w.I32s("numbers", {1, -2, 3});
  w.Raw("nested", 9,
        GgufWriter::Number<uint32_t>(9) + GgufWriter::Number<uint64_t>(2) +
            GgufWriter::Number<uint32_t>(0) + GgufWriter::Number<uint64_t>(2) + "ab" +
            GgufWriter::Number<uint32_t>(8) + GgufWriter::Number<uint64_t>(1) +
            GgufWriter::Text("deep"));
  w.Tensor("matrix", Type::kF32, {2, 3}, Floats({1, 2, 3, 4, 5, 6}));
  w.Tensor("blocks", Type::kQ8_0, {2, 1, 32}, std::string(68, 'q'));
  w.Tensor("empty", Type::kF16, {0, 4}, "");
  w.Tensor("scalar", Type::kF32, {}, Floats({7}));
  return w;
}

TEST(GgufTest, ReadsWhatWasWritten) {
  for (const int64_t alignment : {8, 32, 4096}) {
    GgufWriter writer = SmallFile();
    if (alignment != 32) {
      writer = GgufWriter();
      writer.alignment = alignment;
      writer.Tensor("first", Type::kI32, {1}, std::string(4, '\1'));
      writer.Tensor("matrix", Type::kF32, {2, 3}, Floats({1, 2, 3, 4, 5, 6}));
    }
    const Opened file = OpenBytes(writer.Bytes());
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto matrix = (*file)->Tensor("matrix");
    ASSERT_NE(matrix, nullptr);
    EXPECT_EQ(matrix->dims, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(matrix->type, Type::kF32);
    EXPECT_TRUE(matrix->page_aligned_file);
    EXPECT_EQ(std::memcmp(matrix->data, Floats({1, 2, 3, 4, 5, 6}).data(), 24), 0);
  }

  const Opened file = OpenBytes(SmallFile().Bytes());
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const GgufFile& f = **file;
  EXPECT_EQ(f.Keys().size(), 12u);
  EXPECT_EQ(f.Keys().front(), "small");
  EXPECT_EQ(f.Integer("small").value(), 200);
  EXPECT_EQ(f.Integer("negative").value(), -5);
  EXPECT_EQ(f.Integer("u32").value(), 4000000000);
  EXPECT_EQ(f.Integer("i64").value(), INT64_MIN);
  EXPECT_EQ(f.Integer("huge").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Real("f32").value(), 0.5);
  EXPECT_EQ(f.Real("f64").value(), 0.1);
  EXPECT_EQ(f.Real("negative").value(), -5);
  EXPECT_EQ(f.Boolean("yes").value(), true);
  EXPECT_EQ(f.String("text").value(), std::string_view("a\0b", 3));
  EXPECT_EQ(f.Strings("texts").value(), (std::vector<std::string_view>{"", "x", "yz"}));
  EXPECT_EQ(f.Integers("numbers").value(), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_TRUE(f.Has("nested"));
  EXPECT_FALSE(f.Has("absent"));

  EXPECT_EQ(f.tensors().size(), 4u);
  EXPECT_EQ(f.Tensor("blocks")->dims, (std::vector<int64_t>{2, 1, 32}));
  EXPECT_EQ(f.Tensor("blocks")->Bytes(), 68);
  EXPECT_EQ(f.Tensor("empty")->Bytes(), 0);
  EXPECT_EQ(f.Tensor("scalar")->dims.size(), 0u);
  EXPECT_EQ(f.Tensor("absent"), nullptr);
}

TEST(GgufTest, GettersSayWhatIsMissingAndWhatHasAnotherType) {
  const Opened file = OpenBytes(SmallFile().Bytes());
  ASSERT_TRUE(file.has_value());
  const GgufFile& f = **file;
  EXPECT_EQ(f.Integer("absent").error().code, ErrorCode::kNotFound);
  EXPECT_NE(f.Integer("absent").error().message.find("'absent' is missing"), std::string::npos);
  EXPECT_EQ(f.Integer("yes").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Integer("f32").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Integer("numbers").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Real("text").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Real("yes").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Boolean("small").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.String("texts").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Strings("text").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Strings("numbers").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Strings("nested").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(f.Integers("texts").error().code, ErrorCode::kInvalid);
  EXPECT_NE(f.Integers("texts").error().message.find("array of string"), std::string::npos);
}

TEST(GgufTest, ConstantsKeepTheFileAlive) {
  std::shared_ptr<const Constant> matrix;
  {
    const Opened file = OpenBytes(SmallFile().Bytes());
    ASSERT_TRUE(file.has_value());
    matrix = (*file)->Tensor("matrix");
  }
  EXPECT_EQ(std::memcmp(matrix->data, Floats({1, 2, 3, 4, 5, 6}).data(), 24), 0);
}

TEST(GgufTest, WhatIsNoFileIsRefused) {
  const auto open = [](const std::string& path) { return GgufFile::Open(path); };
  EXPECT_EQ(open("no/such/file.gguf").error().code, ErrorCode::kNotFound);
  EXPECT_NE(open("no/such/file.gguf").error().message.find("no/such/file.gguf"), std::string::npos);
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_NE(open(folder).error().message.find("is a directory"), std::string::npos);
  EXPECT_NE(open("/dev/zero").error().message.find("is not a regular file"), std::string::npos);
  EXPECT_FALSE(open(std::string("a\0b", 3)).has_value());
  EXPECT_FALSE(open("").has_value());

  const TemporaryFile pipe("");
  unlink(pipe.path().c_str());
  ASSERT_EQ(mkfifo(pipe.path().c_str(), 0600), 0);
  EXPECT_NE(open(pipe.path()).error().message.find("is not a regular file"), std::string::npos);

  const TemporaryFile unreadable(SmallFile().Bytes());
  chmod(unreadable.path().c_str(), 0);
  if (access(unreadable.path().c_str(), R_OK) != 0) {  // Not as root.
    EXPECT_NE(open(unreadable.path()).error().message.find("Permission denied"), std::string::npos);
  }
}

TEST(GgufTest, HeadersThatAreWrong) {
  ExpectFailure(OpenBytes(""), "the file is empty", "empty");
  ExpectFailure(OpenBytes("GG"), "the file ends here", "two bytes");
  ExpectFailure(OpenBytes("{\"a\nb\": 1}"), "not a GGUF file: it begins with '{\"a\\x0a'", "JSON");
  for (const uint32_t version : {0u, 1u, 2u, 4u, 0xffffffffu}) {
    GgufWriter w;
    w.version = version;
    ExpectFailure(OpenBytes(w.Bytes()), "version", "version");
  }
  GgufWriter w;
  w.version = 0x03000000;
  ExpectFailure(OpenBytes(w.Bytes()), "big-endian", "other order");
}

std::string WithCounts(uint64_t tensors, uint64_t keys) {
  return "GGUF" + GgufWriter::Number<uint32_t>(3) + GgufWriter::Number(tensors) +
         GgufWriter::Number(keys) + std::string(1000, '\0');
}

TEST(GgufTest, CountsAndLengthsBeyondTheFile) {
  for (const uint64_t count :
       {uint64_t{2000}, uint64_t{1} << 32, uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX}) {
    ExpectFailure(OpenBytes(WithCounts(count, 0)), "at byte 8: number of tensors", "tensors");
    ExpectFailure(OpenBytes(WithCounts(0, count)), "at byte 16: number of keys", "keys");
    GgufWriter text;
    text.Raw("k", 8, GgufWriter::Number(count) + "abc");
    ExpectFailure(OpenBytes(text.Bytes()), "key 'k': a string of", "string");
    GgufWriter name;
    name.Raw("", 8, "");
    std::string bytes = name.Bytes();
    std::memcpy(bytes.data() + 24, &count, 8);
    ExpectFailure(OpenBytes(bytes), "at byte 24: name of key 0: a string of", "name");
    for (uint32_t element = 0; element < 13; ++element) {
      GgufWriter array;
      array.Raw("k", 9, GgufWriter::Number(element) + GgufWriter::Number(count) + "abc");
      ExpectFailure(OpenBytes(array.Bytes()), "key 'k': an array of", "array");
    }
  }
}

TEST(GgufTest, ValuesThatAreWrong) {
  GgufWriter type;
  type.Raw("k", 13, std::string(32, 'x'));
  ExpectFailure(OpenBytes(type.Bytes()), "key 'k': unknown type 13", "type");
  GgufWriter element;
  element.Raw("k", 9, GgufWriter::Number<uint32_t>(99) + GgufWriter::Number<uint64_t>(0));
  ExpectFailure(OpenBytes(element.Bytes()), "key 'k': unknown type 99", "element type");
  GgufWriter boolean;
  boolean.Raw("k", 7, "\2");
  ExpectFailure(OpenBytes(boolean.Bytes()), "key 'k': 2 is no boolean", "boolean");
  GgufWriter booleans;
  booleans.Raw("k", 9, GgufWriter::Number<uint32_t>(7) + GgufWriter::Number<uint64_t>(2) + "\1\3");
  ExpectFailure(OpenBytes(booleans.Bytes()), "3 is no boolean", "booleans");
  GgufWriter twice;
  twice.U32("k", 1);
  twice.U32("other", 1);
  twice.F32("k", 1);
  ExpectFailure(OpenBytes(twice.Bytes()), "key 'k': the key is there twice", "twice");
  GgufWriter unnamed;
  unnamed.U32("", 1);
  ExpectFailure(OpenBytes(unnamed.Bytes()), "key 0 has no name", "unnamed");

  std::string nested;
  for (int depth = 0; depth < 100000; ++depth) {
    nested += GgufWriter::Number<uint32_t>(9) + GgufWriter::Number<uint64_t>(1);
  }
  GgufWriter deep;
  deep.Raw("k", 9, nested);
  ExpectFailure(OpenBytes(deep.Bytes()), "key 'k': arrays within arrays", "nested");
}

TEST(GgufTest, NamesInMessagesCanNotBreakTheLine) {
  GgufWriter twice;
  twice.U32("bad\nkey\x1b[31m", 1);
  twice.U32("bad\nkey\x1b[31m", 1);
  ExpectFailure(OpenBytes(twice.Bytes()), "bad\\x0akey\\x1b[31m", "control bytes");
  GgufWriter longer;
  longer.U32(std::string(100000, 'n'), 1);
  longer.U32(std::string(100000, 'n'), 1);
  const Opened opened = OpenBytes(longer.Bytes());
  ASSERT_FALSE(opened.has_value());
  EXPECT_LT(opened.error().message.size(), 500u);
}

TEST(GgufTest, AlignmentsThatAreWrong) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 31}) {
    GgufWriter w;
    w.U32("general.alignment", alignment);
    w.Tensor("t", Type::kF32, {1}, "abcd");
    ExpectFailure(OpenBytes(w.Bytes()), "key 'general.alignment'", "alignment");
  }
  GgufWriter text;
  text.String("general.alignment", "32");
  ExpectFailure(OpenBytes(text.Bytes()), "a power of two from 8 on is needed, not string", "text");
  GgufWriter huge;
  huge.U64("general.alignment", UINT64_MAX);
  ExpectFailure(OpenBytes(huge.Bytes()), "key 'general.alignment'", "huge");
}

TEST(GgufTest, TensorsThatAreWrong) {
  struct Case {
    std::string_view part;
    std::vector<uint64_t> dims;
    uint32_t type;
    uint64_t offset;
  };
  const uint64_t big = uint64_t{1} << 62;
  const Case cases[] = {
      {"5 dimensions; at most 4", {1, 1, 1, 1, 1}, 0, 0},
      {"dimension 1 is 9223372036854775808", {1, uint64_t{1} << 63}, 0, 0},
      {"the number of elements overflows", {big, 4}, 0, 0},
      {"the number of elements overflows", {big, 0, 4}, 0, 0},
      {"the number of elements overflows", {1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, 0},
      {"the number of bytes overflows", {big}, 0, 0},
      {"rows of 33 elements are no multiple of the 32 that a block of Q4_1", {33, 2}, 3, 0},
      {"rows of 1 elements are no multiple", {}, 8, 0},
      {"type 12 (Q4_K) is not supported", {256}, 12, 0},
      {"type 1000 (unknown) is not supported", {4}, 1000, 0},
      {"type 4294967295 (unknown) is not supported", {4}, 0xffffffff, 0},
      {"its offset 8 is no multiple of the alignment 32", {1}, 0, 8},
      {"its 4 bytes at offset 64 of the data pass the end of the file", {1}, 0, 64},
      {"pass the end of the file", {17}, 0, 0},
      {"pass the end of the file", {1 << 20, 1 << 20}, 0, 0},
      {"pass the end of the file", {1}, 0, UINT64_MAX - 31},
      {"pass the end of the file", {0}, 0, 96},
  };
  for (const Case& c : cases) {
    GgufWriter w;
    w.RawTensor("the_tensor", c.dims, c.type, c.offset, std::string(64, 'd'));
    const Opened opened = OpenBytes(w.Bytes());
    ExpectFailure(opened, c.part, c.part);
    ExpectFailure(opened, "tensor 'the_tensor'", c.part);
  }
  GgufWriter twice;
  twice.Tensor("t", Type::kF32, {1}, "abcd");
  twice.Tensor("t", Type::kF32, {1}, "abcd");
  ExpectFailure(OpenBytes(twice.Bytes()), "tensor 't': the tensor is there twice", "twice");
  GgufWriter unnamed;
  unnamed.Tensor("", Type::kF32, {1}, "abcd");
  ExpectFailure(OpenBytes(unnamed.Bytes()), "tensor 0 has no name", "unnamed");
  GgufWriter overlap;
  overlap.RawTensor("a", {9}, 0, 0, std::string(64, 'd'));
  overlap.RawTensor("b", {1}, 0, 32);
  ExpectFailure(OpenBytes(overlap.Bytes()), "tensor 'b': its bytes overlap those of tensor 'a'",
                "overlap");
}

// Whatever is cut off is missed, and reported at a place within the file.
TEST(GgufTest, TruncatedAtEveryByte) {
  const std::string bytes = SmallFile().Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    ExpectFailure(OpenBytes(std::string_view(bytes).substr(0, size)), "at byte ",
                  std::to_string(size));
  }
  EXPECT_TRUE(OpenBytes(bytes).has_value());
}

void ReadAll(const GgufFile& file) {
  for (const std::string_view key : file.Keys()) {
    (void)file.Integer(key), (void)file.Real(key), (void)file.Boolean(key);
    (void)file.String(key), (void)file.Strings(key), (void)file.Integers(key);
  }
  int sum = 0;
  for (const auto& tensor : file.tensors()) {
    for (int64_t i = 0; i < tensor->Bytes(); ++i) sum += static_cast<int>(tensor->data[i]);
  }
  EXPECT_NE(sum, -1);
  (void)Tokenizer::FromGguf(file);
  (void)BuildLlama(file, {.context = 16, .max_tokens = 4});
}

TEST(GgufTest, FlippedBytesAreReadOrRefused) {
  std::mt19937 random(20);
  const std::string small = SmallFile().Bytes();
  const std::string llama =
      WriteTinyLlama({.layers = 1, .width = 32, .heads = 2, .kv_heads = 1, .feed_forward = 32})
          .Bytes();
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = round % 3 == 0 ? llama : small;
    const size_t span = round % 3 == 0 ? 8000 : bytes.size();
    for (int flips = 1 + round % 4; flips > 0; --flips) {
      char& byte = bytes[random() % span];
      byte = round % 2 == 0 ? static_cast<char>(random())
                            : static_cast<char>(byte ^ 1 << random() % 8);
    }
    const Opened opened = OpenBytes(bytes);
    if (opened) {
      ReadAll(**opened);
    } else {
      EXPECT_EQ(opened.error().message.find('\n'), std::string::npos) << opened.error().message;
    }
  }
}

TEST(GgufTest, RealFile) {
  const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "no model: set TANDEM_MODELS (tools/fetch_models.sh)";
  const Opened file = GgufFile::Open(*path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ((*file)->Keys().size(), 33u);
  EXPECT_EQ((*file)->tensors().size(), 272u);
  EXPECT_EQ((*file)->Integer("llama.block_count").value(), 30);
  EXPECT_EQ((*file)->Strings("tokenizer.ggml.merges").value().size(), 48900u);
  EXPECT_EQ((*file)->Tensor("token_embd.weight")->dims, (std::vector<int64_t>{49152, 576}));
  EXPECT_EQ((*file)->Tensor("blk.29.attn_k.weight")->type, Type::kQ4_1);
}

TEST(GgufTest, RealFileCut) {
  const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "no model: set TANDEM_MODELS (tools/fetch_models.sh)";
  std::ifstream in(*path, std::ios::binary);
  std::string head(1800000, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  const int64_t whole = static_cast<int64_t>(std::filesystem::file_size(*path));
  std::mt19937_64 random(7);
  std::set<int64_t> cuts{whole - 1, whole - 576 * 4, 1785664, 1785663, 1785665};
  for (int i = 0; i < 60; ++i) cuts.insert(static_cast<int64_t>(random() % 1785664));
  for (int i = 0; i < 20; ++i) cuts.insert(static_cast<int64_t>(random() % whole));
  for (const int64_t cut : cuts) {
    // The tail is a hole in the file: only its size counts.
    const TemporaryFile file(
        std::string_view(head).substr(0, std::min(cut, static_cast<int64_t>(head.size()))));
    std::filesystem::resize_file(file.path(), cut);
    ExpectFailure(GgufFile::Open(file.path()), "at byte ", std::to_string(cut));
  }
}

}  // namespace
}  // namespace tandem
