#include "models/chat.h"

#include "models/mapped_file.h"

namespace tandem {
namespace {

constexpr std::string_view kKey = "tokenizer.chat_template";

// The template with what Jinja leaves to taste made equal: line breaks in literals (which may be
// written as \n), quotes, ways to name a message's fields, and spaces outside of literals.
std::string Normalized(std::string_view text) {
  std::string out;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == '\\' && i + 1 < text.size()) {
        const char escaped = text[++i];
        out += escaped == 'n' ? '\n' : escaped;
      } else if (c == quote) {
        out += '\'';
        quote = '\0';
      } else {
        out += c;
      }
    } else if (c == '\'' || c == '"') {
      out += '\'';
      quote = c;
    } else if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      out += c;
    }
  }
  for (const std::string_view field : {"role", "content"}) {
    const std::string dotted = fmt::format("message.{}", field);
    const std::string indexed = fmt::format("message['{}']", field);
    for (size_t at = out.find(dotted); at != std::string::npos; at = out.find(dotted, at)) {
      out.replace(at, dotted.size(), indexed);
    }
  }
  return out;
}

// Marks of other templates, for the message.
std::string_view Family(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"<|start_header_id|>", "Llama 3"},
      {"[INST]", "Llama 2 or Mistral"},
      {"<start_of_turn>", "Gemma"},
      {"<|START_OF_TURN_TOKEN|>", "Command R"},
      {"<|im_sep|>", "Phi 4"},
      {"<|im_user|>", "Kimi"},
      {"<|user|>", "Zephyr or Phi 3"},
      {"<|im_start|>", "a variant of ChatML"}};
  for (const auto& [mark, name] : kMarks) {
    if (text.find(mark) != std::string_view::npos) return name;
  }
  return "unknown";
}

}  // namespace

Result<std::string> ChatMlDefaultSystem(const GgufFile& file) {
  if (!file.Has(kKey)) {
    return Fail(ErrorCode::kNotFound, "{}: key '{}' is missing: the file has no chat template",
                Printable(file.path()), kKey);
  }
  TANDEM_ASSIGN(const std::string_view source, file.String(kKey));
  const std::string text = Normalized(source);
  constexpr std::string_view kMessage =
      "'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>'+'\n'";
  // Some join the last two literals.
  constexpr std::string_view kMessageJoined =
      "'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n'";
  const bool messages =
      text.find(kMessage) != std::string::npos || text.find(kMessageJoined) != std::string::npos;
  const bool opening = text.find("'<|im_start|>assistant\n'") != std::string::npos;
  if (!messages || !opening) {
    return Fail(ErrorCode::kUnsupported,
                "{}: key '{}': the chat template ({}) is not supported; supported is ChatML",
                Printable(file.path()), kKey, Family(source));
  }

  // A literal that is a whole system message is what the template puts first by itself.
  constexpr std::string_view kBegin = "'<|im_start|>system\n", kEnd = "<|im_end|>\n'";
  for (size_t at = text.find(kBegin); at != std::string::npos; at = text.find(kBegin, at + 1)) {
    const size_t begin = at + kBegin.size();
    const size_t end = text.find(kEnd, begin);
    // A message in pieces has the quote of its first literal in between.
    if (end == std::string::npos || text[begin] == '\'') continue;
    return text.substr(begin, end - begin);
  }
  return std::string();
}

std::string FormatChatMl(std::span<const ChatMessage> messages, const std::string& default_system) {
  std::string text;
  const auto append = [&](std::string_view role, std::string_view content) {
    text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
  };
  if (!messages.empty() && messages.front().role != "system" && !default_system.empty()) {
    append("system", default_system);
  }
  for (const ChatMessage& message : messages) append(message.role, message.content);
  return text + "<|im_start|>assistant\n";
}

}  // namespace tandem
