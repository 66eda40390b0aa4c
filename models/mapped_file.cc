#include "models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tandem {
namespace {

std::string SystemMessage(int error) { return std::generic_category().message(error); }

// Closes on every way out; a mapping stays valid without its descriptor.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return Fail(ErrorCode::kInvalid, "{}: a file name can not hold a zero byte", Printable(path));
  }
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const int error = errno;
    const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalid;
    return Fail(code, "{}: can not be opened: {}", Printable(path), SystemMessage(error));
  }
  struct stat status;
  if (fstat(file.fd, &status) != 0) {
    return Fail(ErrorCode::kInvalid, "{}: can not be examined: {}", Printable(path),
                SystemMessage(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    return Fail(ErrorCode::kInvalid, "{}: is a directory, not a file", Printable(path));
  }
  if (!S_ISREG(status.st_mode)) {
    return Fail(ErrorCode::kInvalid, "{}: is not a regular file", Printable(path));
  }
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  if (status.st_size == 0) return mapped;
  void* data = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    return Fail(ErrorCode::kInvalid, "{}: {} bytes can not be mapped: {}", Printable(path),
                status.st_size, SystemMessage(errno));
  }
  mapped->data_ = static_cast<const std::byte*>(data);
  mapped->size_ = status.st_size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

std::string Printable(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const unsigned char c : text.substr(0, kLongest)) {
    if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  if (text.size() > kLongest) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

}  // namespace tandem
