#include "models/utf8.h"

#include <gtest/gtest.h>

#include "models/tokenizer.h"

namespace tandem {
namespace {

using Kind = Utf8Step::Kind;

TEST(Utf8Test, EveryCharacterComesBack) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Step step = NextUtf8(text);
    ASSERT_EQ(step.kind, Kind::kCharacter) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(step.bytes, text.size());
    ASSERT_EQ(step.code_point, c);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(NextUtf8(text.substr(0, cut)).kind, Kind::kCut);
      ASSERT_EQ(NextUtf8(text.substr(0, cut)).bytes, cut);
    }
  }
}

TEST(Utf8Test, WhatIsNoCharacterIsInvalid) {
  for (const std::string text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe2\x82(", "\xf0\x9f\x98("}) {
    EXPECT_EQ(NextUtf8(text).kind, Kind::kInvalid) << testing::PrintToString(text);
  }
}

TEST(Utf8StreamTest, CharactersComeWholeHoweverTheyAreCut) {
  const std::string text = "aé€😀ñ\nz";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      const std::string part = stream.Push(std::string_view(text).substr(at, piece));
      for (std::string_view rest = part; !rest.empty();) {
        const Utf8Step step = NextUtf8(rest);
        ASSERT_EQ(step.kind, Kind::kCharacter);
        rest.remove_prefix(step.bytes);
      }
      out += part;
    }
    EXPECT_EQ(out + stream.Finish(), text);
  }
}

TEST(Utf8StreamTest, InvalidBytesAreReplacedOnceThatIsSure) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xe2\x82"), "");
  EXPECT_EQ(stream.Push("x"), "\ufffdx");
  EXPECT_EQ(stream.Push("\xff\xff"), "\ufffd\ufffd");
  EXPECT_EQ(stream.Push("\xf0\x9f"), "");
  EXPECT_EQ(stream.Finish(), "\ufffd");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Push("ok"), "ok");
}

}  // namespace
}  // namespace tandem
