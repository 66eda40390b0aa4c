// Splits text into words before byte pairs are merged: no token reaches across a word.
//
// A pre-tokenizer is a list of regular expressions, applied in turn. Each cuts the words that
// the ones before it left into its matches and what lies between them; no byte is dropped. The
// expressions are those with which the models of that name were trained, as their published
// tokenizers give them. Bytes that are no UTF-8 are words of their own.
//
// Immutable; any number of threads. Time is linear in the text for all expressions here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/result.h"

namespace tandem {

class PreTokenizer {
 public:
  // By the name in the file's tokenizer.ggml.pre. The error lists the names that are known.
  static Result<std::shared_ptr<const PreTokenizer>> Find(std::string_view name);
  static std::vector<std::string_view> Names();
  ~PreTokenizer();

  // A word that is a token is that token, whatever the merges would make of it.
  bool whole_words_first() const;
  // Whether prompts begin with the beginning-of-text token when the file does not say.
  bool adds_bos() const;

  // The words, in order; put together they are `text`, whose bytes they point to.
  std::vector<std::string_view> Split(std::string_view text) const;

 private:
  struct Expressions;
  explicit PreTokenizer(std::unique_ptr<Expressions> expressions);
  std::unique_ptr<Expressions> expressions_;
};

}  // namespace tandem
