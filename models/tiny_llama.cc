#include "models/tiny_llama.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "models/byte_pairs.h"
#include "models/utf8.h"

namespace tandem {
namespace {

class RandomTensors {
 public:
  RandomTensors(GgufWriter* writer, uint64_t seed) : writer_(writer), random_(seed) {}

  void Matrix(const std::string& name, Type type, int64_t rows, int64_t columns) {
    Add(name, type, {rows, columns}, 0, 1 / std::sqrt(static_cast<double>(columns)));
  }
  void Vector(const std::string& name, int64_t size, double mean, double deviation) {
    Add(name, Type::kF32, {size}, mean, deviation);
  }

 private:
  void Add(const std::string& name, Type type, const std::vector<int64_t>& dims, double mean,
           double deviation) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::normal_distribution<double> normal(mean, deviation);
    std::vector<double> values(count);
    for (double& value : values) value = normal(random_);
    const TypeInfo& info = Info(type);
    std::string bytes(BytesOf(type, count), '\0');
    info.encode(values.data(), count / info.block_elements,
                reinterpret_cast<std::byte*>(bytes.data()));
    writer_->Tensor(name, type, dims, bytes);
  }

  GgufWriter* writer_;
  std::mt19937_64 random_;
};

}  // namespace

std::vector<std::string> TinyTokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), &tokens.emplace_back());
  }
  tokens.insert(tokens.end(), {"th", "the", "<|im_start|>", "<|im_end|>"});
  while (static_cast<int64_t>(tokens.size()) < kTinyVocabulary) {
    tokens.push_back("[unused" + std::to_string(tokens.size()) + "]");
  }
  return tokens;
}

void WriteTinyTokenizer(GgufWriter* writer, const std::string& pre) {
  const std::vector<std::string> tokens = TinyTokens();
  std::vector<int32_t> kinds(tokens.size(), 5);
  std::fill(kinds.begin(), kinds.begin() + 258, 1);
  kinds[258] = kinds[259] = 3;
  writer->String("tokenizer.ggml.model", "gpt2");
  writer->String("tokenizer.ggml.pre", pre);
  writer->Strings("tokenizer.ggml.tokens", tokens);
  writer->I32s("tokenizer.ggml.token_type", kinds);
  writer->Strings("tokenizer.ggml.merges", {"t h", "th e"});
  writer->U32("tokenizer.ggml.bos_token_id", 258);
  writer->U32("tokenizer.ggml.eos_token_id", 259);
  writer->String("tokenizer.chat_template",
                 "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
                 "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

GgufWriter WriteTinyLlama(const TinyLlama& model) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  const auto size = [&](const char* key, int64_t value) {
    writer.U32(std::string("llama.") + key, static_cast<uint32_t>(value));
  };
  size("block_count", model.layers);
  size("context_length", model.trained_context);
  size("embedding_length", model.width);
  size("feed_forward_length", model.feed_forward);
  size("attention.head_count", model.heads);
  size("attention.head_count_kv", model.kv_heads);
  if (model.head_width != model.width / model.heads ||
      model.value_width != model.head_width) {  // Else it follows from the others.
    size("attention.key_length", model.head_width);
    size("attention.value_length", model.value_width);
  }
  size("rope.dimension_count", model.rope_dims);
  size("vocab_size", kTinyVocabulary);
  writer.F32("llama.rope.freq_base", static_cast<float>(model.rope_base));
  if (model.rope_factor != 1) {
    writer.String("llama.rope.scaling.type", "linear");
    writer.F32("llama.rope.scaling.factor", static_cast<float>(model.rope_factor));
  }
  writer.F32("llama.attention.layer_norm_rms_epsilon", static_cast<float>(model.norm_epsilon));
  WriteTinyTokenizer(&writer);

  RandomTensors tensors(&writer, model.seed);
  tensors.Matrix("token_embd.weight", model.embedding, kTinyVocabulary, model.width);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
      tensors.Matrix(prefix + name + ".weight", model.matrices, out, in);
      if (bias) tensors.Vector(prefix + name + ".bias", out, 0, 0.5);
    };
    tensors.Vector(prefix + "attn_norm.weight", model.width, 1, 0.2);
    linear("attn_q", model.heads * model.head_width, model.width, model.biases);
    linear("attn_k", model.kv_heads * model.head_width, model.width, model.biases);
    linear("attn_v", model.kv_heads * model.value_width, model.width, model.biases);
    linear("attn_output", model.width, model.heads * model.value_width, model.biases);
    tensors.Vector(prefix + "ffn_norm.weight", model.width, 1, 0.2);
    linear("ffn_gate", model.feed_forward, model.width, false);
    linear("ffn_up", model.feed_forward, model.width, false);
    linear("ffn_down", model.width, model.feed_forward, false);
  }
  tensors.Vector("output_norm.weight", model.width, 1, 0.2);
  if (!model.tied) {
    tensors.Matrix("output.weight", model.matrices, kTinyVocabulary, model.width);
  }
  if (model.rope_factors) tensors.Vector("rope_freqs.weight", model.rope_dims / 2, 4, 0.5);
  return writer;
}

}  // namespace tandem
