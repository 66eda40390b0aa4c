// Makes GGUF files in memory, for tests: right ones, and wrong ones on purpose.
//
//   GgufWriter w;
//   w.String("general.architecture", "llama");
//   w.Tensor("output_norm.weight", Type::kF32, {576}, bytes);
//   TemporaryFile file(w.Bytes());
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "graph/types.h"

namespace tandem {

class GgufWriter {
 public:
  int64_t alignment = 32;  // Of the data; written as a key where it is another.
  uint32_t version = 3;

  void U8(std::string_view key, uint8_t value) { Scalar(key, 0, value); }
  void U32(std::string_view key, uint32_t value) { Scalar(key, 4, value); }
  void I32(std::string_view key, int32_t value) { Scalar(key, 5, value); }
  void F32(std::string_view key, float value) { Scalar(key, 6, value); }
  void Bool(std::string_view key, bool value) { Scalar<uint8_t>(key, 7, value); }
  void U64(std::string_view key, uint64_t value) { Scalar(key, 10, value); }
  void I64(std::string_view key, int64_t value) { Scalar(key, 11, value); }
  void F64(std::string_view key, double value) { Scalar(key, 12, value); }
  void String(std::string_view key, std::string_view value) { Raw(key, 8, Text(value)); }
  void Strings(std::string_view key, const std::vector<std::string>& values);
  void I32s(std::string_view key, const std::vector<int32_t>& values);
  // A value of any type number, as it stands in the file.
  void Raw(std::string_view key, uint32_t type, std::string_view bytes);

  // Dimensions outermost first. The data are placed behind those of the tensor before.
  void Tensor(std::string_view name, Type type, const std::vector<int64_t>& dims,
              std::string_view data);
  // The entry as it stands in the file, with data of its own choosing.
  void RawTensor(std::string_view name, const std::vector<uint64_t>& file_dims, uint32_t type,
                 uint64_t offset, std::string_view data = {});

  std::string Bytes() const;

  template <class T>
  static std::string Number(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string Text(std::string_view text) {
    return Number<uint64_t>(text.size()).append(text);
  }

 private:
  template <class T>
  void Scalar(std::string_view key, uint32_t type, T value) {
    Raw(key, type, Number(value));
  }
  uint64_t Place(std::string_view data);

  uint64_t keys_ = 0, tensors_ = 0;
  std::string key_bytes_, tensor_bytes_, data_;
};

// A file with these bytes that is gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem
