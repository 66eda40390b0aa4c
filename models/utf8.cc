#include "models/utf8.h"

#include "models/tokenizer.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD.

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {Utf8Step::Kind::kCharacter, 1, first};
  if (first < 0xc2 || first > 0xf4) return {};
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte's range is narrower where it decides on overlong forms, surrogates and the
  // end of the code space.
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  char32_t code_point = first & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kCut, i, 0};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xc0) == 0x80;
    if (!fits) return {Utf8Step::Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (byte(i) & 0x3f);
  }
  return {Utf8Step::Kind::kCharacter, length, code_point};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3f)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xc0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | code_point >> 12));
    tail(6), tail(0);
  } else {
    out->push_back(static_cast<char>(0xf0 | code_point >> 18));
    tail(12), tail(6), tail(0);
  }
}

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Step::Kind::kCut) break;
    out += step.kind == Utf8Step::Kind::kCharacter ? rest.substr(0, step.bytes) : kReplacement;
    rest.remove_prefix(step.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::Finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return std::string(cut ? kReplacement : "");
}

}  // namespace tandem
