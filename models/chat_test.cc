#include "models/chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/gguf_writer.h"
#include "models/tokenizer.h"
#include "tests/testing/test_data.h"

namespace tandem {
namespace {

Result<std::string> DefaultSystem(std::string_view chat_template) {
  GgufWriter w;
  w.String("tokenizer.chat_template", chat_template);
  const TemporaryFile bytes(w.Bytes());
  const auto file = GgufFile::Open(bytes.path());
  if (!file) return tl::unexpected<Error>(file.error());
  return ChatMlDefaultSystem(**file);
}

TEST(ChatTest, FormatsMessages) {
  const ChatMessage user{"user", "Hi"}, system{"system", "Be brief."}, answer{"assistant", "Yes?"};
  const ChatMessage talk[] = {system, user, answer, user};
  EXPECT_EQ(FormatChatMl(talk, "ignored"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(FormatChatMl({&user, 1}, "Hello."),
            "<|im_start|>system\nHello.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(FormatChatMl({&user, 1}, ""),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(FormatChatMl({}, "Hello."), "<|im_start|>assistant\n");
}

TEST(ChatTest, RecognizesChatMlHoweverItIsWritten) {
  const std::string_view plain =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(DefaultSystem(plain).value(), "");
  const std::string_view other =
      "{%- for message in messages %}\n    {{- \"<|im_start|>\" + message.role + \"\\n\" + "
      "message.content + \"<|im_end|>\\n\" }}\n{%- endfor %}\n"
      "{%- if add_generation_prompt %}{{- \"<|im_start|>assistant\\n\" }}{%- endif %}";
  EXPECT_EQ(DefaultSystem(other).value(), "");
  // A system message in pieces is the caller's; one in a single literal is the default.
  const std::string with_default =
      "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + "
      "'<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>system\\nIt\\'s \"me\".<|im_end|>\\n' }}"
      "{%- endif %}" +
      std::string(other);
  EXPECT_EQ(DefaultSystem(with_default).value(), "It's \"me\".");
}

TEST(ChatTest, OtherTemplatesAreRefusedByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"{{ '[INST] ' + messages[0]['content'] + ' [/INST]' }}", "Llama 2 or Mistral"},
      {"{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' }}", "Llama 3"},
      {"{{ '<start_of_turn>' + role }}", "Gemma"},
      {"{{ '<|im_start|>' + message['role'] + '<|im_sep|>' }}", "Phi 4"},
      {"{{ '<|im_start|>assistant\n' }}", "a variant of ChatML"},
      {"", "unknown"},
      {"{{ '\\", "unknown"},
      {"'", "unknown"}};
  for (const auto& [text, name] : cases) {
    const auto system = DefaultSystem(text);
    ASSERT_FALSE(system.has_value()) << text;
    EXPECT_EQ(system.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(system.error().message.find("(" + std::string(name) + ") is not supported"),
              std::string::npos)
        << system.error().message;
  }
  GgufWriter none;
  none.U32("other", 1);
  const TemporaryFile bytes(none.Bytes());
  const auto file = GgufFile::Open(bytes.path());
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(ChatMlDefaultSystem(**file).error().code, ErrorCode::kNotFound);
}

TEST(ChatTest, PromptsOfTheRealFile) {
  const auto model = testing_data::Model("SmolLM2-135M-Instruct.Q4_1.gguf");
  const auto stable = testing_data::SharedData("references/ref_smollm2_stable.json");
  if (!model || !stable) GTEST_SKIP() << "no model or no references";
  const auto file = GgufFile::Open(*model);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto system = ChatMlDefaultSystem(**file);
  ASSERT_TRUE(system.has_value()) << system.error().message;
  EXPECT_EQ(*system, "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  const auto tokenizer = Tokenizer::FromGguf(**file);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;

  std::ifstream in(*stable);
  const nlohmann::json prompts = nlohmann::json::parse(in);
  const std::pair<int, std::string> cases[] = {{3, "What is 2+2?"}, {4, "Count from 1 to 10."}};
  for (const auto& [index, content] : cases) {
    const ChatMessage user{"user", content};
    const std::string text = FormatChatMl({&user, 1}, *system);
    EXPECT_EQ(text, prompts.at(index).at("prompt").get<std::string>());
    EXPECT_EQ((*tokenizer)->EncodePrompt(text, true),
              prompts.at(index).at("prompt_ids").get<std::vector<Token>>());
  }
}

}  // namespace
}  // namespace tandem
