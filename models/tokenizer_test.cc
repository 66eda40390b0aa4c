#include "models/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "models/tiny_llama.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

using Created = Result<std::shared_ptr<const Tokenizer>>;

Created FromWriter(const GgufWriter& writer) {
  const TemporaryFile bytes(writer.Bytes());
  const auto file = GgufFile::Open(bytes.path());
  if (!file) return tl::unexpected<Error>(file.error());
  return Tokenizer::FromGguf(**file);
}

std::shared_ptr<const Tokenizer> Tiny(const std::string& pre = "smollm") {
  GgufWriter writer;
  WriteTinyTokenizer(&writer, pre);
  Created created = FromWriter(writer);
  EXPECT_TRUE(created.has_value()) << created.error().message;
  return *created;
}

// The real tokenizer; null where there is no model.
std::shared_ptr<const Tokenizer> SmolLm2() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    const auto path = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!path) return std::shared_ptr<const Tokenizer>();
    const auto file = GgufFile::Open(*path);
    EXPECT_TRUE(file.has_value()) << file.error().message;
    Created created = Tokenizer::FromGguf(**file);
    EXPECT_TRUE(created.has_value()) << created.error().message;
    return *created;
  }();
  return tokenizer;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(TokenizerTest, ReferenceCases) {
  const auto path = testing_data::SharedData("references/ref_tokens.json");
  if (!path || SmolLm2() == nullptr) GTEST_SKIP() << "no references or no model";
  std::ifstream in(*path);
  const nlohmann::json reference = nlohmann::json::parse(in);
  ASSERT_EQ(reference.at("cases").size(), 44u);
  for (const auto& one : reference.at("cases")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    const std::string text = FromHex(one.at("utf8_hex").get<std::string>());
    const auto plain = SmolLm2()->Encode(text, false);
    const auto special = SmolLm2()->Encode(text, true);
    EXPECT_EQ(plain, one.at("ids").get<std::vector<Token>>());
    EXPECT_EQ(special, one.at("ids_parse_special").get<std::vector<Token>>());
    ASSERT_TRUE(one.at("round_trip").get<bool>());
    EXPECT_EQ(SmolLm2()->Decode(plain), text);
    EXPECT_EQ(SmolLm2()->Decode(special, true), text);
    EXPECT_EQ(SmolLm2()->EncodePrompt(text, false), plain);  // The file asks for no token first.
  }
}

TEST(TokenizerTest, ReferencePrompts) {
  if (SmolLm2() == nullptr) GTEST_SKIP() << "no model";
  const auto check = [](const nlohmann::json& one) {
    const std::string prompt = one.at("prompt").get<std::string>();
    EXPECT_EQ(SmolLm2()->EncodePrompt(prompt, true),
              one.at("prompt_ids").get<std::vector<Token>>());
    EXPECT_EQ(SmolLm2()->Decode(one.at("gen_ids").get<std::vector<Token>>(), true),
              one.at("gen_text").get<std::string>());
  };
  const auto stable = testing_data::SharedData("references/ref_smollm2_stable.json");
  const auto text = testing_data::SharedData("references/ref_smollm2_long.json");
  if (!stable || !text) GTEST_SKIP() << "no references";
  std::ifstream stable_in(*stable), text_in(*text);
  const nlohmann::json prompts = nlohmann::json::parse(stable_in);
  ASSERT_EQ(prompts.size(), 5u);
  for (const auto& one : prompts) check(one);
  const nlohmann::json one = nlohmann::json::parse(text_in);
  EXPECT_EQ(SmolLm2()->Encode(one.at("text").get<std::string>(), false),
            one.at("ids").get<std::vector<Token>>());
}

TEST(TokenizerTest, SpecialTokensOfTheRealFile) {
  if (SmolLm2() == nullptr) GTEST_SKIP() << "no model";
  const Tokenizer& t = *SmolLm2();
  EXPECT_EQ(t.size(), 49152);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  for (const Token token : {0, 2}) EXPECT_TRUE(t.EndsGeneration(token)) << token;
  for (const Token token : {1, 3, 17, 30, -1, 49152}) EXPECT_FALSE(t.EndsGeneration(token));
  EXPECT_TRUE(t.IsControl(1));
  EXPECT_FALSE(t.IsControl(17));
  EXPECT_FALSE(t.IsControl(-1));
  EXPECT_FALSE(t.IsControl(49152));
  EXPECT_EQ(t.Decode(2), "");
  EXPECT_EQ(t.Decode(2, true), "<|im_end|>");
  EXPECT_EQ(t.Decode(-1, true), "");
  EXPECT_EQ(t.Decode(49152, true), "");
}

