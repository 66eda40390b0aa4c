// UTF-8, one character at a time; strict: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

struct Utf8Step {
  enum class Kind : uint8_t {
    kCharacter,  // A whole character.
    kCut,        // A beginning of one: the text ends before it is whole.
    kInvalid,    // No character begins so.
  };
  Kind kind = Kind::kInvalid;
  // Bytes of the character, or of what stands for one: of a cut or invalid sequence, the longest
  // beginning that a character could have (what Unicode recommends to replace as one), at least 1.
  size_t bytes = 1;
  char32_t code_point = 0;  // kCharacter.
};

// What `text`, which is not empty, begins with.
Utf8Step NextUtf8(std::string_view text);
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace tandem
