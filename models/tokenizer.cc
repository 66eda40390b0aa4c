#include "models/tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "models/byte_pairs.h"
#include "models/mapped_file.h"
#include "models/pre_tokenizer.h"

namespace tandem {
namespace {

// Kinds of tokens, as tokenizer.ggml.token_type numbers them.
enum class Kind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Texts of control tokens that end a turn or a text, in the families that use this tokenizer;
// files often name only one of theirs as eos.
constexpr std::string_view kEndTexts[] = {"<|im_end|>",      "<|endoftext|>", "<|end_of_text|>",
                                          "<|eot_id|>",      "<|eom_id|>",    "<|end|>",
                                          "<|end_of_turn|>", "<EOT>",         "</s>"};

// Finds the texts of special tokens: the longest at a position. A trie over bytes.
class SpecialTexts {
 public:
  void Add(std::string_view text, Token token) {
    int32_t node = 0;
    for (const char byte : text) {
      const auto [it, is_new] =
          children_.try_emplace(Key(node, byte), static_cast<int32_t>(tokens_.size()));
      if (is_new) tokens_.push_back(kNoToken);
      node = it->second;
    }
    if (tokens_[node] == kNoToken) tokens_[node] = token;
    starts_[static_cast<uint8_t>(text.front())] = true;
  }

  struct Match {
    Token token = kNoToken;
    size_t bytes = 0;
  };
  Match LongestAt(std::string_view text) const {
    Match longest;
    if (!starts_[static_cast<uint8_t>(text.front())]) return longest;
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto it = children_.find(Key(node, text[i]));
      if (it == children_.end()) break;
      node = it->second;
      if (tokens_[node] != kNoToken) longest = {tokens_[node], i + 1};
    }
    return longest;
  }

 private:
  static uint64_t Key(int32_t node, char byte) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
  }
  std::vector<Token> tokens_{kNoToken};  // Of each node; the first is the root.
  std::unordered_map<uint64_t, int32_t> children_;
  std::array<bool, 256> starts_{};
};

Result<Token> TokenKey(const GgufFile& file, std::string_view key, int64_t size) {
  if (!file.Has(key)) return kNoToken;
  TANDEM_ASSIGN(const int64_t token, file.Integer(key));
  if (token < 0 || token >= size) {
    return Fail(ErrorCode::kInvalid, "{}: key '{}': token {} is none of the {} there are",
                Printable(file.path()), key, token, size);
  }
  return static_cast<Token>(token);
}

}  // namespace

struct Tokenizer::Tables {
  explicit Tables(BytePairs byte_pairs) : pairs(std::move(byte_pairs)) {}

  BytePairs pairs;
  std::shared_ptr<const PreTokenizer> pre;
  std::vector<std::string> bytes;  // Of each token.
  std::vector<Kind> kinds;
  std::vector<bool> ends;
  SpecialTexts always, with_control;
  Token bos = kNoToken, eos = kNoToken;
  bool add_bos = false;

  void EncodeText(std::string_view text, std::vector<Token>* out) const;
};

