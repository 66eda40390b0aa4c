// Byte-level byte-pair encoding, as GGUF files describe it (tokenizer.ggml.model = "gpt2").
//
// Text is split at special tokens (where asked), then into words by the pre-tokenizer's regular
// expressions (tokenizer.ggml.pre), then each word's bytes are merged by rank. Every byte string
// can be encoded, invalid UTF-8 too, and Decode gives the same bytes back, but for bytes that the
// vocabulary has no token for (SmolLM2's lacks 21, all but useless): they become U+FFFD.
//
// Immutable; any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/result.h"
#include "models/gguf.h"

namespace tandem {

using Token = int32_t;
inline constexpr Token kNoToken = -1;

class Tokenizer {
 public:
  // Errors: a tokenizer model or pre-tokenizer that is not known (the message lists those that
  // are), missing or inconsistent tables.
  static Result<std::shared_ptr<const Tokenizer>> FromGguf(const GgufFile& file);
  ~Tokenizer();

  int64_t size() const;
  // `parse_special`: the text of a control token ("<|im_end|>") becomes that token.
  std::vector<Token> Encode(std::string_view text, bool parse_special) const;
  // Encode, with the model's beginning-of-text token in front if its file asks for it.
  std::vector<Token> EncodePrompt(std::string_view text, bool parse_special) const;
  // The bytes of a token; may be a part of a UTF-8 character. Control tokens give their text
  // with `show_special`, else nothing. Out of range gives nothing.
  std::string Decode(Token token, bool show_special = false) const;
  std::string Decode(std::span<const Token> tokens, bool show_special = false) const;

  Token bos() const;  // kNoToken if the file names none.
  Token eos() const;
  bool EndsGeneration(Token token) const;  // eos, eot, <|im_end|> and their like.
  bool IsControl(Token token) const;

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<Tables> tables);
  std::unique_ptr<Tables> tables_;
};

// Bytes in, whole UTF-8 characters out: for printing tokens as they come. Invalid bytes come out
// as U+FFFD once it is sure that they are.
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace tandem
