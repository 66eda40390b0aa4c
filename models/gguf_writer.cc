#include "models/gguf_writer.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace tandem {

void GgufWriter::Raw(std::string_view key, uint32_t type, std::string_view bytes) {
  ++keys_;
  key_bytes_ += Text(key) + Number(type);
  key_bytes_ += bytes;
}

void GgufWriter::Strings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = Number<uint32_t>(8) + Number<uint64_t>(values.size());
  for (const std::string& value : values) bytes += Text(value);
  Raw(key, 9, bytes);
}

void GgufWriter::I32s(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = Number<uint32_t>(5) + Number<uint64_t>(values.size());
  for (const int32_t value : values) bytes += Number(value);
  Raw(key, 9, bytes);
}

uint64_t GgufWriter::Place(std::string_view data) {
  data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  const uint64_t offset = data_.size();
  data_ += data;
  return offset;
}

void GgufWriter::Tensor(std::string_view name, Type type, const std::vector<int64_t>& dims,
                        std::string_view data) {
  RawTensor(name, {dims.rbegin(), dims.rend()}, Info(type).gguf_id, Place(data));
}

void GgufWriter::RawTensor(std::string_view name, const std::vector<uint64_t>& file_dims,
                           uint32_t type, uint64_t offset, std::string_view data) {
  ++tensors_;
  tensor_bytes_ += Text(name) + Number<uint32_t>(file_dims.size());
  for (const uint64_t dim : file_dims) tensor_bytes_ += Number(dim);
  tensor_bytes_ += Number(type) + Number(offset);
  data_ += data;
}

std::string GgufWriter::Bytes() const {
  std::string keys = key_bytes_;
  uint64_t key_count = keys_;
  if (alignment != 32) {
    keys +=
        Text("general.alignment") + Number<uint32_t>(4) + Number(static_cast<uint32_t>(alignment));
    ++key_count;
  }
  std::string bytes = "GGUF" + Number(version) + Number(tensors_) + Number(key_count);
  bytes += keys + tensor_bytes_;
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes + data_;
}

TemporaryFile::TemporaryFile(std::string_view bytes) {
  std::string name = (std::filesystem::temp_directory_path() / "tandem-test-XXXXXX").string();
  const int fd = mkstemp(name.data());
  path_ = name;
  FILE* file = fd < 0 ? nullptr : fdopen(fd, "wb");
  if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
      std::fclose(file) != 0) {
    std::perror(name.c_str());
    std::exit(1);
  }
}

TemporaryFile::~TemporaryFile() { unlink(path_.c_str()); }

}  // namespace tandem
