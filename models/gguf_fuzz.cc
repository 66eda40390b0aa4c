// Opens arbitrary bytes as a model file and reads all that can be read of it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "models/chat.h"
#include "models/gguf.h"
#include "models/llama.h"
#include "models/tokenizer.h"

namespace tandem {
namespace {

void ReadEverything(const GgufFile& file) {
  size_t sum = 0;
  for (const std::string_view key : file.Keys()) {
    if (const auto v = file.Integer(key)) sum += *v;
    if (const auto v = file.Real(key)) sum += *v > 0;
    if (const auto v = file.Boolean(key)) sum += *v;
    if (const auto v = file.String(key)) sum = std::accumulate(v->begin(), v->end(), sum);
    if (const auto v = file.Strings(key)) {
      for (const std::string_view text : *v) sum = std::accumulate(text.begin(), text.end(), sum);
    }
    if (const auto v = file.Integers(key)) {
      for (const int64_t number : *v) sum += number;
    }
  }
  for (const auto& tensor : file.tensors()) {
    for (int64_t i = 0; i < tensor->Bytes(); ++i) sum += static_cast<size_t>(tensor->data[i]);
  }
  if (const auto tokenizer = Tokenizer::FromGguf(file)) {
    const std::string text = "a <|im_start|>b\n\xff 12";
    const auto tokens = (*tokenizer)->EncodePrompt(text, true);
    sum += (*tokenizer)->Decode(tokens, true).size();
  }
  if (const auto system = ChatMlDefaultSystem(file)) sum += system->size();
  const auto llama = BuildLlama(file, {.context = 64, .max_tokens = 8});
  sum += llama.has_value();
  // Keeps the reads above from being dropped.
  if (sum == SIZE_MAX) std::puts("unlikely");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("model", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  const auto file = tandem::GgufFile::Open("/proc/self/fd/" + std::to_string(fd));
  if (file) tandem::ReadEverything(**file);
  close(fd);
  return 0;
}