TEST(TokenizerTest, BytesThatTheVocabularyLacksAreReplaced) {
  if (SmolLm2() == nullptr) GTEST_SKIP() << "no model";
  const auto tokens = SmolLm2()->Encode(
      "a\xff\x04"
      "b",
      false);
  EXPECT_EQ(SmolLm2()->Decode(tokens), "a\ufffd\ufffdb");
}

TEST(TokenizerTest, EveryTextComesBack) {
  const auto t = Tiny();
  std::mt19937 random(9);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random() % 60; n > 0; --n) {
      switch (random() % 4) {
        case 0:
          text.push_back(static_cast<char>(random()));
          break;
        case 1:
          text += "the ";
          break;
        case 2:
          text += random() % 8 == 0 ? "<|im_end|>" : "<|im_";
          break;
        default:
          text.push_back(static_cast<char>('a' + random() % 26));
      }
    }
    for (const bool special : {false, true}) {
      const auto tokens = t->Encode(text, special);
      ASSERT_EQ(t->Decode(tokens, true), text);
    }
    for (const Token token : t->Encode(text, false)) ASSERT_FALSE(t->IsControl(token));
  }
}

TEST(TokenizerTest, SpecialTokensAreFoundOnlyWhereAsked) {
  const auto t = Tiny();
  const std::string text = "the<|im_start|><|im_start|>th<|im_end|";
  EXPECT_EQ(t->Encode(text, true),
            (std::vector<Token>{257, 258, 258, 256, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|'}));
  EXPECT_EQ(t->Encode("<|im_start|>", false).size(), 12u);
}

TEST(TokenizerTest, TheLongestSpecialTokenWinsAndUserDefinedOnesAreAlwaysFound) {
  GgufWriter w;
  std::vector<std::string> tokens = TinyTokens();
  std::vector<int32_t> kinds(tokens.size(), 1);
  const auto add = [&](const std::string& text, int32_t kind) {
    tokens.push_back(text);
    kinds.push_back(kind);
    return static_cast<Token>(tokens.size() - 1);
  };
  const Token shorter = add("<x", 4), longer = add("<x>y", 4), control = add("<c>", 3);
  const Token unknown = add("<unk>", 2);
  w.String("tokenizer.ggml.model", "gpt2");
  w.Strings("tokenizer.ggml.tokens", tokens);
  w.I32s("tokenizer.ggml.token_type", kinds);
  w.Strings("tokenizer.ggml.merges", {"t h"});
  const Created created = FromWriter(w);
  ASSERT_TRUE(created.has_value()) << created.error().message;
  const Tokenizer& t = **created;
  EXPECT_EQ(t.Encode("<x>y<x>z", false), (std::vector<Token>{longer, shorter, '>', 'z'}));
  EXPECT_EQ(t.Encode("<c>", false), (std::vector<Token>{'<', 'c', '>'}));
  EXPECT_EQ(t.Encode("<c><unk><x", true), (std::vector<Token>{control, unknown, shorter}));
  EXPECT_EQ(t.Decode(longer), "<x>y");
  EXPECT_EQ(t.Decode(unknown), "");
  EXPECT_EQ(t.bos(), kNoToken);
  EXPECT_EQ(t.eos(), kNoToken);
  EXPECT_FALSE(t.EndsGeneration(kNoToken));
}

TEST(TokenizerTest, Llama3PutsAFirstTokenInFrontAndTakesWholeWords) {
  const auto t = Tiny("llama-bpe");
  EXPECT_EQ(t->EncodePrompt("the", false), (std::vector<Token>{258, 257}));
  GgufWriter w;
  WriteTinyTokenizer(&w, "llama-bpe");
  w.Bool("tokenizer.ggml.add_bos_token", false);
  const Created created = FromWriter(w);
  ASSERT_TRUE(created.has_value());
  EXPECT_EQ((*created)->EncodePrompt("the", false), (std::vector<Token>{257}));
}

// A file with keys of its own instead of some of the tiny tokenizer's.
struct WrongFile {
  std::string_view message;
  std::function<void(GgufWriter*)> write;
  ErrorCode code = ErrorCode::kInvalid;
};

TEST(TokenizerTest, FilesThatAreWrong) {
  const std::vector<std::string> one{"a"};
  const auto start = [](GgufWriter* w) { w->String("tokenizer.ggml.model", "gpt2"); };
  const WrongFile files[] = {
      {"key 'tokenizer.ggml.model' is missing", [](GgufWriter*) {}, ErrorCode::kNotFound},
      {"tokenizer 'llama' is not supported; supported is gpt2",
       [](GgufWriter* w) { w->String("tokenizer.ggml.model", "llama"); }, ErrorCode::kUnsupported},
      {"pre-tokenizer 'wrong\\x0a' is not known; known are: default",
       [&](GgufWriter* w) { start(w), w->String("tokenizer.ggml.pre", "wrong\n"); },
       ErrorCode::kUnsupported},
      {"key 'tokenizer.ggml.tokens' is missing", start, ErrorCode::kNotFound},
      {"key 'tokenizer.ggml.merges' is missing",
       [&](GgufWriter* w) { start(w), w->Strings("tokenizer.ggml.tokens", one); },
       ErrorCode::kNotFound},
      {"byte 0x00 has no token",
       [&](GgufWriter* w) {
         start(w), w->Strings("tokenizer.ggml.tokens", one);
         w->Strings("tokenizer.ggml.merges", {});
       }},
      {"0 tokens and 0 merges",
       [&](GgufWriter* w) {
         start(w), w->Strings("tokenizer.ggml.tokens", {});
         w->Strings("tokenizer.ggml.merges", {});
       }},
  };
  for (const WrongFile& wrong : files) {
    GgufWriter w;
    wrong.write(&w);
    const Created created = FromWriter(w);
    ASSERT_FALSE(created.has_value()) << wrong.message;
    EXPECT_NE(created.error().message.find(wrong.message), std::string::npos)
        << created.error().message;
    EXPECT_NE(created.error().message.find("tandem-test-"), std::string::npos);
    EXPECT_EQ(created.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(created.error().code, wrong.code);
  }
}

// Keys that are wrong beside a right vocabulary.
TEST(TokenizerTest, NumbersThatAreWrong) {
  const std::vector<std::string> tokens = TinyTokens();
  const auto with = [&](const std::function<void(GgufWriter*)>& more) {
    GgufWriter w;
    w.String("tokenizer.ggml.model", "gpt2");
    w.Strings("tokenizer.ggml.tokens", tokens);
    w.Strings("tokenizer.ggml.merges", {"t h"});
    more(&w);
    return FromWriter(w);
  };
  EXPECT_TRUE(with([](GgufWriter*) {}).has_value());
  const WrongFile files[] = {
      {"287 types for 288 tokens",
       [](GgufWriter* w) { w->I32s("tokenizer.ggml.token_type", std::vector<int32_t>(287, 1)); }},
      {"token 0 has the unknown type 0",
       [](GgufWriter* w) { w->I32s("tokenizer.ggml.token_type", std::vector<int32_t>(288, 0)); }},
      {"token 0 has the unknown type -7",
       [](GgufWriter* w) { w->I32s("tokenizer.ggml.token_type", std::vector<int32_t>(288, -7)); }},
      {"key 'tokenizer.ggml.bos_token_id': token 288 is none of the 288",
       [](GgufWriter* w) { w->U32("tokenizer.ggml.bos_token_id", 288); }},
      {"key 'tokenizer.ggml.eos_token_id': token -1 is none",
       [](GgufWriter* w) { w->I32("tokenizer.ggml.eos_token_id", -1); }},
      {"key 'tokenizer.ggml.eot_token_id' has type string",
       [](GgufWriter* w) { w->String("tokenizer.ggml.eot_token_id", "x"); }},
      {"key 'tokenizer.ggml.add_bos_token' has type u32",
       [](GgufWriter* w) { w->U32("tokenizer.ggml.add_bos_token", 1); }},
      {"key 'tokenizer.ggml.bos_token_id' should name",
       [](GgufWriter* w) { w->Bool("tokenizer.ggml.add_bos_token", true); }},
  };
  for (const WrongFile& wrong : files) {
    const Created created = with(wrong.write);
    ASSERT_FALSE(created.has_value()) << wrong.message;
    EXPECT_NE(created.error().message.find(wrong.message), std::string::npos)
        << created.error().message;
  }
}

}  // namespace
}  // namespace tandem
