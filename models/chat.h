// The ChatML template: <|im_start|>role\ncontent<|im_end|>\n for each message, then the opening
// of the assistant's turn. Models whose file holds another template are refused with its name.
#pragma once

#include <span>
#include <string>

#include "graph/result.h"
#include "models/gguf.h"

namespace tandem {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant".
  std::string content;
};

// Whether the file's chat template is ChatML, and the system message that the template puts in
// front where the conversation has none ("" if none).
Result<std::string> ChatMlDefaultSystem(const GgufFile& file);
std::string FormatChatMl(std::span<const ChatMessage> messages, const std::string& default_system);

}  // namespace tandem
