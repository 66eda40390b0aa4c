// A whole file as read-only memory.
//
// Mapping touches no page; what is read is read on demand by the system. The file must not be
// shortened while it is mapped (the system then stops the process at the next access).
//
// Immutable, any number of threads. Errors name the file and what the system said.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "graph/result.h"

namespace tandem {

class MappedFile {
 public:
  // Regular files only: a directory, a pipe or a device is refused without waiting for it.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Begins at a page; empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Text from a file as it may stand in a message of one line: bytes that do not print become
// \xNN, and what is longer than 120 bytes is cut.
std::string Printable(std::string_view text);

}  // namespace tandem
