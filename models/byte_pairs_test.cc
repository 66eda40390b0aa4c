#include "models/byte_pairs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "models/utf8.h"

namespace tandem {
namespace {

std::string Text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), &text);
  return text;
}

// The 256 bytes, then `more`.
std::vector<std::string> Vocabulary(const std::vector<std::string>& more) {
  std::vector<std::string> vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.push_back(Text(std::string(1, byte)));
  vocabulary.insert(vocabulary.end(), more.begin(), more.end());
  return vocabulary;
}

Result<BytePairs> Create(const std::vector<std::string>& vocabulary,
                         const std::vector<std::string>& merges) {
  const std::vector<std::string_view> texts(vocabulary.begin(), vocabulary.end());
  const std::vector<std::string_view> rules(merges.begin(), merges.end());
  return BytePairs::Create(texts, rules);
}

// What a word becomes, as texts with | between them.
std::string Pieces(const BytePairs& pairs, const std::vector<std::string>& vocabulary,
                   std::string_view word) {
  std::vector<int32_t> tokens;
  pairs.Encode(word, &tokens);
  std::string out;
  for (const int32_t token : tokens) out += (out.empty() ? "" : "|") + vocabulary[token];
  return out;
}

TEST(BytePairsTest, EveryByteHasACharacterOfItsOwn) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(CharacterToByte(ByteToCharacter(static_cast<uint8_t>(byte))), byte);
    all.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(ByteToCharacter('A'), U'A');
  EXPECT_EQ(ByteToCharacter(' '), U'\u0120');
  EXPECT_EQ(ByteToCharacter('\n'), U'\u010a');
  EXPECT_EQ(ByteToCharacter(0xad), U'\u0143');
  EXPECT_EQ(CharacterToByte(U'\u0144'), -1);
  EXPECT_EQ(CharacterToByte(U'\U0001f600'), -1);
  EXPECT_EQ(CharacterToByte(U' '), -1);
  EXPECT_EQ(BytesOfText(Text(all)), all);
  EXPECT_EQ(BytesOfText("a \xff😀\u0120"), "a \xff😀 ");
}

TEST(BytePairsTest, LowestRankFirstThenLeftmost) {
  const auto vocabulary = Vocabulary({"ab", "bc", "abc", "aa", "aaaa"});
  const auto merges = std::vector<std::string>{"b c", "a b", "a bc", "a a", "aa aa"};
  const auto pairs = Create(vocabulary, merges);
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(Pieces(*pairs, vocabulary, ""), "");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "x"), "x");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "ab"), "ab");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "abc"), "abc");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "aab"), "a|ab");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "aaa"), "aa|a");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "aaaaaaa"), "aaaa|aa|a");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "cab"), "c|ab");
  EXPECT_EQ(pairs->Find("abc"), 258);
  EXPECT_EQ(pairs->Find("abcd"), -1);
}

TEST(BytePairsTest, ResultsThatAreNoTokensFallApartUnlessMergedOn) {
  const auto vocabulary = Vocabulary({"abc"});
  const auto pairs = Create(vocabulary, {"a b", "ab c"});
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(Pieces(*pairs, vocabulary, "abc"), "abc");
  EXPECT_EQ(Pieces(*pairs, vocabulary, "abd"), "a|b|d");
  EXPECT_EQ(pairs->Find("ab"), -1);
}

TEST(BytePairsTest, BytesWithoutATokenBecomeTheReplacementCharacter) {
  auto vocabulary = Vocabulary({Text("\xef\xbf"), Text("\xef\xbf\xbd")});
  vocabulary[0xff] = "[gone]";
  const auto pairs = Create(
      vocabulary, {Text("\xef") + " " + Text("\xbf"), Text("\xef\xbf") + " " + Text("\xbd")});
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(Pieces(*pairs, vocabulary, "a\xff"), "a|" + Text("\xef\xbf\xbd"));

  vocabulary[0xbd] = "[gone too]";
  const auto none = Create(vocabulary, {});
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("byte 0xbd has no token"), std::string::npos);
}

TEST(BytePairsTest, MergesThatAreWrong) {
  for (const std::string merge : {"", "a", "ab", " a", "a "}) {
    const auto pairs = Create(Vocabulary({}), {"a b", merge});
    ASSERT_FALSE(pairs.has_value()) << merge;
    EXPECT_NE(pairs.error().message.find("merge 1 is '" + merge + "'"), std::string::npos);
  }
}

// The definition, word for word: the pair of lowest rank, leftmost, again and again.
std::vector<std::string> MergeSlowly(std::string_view word,
                                     const std::vector<std::string>& merges) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::string pair = parts[i] + " " + parts[i + 1];
      const size_t rank = std::find(merges.begin(), merges.end(), pair) - merges.begin();
      if (rank < best) best = rank, at = i;
    }
    if (best == merges.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + at + 1);
  }
}

TEST(BytePairsTest, EqualsTheDefinitionOnRandomMerges) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    auto vocabulary = Vocabulary({});
    std::vector<std::string> known{"a", "b", "c"}, merges;
    for (int i = 0; i < 30; ++i) {
      const std::string left = known[random() % known.size()];
      const std::string right = known[random() % known.size()];
      const std::string merge = left + " " + right;
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      if (std::find(known.begin(), known.end(), left + right) == known.end()) {
        known.push_back(left + right);
        vocabulary.push_back(left + right);
      }
    }
    const auto pairs = Create(vocabulary, merges);
    ASSERT_TRUE(pairs.has_value());
    for (int word = 0; word < 20; ++word) {
      std::string text;
      for (size_t size = random() % 40; size > 0; --size) text.push_back("abc"[random() % 3]);
      std::string expected;
      for (const std::string& part : MergeSlowly(text, merges)) {
        expected += (expected.empty() ? "" : "|") + part;
      }
      ASSERT_EQ(Pieces(*pairs, vocabulary, text), expected) << text;
    }
  }
}

TEST(BytePairsTest, LongWordsTakeLittleTime) {
  std::vector<std::string> more, merges;
  std::string half = "a";
  for (int i = 0; i < 12; ++i) {
    merges.push_back(half + " " + half);
    more.push_back(half += half);
  }
  const auto pairs = Create(Vocabulary(more), merges);
  ASSERT_TRUE(pairs.has_value());
  std::vector<int32_t> tokens;
  const auto start = std::chrono::steady_clock::now();
  pairs->Encode(std::string(1 << 20, 'a'), &tokens);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(tokens.size(), size_t{1 << 20} >> 12);
  EXPECT_LT(seconds.count(), 20);  // Quadratic would be hours.
}

}  // namespace
}  // namespace tandem
