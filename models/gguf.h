// Reader of GGUF v3 files (little endian), memory-mapped.
//
// Opening reads the header, the metadata and the tensor list, and checks every count, length,
// offset and type against the file's size before anything is allocated or believed; tensor data
// is not touched. Source: the GGUF specification of the ggml project.
//
// Errors are one line with the file's name, and where in the file (byte offset, key or tensor)
// it is wrong. A GgufFile is immutable and may be read from any number of threads; it is kept
// alive by the constants taken from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/result.h"

namespace tandem {

class GgufFile {
 public:
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  ~GgufFile();

  const std::string& path() const;
  int64_t bytes() const;

  // Metadata. Has() says whether there is such a key. The getters give kNotFound where it is
  // absent and kInvalid where it has another type; integers of any width are converted when the
  // value fits, booleans are not integers.
  bool Has(std::string_view key) const;
  Result<int64_t> Integer(std::string_view key) const;
  Result<double> Real(std::string_view key) const;  // F32, F64 or an integer.
  Result<bool> Boolean(std::string_view key) const;
  Result<std::string_view> String(std::string_view key) const;
  Result<std::vector<std::string_view>> Strings(std::string_view key) const;
  Result<std::vector<int64_t>> Integers(std::string_view key) const;
  // In file order.
  std::vector<std::string_view> Keys() const;

  // Tensors, in file order. Dimensions are outermost first (the reverse of the file's).
  std::span<const std::shared_ptr<const Constant>> tensors() const;
  std::shared_ptr<const Constant> Tensor(std::string_view name) const;  // Null if absent.

 private:
  struct Contents;
  explicit GgufFile(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace tandem