// Text without special tokens.
void Tokenizer::Tables::EncodeText(std::string_view text, std::vector<Token>* out) const {
  for (const std::string_view word : pre->Split(text)) {
    if (pre->whole_words_first()) {
      const Token token = pairs.Find(word);
      if (token != kNoToken && kinds[token] == Kind::kNormal) {
        out->push_back(token);
        continue;
      }
    }
    pairs.Encode(word, out);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  const std::string path = Printable(file.path());
  const auto in_file = [&](Error error) {
    return tl::unexpected<Error>({error.code, fmt::format("{}: {}", path, error.message)});
  };
  TANDEM_ASSIGN(const std::string_view model, file.String("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Fail(ErrorCode::kUnsupported,
                "{}: key 'tokenizer.ggml.model': tokenizer '{}' is not supported; supported is "
                "gpt2 (byte-level byte pairs)",
                path, Printable(model));
  }
  std::string_view pre_name = "default";
  if (file.Has("tokenizer.ggml.pre")) {
    TANDEM_ASSIGN(pre_name, file.String("tokenizer.ggml.pre"));
  }
  auto pre = PreTokenizer::Find(pre_name);
  if (!pre) return in_file(std::move(pre).error());

  TANDEM_ASSIGN(const std::vector<std::string_view> texts, file.Strings("tokenizer.ggml.tokens"));
  TANDEM_ASSIGN(const std::vector<std::string_view> merges, file.Strings("tokenizer.ggml.merges"));
  constexpr size_t kMost = INT32_MAX / 4;  // Numbers of symbols are 32 bits.
  if (texts.empty() || texts.size() > kMost || merges.size() > kMost) {
    return Fail(ErrorCode::kInvalid, "{}: key 'tokenizer.ggml.tokens': {} tokens and {} merges",
                path, texts.size(), merges.size());
  }
  auto pairs = BytePairs::Create(texts, merges);
  if (!pairs) return in_file(std::move(pairs).error());

  auto tables = std::make_unique<Tables>(std::move(*pairs));
  tables->pre = std::move(*pre);
  tables->kinds.assign(texts.size(), Kind::kNormal);
  if (file.Has("tokenizer.ggml.token_type")) {
    TANDEM_ASSIGN(const std::vector<int64_t> kinds, file.Integers("tokenizer.ggml.token_type"));
    if (kinds.size() != texts.size()) {
      return Fail(ErrorCode::kInvalid,
                  "{}: key 'tokenizer.ggml.token_type': {} types for {} tokens", path, kinds.size(),
                  texts.size());
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] < 1 || kinds[i] > 6) {
        return Fail(ErrorCode::kInvalid,
                    "{}: key 'tokenizer.ggml.token_type': token {} has the unknown type {}", path,
                    i, kinds[i]);
      }
      tables->kinds[i] = static_cast<Kind>(kinds[i]);
    }
  }

  const int64_t size = static_cast<int64_t>(texts.size());
  TANDEM_ASSIGN(tables->bos, TokenKey(file, "tokenizer.ggml.bos_token_id", size));
  TANDEM_ASSIGN(tables->eos, TokenKey(file, "tokenizer.ggml.eos_token_id", size));
  TANDEM_ASSIGN(const Token eot, TokenKey(file, "tokenizer.ggml.eot_token_id", size));
  TANDEM_ASSIGN(const Token eom, TokenKey(file, "tokenizer.ggml.eom_token_id", size));
  tables->add_bos = tables->pre->adds_bos();
  if (file.Has("tokenizer.ggml.add_bos_token")) {
    TANDEM_ASSIGN(tables->add_bos, file.Boolean("tokenizer.ggml.add_bos_token"));
  }
  if (tables->add_bos && tables->bos == kNoToken) {
    return Fail(ErrorCode::kInvalid,
                "{}: prompts begin with a token that key 'tokenizer.ggml.bos_token_id' should "
                "name, but it is missing",
                path);
  }

  tables->bytes.reserve(texts.size());
  tables->ends.assign(texts.size(), false);
  for (const Token token : {tables->eos, eot, eom}) {
    if (token != kNoToken) tables->ends[token] = true;
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const Token token = static_cast<Token>(i);
    const Kind kind = tables->kinds[i];
    const bool control = kind == Kind::kControl || kind == Kind::kUnknown;
    const bool special = control || kind == Kind::kUserDefined;
    // Texts of special tokens are written as they are, those of others in the byte alphabet.
    tables->bytes.push_back(special ? std::string(texts[i]) : BytesOfText(texts[i]));
    if (special && !texts[i].empty()) {
      tables->with_control.Add(texts[i], token);
      if (!control) tables->always.Add(texts[i], token);
    }
    if (control && std::ranges::find(kEndTexts, texts[i]) != std::end(kEndTexts)) {
      tables->ends[i] = true;
    }
  }
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(tables)));
}

int64_t Tokenizer::size() const { return static_cast<int64_t>(tables_->bytes.size()); }

std::vector<Token> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  std::vector<Token> tokens;
  const SpecialTexts& specials = parse_special ? tables_->with_control : tables_->always;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const SpecialTexts::Match match = specials.LongestAt(text.substr(i));
    if (match.token == kNoToken) {
      ++i;
      continue;
    }
    tables_->EncodeText(text.substr(begin, i - begin), &tokens);
    tokens.push_back(match.token);
    begin = i += match.bytes;
  }
  tables_->EncodeText(text.substr(begin), &tokens);
  return tokens;
}

std::vector<Token> Tokenizer::EncodePrompt(std::string_view text, bool parse_special) const {
  std::vector<Token> tokens = Encode(text, parse_special);
  if (tables_->add_bos) tokens.insert(tokens.begin(), tables_->bos);
  return tokens;
}

std::string Tokenizer::Decode(Token token, bool show_special) const {
  if (token < 0 || token >= size()) return {};
  if (IsControl(token) && !show_special) return {};
  return tables_->bytes[token];
}

std::string Tokenizer::Decode(std::span<const Token> tokens, bool show_special) const {
  std::string text;
  for (const Token token : tokens) text += Decode(token, show_special);
  return text;
}

Token Tokenizer::bos() const { return tables_->bos; }
Token Tokenizer::eos() const { return tables_->eos; }

bool Tokenizer::EndsGeneration(Token token) const {
  return token >= 0 && token < size() && tables_->ends[token];
}

bool Tokenizer::IsControl(Token token) const {
  if (token < 0 || token >= size()) return false;
  return tables_->kinds[token] == Kind::kControl || tables_->kinds[token] == Kind::kUnknown;
}

}  // namespace tandem
