#include "models/byte_pairs.h"

#include <algorithm>
#include <queue>

#include "models/mapped_file.h"
#include "models/utf8.h"

namespace tandem {
namespace {

bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 0x144> byte{};

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      character[b] = StandsForItself(b) ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& ByteAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

std::string TextOfByte(uint8_t byte) {
  std::string text;
  AppendUtf8(ByteToCharacter(byte), &text);
  return text;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A merge that was possible when it was found.
struct Candidate {
  int32_t rank;
  int32_t left;           // Position in the word; the right side is the next one alive.
  int32_t first, second;  // The symbols that were there.
  int32_t result;

  bool operator<(const Candidate& other) const {  // The best is the largest.
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

char32_t ByteToCharacter(uint8_t byte) { return ByteAlphabet().character[byte]; }

int CharacterToByte(char32_t character) {
  const Alphabet& alphabet = ByteAlphabet();
  return character < alphabet.byte.size() ? alphabet.byte[character] : -1;
}

std::string BytesOfText(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    const int byte =
        step.kind == Utf8Step::Kind::kCharacter ? CharacterToByte(step.code_point) : -1;
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
    } else {
      bytes += text.substr(0, step.bytes);
    }
    text.remove_prefix(step.bytes);
  }
  return bytes;
}

BytePairs::Symbol BytePairs::Intern(std::string_view text) {
  if (const auto it = symbols_.find(text); it != symbols_.end()) return it->second;
  const Symbol symbol = static_cast<Symbol>(texts_.size());
  symbols_.emplace(texts_.emplace_back(text), symbol);
  return symbol;
}

Result<BytePairs> BytePairs::Create(std::span<const std::string_view> vocabulary,
                                    std::span<const std::string_view> merges) {
  BytePairs pairs;
  pairs.symbols_.reserve(vocabulary.size());
  for (const std::string_view text : vocabulary) {
    const Symbol symbol = static_cast<Symbol>(pairs.texts_.size());
    pairs.symbols_.emplace(pairs.texts_.emplace_back(text), symbol);
  }
  pairs.tokens_ = static_cast<int32_t>(vocabulary.size());

  pairs.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    // From the second byte on: the left side may itself be a space in other alphabets.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return Fail(ErrorCode::kInvalid, "merge {} is '{}'; two texts and a space are needed", rank,
                  Printable(merge));
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const Symbol first = pairs.Intern(left), second = pairs.Intern(right);
    const Symbol result = pairs.Intern(std::string(left).append(right));
    pairs.merges_.emplace(PairKey(first, second), Merge{static_cast<int32_t>(rank), result});
  }

  const auto token_of_byte = [&](uint8_t byte) {
    const auto it = pairs.symbols_.find(TextOfByte(byte));
    return it != pairs.symbols_.end() && it->second < pairs.tokens_ ? it->second : -1;
  };
  std::vector<Symbol> replacement;
  for (const uint8_t byte : {0xef, 0xbf, 0xbd}) replacement.push_back(token_of_byte(byte));
  const bool replaceable = std::count(replacement.begin(), replacement.end(), -1) == 0;
  for (int byte = 0; byte < 256; ++byte) {
    const Symbol token = token_of_byte(static_cast<uint8_t>(byte));
    if (token < 0 && !replaceable) {
      return Fail(ErrorCode::kInvalid,
                  "byte 0x{:02x} has no token ('{}'), nor has U+FFFD, which could stand for it",
                  byte, TextOfByte(static_cast<uint8_t>(byte)));
    }
    pairs.of_byte_[byte] = token < 0 ? replacement : std::vector<Symbol>{token};
  }
  return pairs;
}

int32_t BytePairs::Find(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), &text);
  const auto it = symbols_.find(text);
  return it != symbols_.end() && it->second < tokens_ ? it->second : -1;
}

void BytePairs::AppendToken(Symbol symbol, std::vector<int32_t>* out) const {
  if (symbol < tokens_) {
    out->push_back(symbol);
    return;
  }
  for (const char byte : BytesOfText(texts_[symbol])) {
    const std::vector<Symbol>& tokens = of_byte_[static_cast<uint8_t>(byte)];
    out->insert(out->end(), tokens.begin(), tokens.end());
  }
}

void BytePairs::Encode(std::string_view word, std::vector<int32_t>* out) const {
  // A doubly linked list of what is left of the word; a position that was joined to the one
  // before it has no symbol.
  constexpr int32_t kJoined = -1, kEnd = -1;
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char byte : word) {
    const std::vector<Symbol>& first = of_byte_[static_cast<uint8_t>(byte)];
    symbols.insert(symbols.end(), first.begin(), first.end());
  }
  const int32_t size = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> next(size), previous(size);
  for (int32_t i = 0; i < size; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1 < size ? i + 1 : kEnd;
  }

  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left == kEnd || right == kEnd) return;
    const auto it = merges_.find(PairKey(symbols[left], symbols[right]));
    if (it == merges_.end()) return;
    queue.push({it->second.rank, left, symbols[left], symbols[right], it->second.result});
  };
  for (int32_t i = 0; i + 1 < size; ++i) consider(i, i + 1);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const int32_t right = next[best.left];
    // Outdated if either side was merged since.
    if (symbols[best.left] != best.first || right == kEnd || symbols[right] != best.second) {
      continue;
    }
    symbols[best.left] = best.result;
    symbols[right] = kJoined;
    next[best.left] = next[right];
    if (next[right] != kEnd) previous[next[right]] = best.left;
    consider(previous[best.left], best.left);
    consider(best.left, next[best.left]);
  }
  for (int32_t i = 0; i < size; ++i) {
    if (symbols[i] != kJoined) AppendToken(symbols[i], out);
  }
}

}  // namespace tandem
