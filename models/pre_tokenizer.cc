#include "models/pre_tokenizer.h"

#include <pcre2.h>

#include <cstdint>
#include <span>

#include "models/mapped_file.h"
#include "models/utf8.h"

namespace tandem {
namespace {

// White space is Unicode's property: PCRE's \s has U+180E too, on which tokenizers disagree.
#define TANDEM_WS "\\p{White_Space}"
// A run of spaces gives its last one to the word behind it; one that ends the text stays whole.
#define TANDEM_SPACES TANDEM_WS "+(?!\\P{White_Space})|" TANDEM_WS "+"
#define TANDEM_GPT2 \
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" TANDEM_WS "\\p{L}\\p{N}]+|" TANDEM_SPACES
// GPT-4's expression, but for how many digits (DIGITS) go together.
#define TANDEM_GPT4(DIGITS)                                                              \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" DIGITS "| ?[^" TANDEM_WS \
  "\\p{L}\\p{N}]+[\\r\\n]*|" TANDEM_WS "*[\\r\\n]+|" TANDEM_SPACES

struct Entry {
  std::string_view name;
  const char* patterns[4];  // Null after the last.
  bool whole_words_first = false;
  bool adds_bos = false;
};

constexpr Entry kEntries[] = {
    {"default", {"[\\p{P}$+<=>^~|]+", TANDEM_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2", {TANDEM_GPT2}},
    {"olmo", {TANDEM_GPT2}},
    {"smollm", {"\\p{N}", TANDEM_GPT2}},
    {"starcoder", {"\\p{N}", TANDEM_GPT2}},
    {"refact", {"\\p{N}", TANDEM_GPT2}},
    {"codeshell", {"\\p{N}", TANDEM_GPT2}},
    {"llama-bpe", {TANDEM_GPT4("\\p{N}{1,3}")}, true, true},
    {"llama3", {TANDEM_GPT4("\\p{N}{1,3}")}, true, true},
    {"llama-v3", {TANDEM_GPT4("\\p{N}{1,3}")}, true, true},
    {"qwen2", {TANDEM_GPT4("\\p{N}")}},
    {"stablelm2", {TANDEM_GPT4("\\p{N}")}},
};

#undef TANDEM_GPT4
#undef TANDEM_GPT2
#undef TANDEM_SPACES
#undef TANDEM_WS

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// Cuts `word`, which is valid UTF-8, at the matches of `code`.
void Cut(const pcre2_code* code, pcre2_match_data* match, pcre2_match_context* context,
         std::string_view word, std::vector<std::string_view>* out) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(word.data());
  const auto emit = [&](size_t begin, size_t end) {
    if (begin < end) out->push_back(word.substr(begin, end - begin));
  };
  size_t position = 0, done = 0;
  while (position < word.size()) {
    // Checking the text again at each match would make this quadratic.
    const int matches = pcre2_match(code, subject, word.size(), position,
                                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, context);
    // No match; or no memory to look for one, and then the rest is one word, still complete.
    if (matches <= 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
    emit(done, ends[0]);
    emit(ends[0], ends[1]);
    done = position = ends[1];
  }
  emit(done, word.size());
}

}  // namespace

struct PreTokenizer::Expressions {
  const Entry* entry = nullptr;
  std::vector<std::unique_ptr<pcre2_code, FreeCode>> codes;
  std::unique_ptr<pcre2_match_context, FreeContext> context;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Expressions> expressions)
    : expressions_(std::move(expressions)) {}
PreTokenizer::~PreTokenizer() = default;

std::vector<std::string_view> PreTokenizer::Names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) names.push_back(entry.name);
  return names;
}

Result<std::shared_ptr<const PreTokenizer>> PreTokenizer::Find(std::string_view name) {
  const Entry* found = nullptr;
  for (const Entry& entry : kEntries) {
    if (entry.name == name) found = &entry;
  }
  if (found == nullptr) {
    return Fail(ErrorCode::kUnsupported, "pre-tokenizer '{}' is not known; known are: {}",
                Printable(name), fmt::join(Names(), ", "));
  }
  auto expressions = std::make_unique<Expressions>();
  expressions->entry = found;
  for (const char* pattern : found->patterns) {
    if (pattern == nullptr) break;
    int error = 0;
    PCRE2_SIZE offset = 0;
    expressions->codes.emplace_back(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern),
                                                  PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                                  &error, &offset, nullptr));
    if (expressions->codes.back() == nullptr) {
      return Fail(ErrorCode::kUnsupported,
                  "pre-tokenizer '{}': PCRE2 refuses its expression at {} (error {})", found->name,
                  offset, error);
    }
  }
  // The default limit of steps would end the search within a long run of spaces.
  expressions->context.reset(pcre2_match_context_create(nullptr));
  if (expressions->context == nullptr) {
    return Fail(ErrorCode::kOutOfMemory, "pre-tokenizer '{}': no memory", found->name);
  }
  pcre2_set_match_limit(expressions->context.get(), UINT32_MAX);
  return std::shared_ptr<const PreTokenizer>(new PreTokenizer(std::move(expressions)));
}

bool PreTokenizer::whole_words_first() const { return expressions_->entry->whole_words_first; }
bool PreTokenizer::adds_bos() const { return expressions_->entry->adds_bos; }

std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> words;
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  if (match == nullptr) return {text};

  std::vector<std::string_view> before, after;
  for (size_t begin = 0; begin < text.size();) {
    // The longest run of valid, or of invalid, UTF-8 from here.
    size_t end = begin;
    const bool valid = NextUtf8(text.substr(begin)).kind == Utf8Step::Kind::kCharacter;
    while (end < text.size()) {
      const Utf8Step step = NextUtf8(text.substr(end));
      if ((step.kind == Utf8Step::Kind::kCharacter) != valid) break;
      end += step.bytes;
    }
    before.assign(1, text.substr(begin, end - begin));
    if (valid) {
      for (const auto& code : expressions_->codes) {
        after.clear();
        for (const std::string_view word : before) {
          Cut(code.get(), match.get(), expressions_->context.get(), word, &after);
        }
        before.swap(after);
      }
    }
    words.insert(words.end(), before.begin(), before.end());
    begin = end;
  }
  return words;
}

}  // namespace tandem
