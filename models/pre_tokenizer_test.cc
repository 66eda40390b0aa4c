#include "models/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace tandem {
namespace {

// Words with | between them.
std::string Words(std::string_view name, std::string_view text) {
  const auto pre = PreTokenizer::Find(name);
  EXPECT_TRUE(pre.has_value()) << pre.error().message;
  std::string out;
  for (const std::string_view word : (*pre)->Split(text)) {
    if (!out.empty()) out += "|";
    out += word;
  }
  return out;
}

TEST(PreTokenizerTest, Gpt2) {
  EXPECT_EQ(Words("gpt-2", ""), "");
  EXPECT_EQ(Words("gpt-2", "Hello world"), "Hello| world");
  EXPECT_EQ(Words("gpt-2", "it's we'll IT'S"), "it|'s| we|'ll| IT|'|S");
  EXPECT_EQ(Words("gpt-2", "a  b   c  "), "a| | b|  | c|  ");
  EXPECT_EQ(Words("gpt-2", "x=12345;"), "x|=|12345|;");
  EXPECT_EQ(Words("gpt-2", "a\n\nb"), "a|\n|\n|b");
  EXPECT_EQ(Words("gpt-2", " naïve 你好, ١٢٣"), " naïve| 你好|,| ١٢٣");
}

TEST(PreTokenizerTest, DigitsAlone) {
  for (const std::string_view name : {"smollm", "starcoder", "refact", "codeshell"}) {
    EXPECT_EQ(Words(name, "in 2024, x12"), "in| |2|0|2|4|,| x|1|2") << name;
    EXPECT_EQ(Words(name, "don't  stop"), "don|'t| | stop") << name;
    EXPECT_EQ(Words(name, "x²½"), "x|²|½") << name;
  }
}

TEST(PreTokenizerTest, Default) {
  EXPECT_EQ(Words("default", "Hello, world... 12345"), "Hello|,| world|...| |123|45");
  EXPECT_EQ(Words("default", "a+b=c"), "a|+|b|=|c");
}

TEST(PreTokenizerTest, Llama3) {
  for (const std::string_view name : {"llama-bpe", "llama3", "llama-v3"}) {
    EXPECT_EQ(Words(name, "I'LL pay 12345$"), "I|'LL| pay| |123|45|$") << name;
    EXPECT_EQ(Words(name, "(word)\n\n x"), "(word|)\n\n| x") << name;
    EXPECT_EQ(Words(name, "a  \n  b"), "a|  \n| | b") << name;
    const auto pre = PreTokenizer::Find(name);
    EXPECT_TRUE((*pre)->whole_words_first());
    EXPECT_TRUE((*pre)->adds_bos());
  }
}

TEST(PreTokenizerTest, Qwen2) {
  EXPECT_EQ(Words("qwen2", "12 ab!\n"), "1|2| ab|!\n");
  EXPECT_FALSE((*PreTokenizer::Find("qwen2"))->adds_bos());
}

TEST(PreTokenizerTest, WhiteSpaceIsUnicodes) {
  // No-break and ideographic spaces are, the Mongolian vowel separator is not.
  EXPECT_EQ(Words("gpt-2", "a\u00a0b\u3000\u3000c"), "a|\u00a0|b|\u3000|\u3000|c");
  EXPECT_EQ(Words("gpt-2", "a\u0085\u0085b"), "a|\u0085|\u0085|b");
  EXPECT_EQ(Words("gpt-2", "!\u180e!"), "!\u180e!");
}

TEST(PreTokenizerTest, InvalidBytesAreWordsOfTheirOwn) {
  EXPECT_EQ(Words("smollm", "ab\xff\xfe cd\xe2\x82"), "ab|\xff\xfe| cd|\xe2\x82");
}

TEST(PreTokenizerTest, UnknownNamesAreRefusedWithThoseThatAreKnown) {
  const auto pre = PreTokenizer::Find("smolln");
  ASSERT_FALSE(pre.has_value());
  EXPECT_EQ(pre.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(pre.error().message.find("'smolln' is not known; known are: default, gpt-2"),
            std::string::npos);
}

TEST(PreTokenizerTest, NothingIsLostWhateverTheBytes) {
  std::mt19937 random(5);
  const std::string pieces[] = {" ",        "  ",   "\n", "\r\n", "a",  "Zz",     "7",
                                "123",      "'s",   "'",  "é",    "中", "😀",      "\xff",
                                "\xe2\x82", "\xc3", "!",  "?!",   "\t", "\u00a0", "\0x"};
  for (const std::string_view name : PreTokenizer::Names()) {
    const auto pre = PreTokenizer::Find(name);
    ASSERT_TRUE(pre.has_value()) << pre.error().message;
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (size_t n = random() % 30; n > 0; --n) text += pieces[random() % std::size(pieces)];
      std::string joined;
      for (const std::string_view word : (*pre)->Split(text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// Each would be hours if a word cost time in proportion to the rest of the text.
TEST(PreTokenizerTest, LongTextsTakeLittleTime) {
  const auto repeat = [](std::string_view part, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  const std::string texts[] = {
      repeat(" ", 1 << 20), repeat("a", 1 << 20),    repeat("ab ", 1 << 20),  repeat("\n", 1 << 20),
      repeat("1", 1 << 20), repeat("\xff", 1 << 20), repeat("é\xff", 1 << 20)};
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view name : {"smollm", "llama3", "default"}) {
    const auto pre = PreTokenizer::Find(name);
    ASSERT_TRUE(pre.has_value());
    for (const std::string& text : texts) {
      size_t bytes = 0;
      for (const std::string_view word : (*pre)->Split(text)) bytes += word.size();
      EXPECT_EQ(bytes, text.size());
    }
    EXPECT_EQ((*pre)->Split(texts[1]).size(), 1u);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 60);
}

}  // namespace
}  // namespace tandem
