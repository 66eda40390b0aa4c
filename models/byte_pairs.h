// Byte-pair encoding of one word.
//
// Symbols are texts in the byte alphabet of GPT-2 (each byte is one printable character). The
// first symbols are the vocabulary's tokens, with equal numbers; others exist only on the way to
// a longer one. Two neighbours are joined by the merge of lowest rank, the leftmost of equals
// first, until no merge applies: O(n log n) for a word of n bytes.
//
// Immutable after construction; any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/result.h"

namespace tandem {

class BytePairs {
 public:
  // `vocabulary` are the tokens' texts (of equal texts the first counts), `merges` are
  // "left right", in order of rank. Errors: a merge without two sides; a byte that has no token,
  // unless U+FFFD can be written in its place.
  static Result<BytePairs> Create(std::span<const std::string_view> vocabulary,
                                  std::span<const std::string_view> merges);

  // Appends the tokens of the word. Bytes that the vocabulary lacks become those of U+FFFD.
  void Encode(std::string_view word, std::vector<int32_t>* out) const;
  // The token whose text stands for exactly these bytes; -1 if there is none.
  int32_t Find(std::string_view bytes) const;

 private:
  using Symbol = int32_t;
  struct Merge {
    int32_t rank;
    Symbol result;
  };
  BytePairs() = default;
  Symbol Intern(std::string_view text);
  void AppendToken(Symbol symbol, std::vector<int32_t>* out) const;

  int32_t tokens_ = 0;                                    // Symbols below are tokens.
  std::deque<std::string> texts_;                         // Of symbols; addresses are stable.
  std::unordered_map<std::string_view, Symbol> symbols_;  // By text.
  std::unordered_map<uint64_t, Merge> merges_;            // By the pair of symbols.
  std::array<std::vector<Symbol>, 256> of_byte_;          // One; three where U+FFFD stands in.
};

// The character that stands for a byte, and back: printable characters of Latin-1 stand for
// themselves, the other bytes in order for those from U+0100 on. -1: stands for no byte.
char32_t ByteToCharacter(uint8_t byte);
int CharacterToByte(char32_t character);
// The bytes that a token's text stands for; characters that stand for none are kept.
std::string BytesOfText(std::string_view text);

}  // namespace tandem
