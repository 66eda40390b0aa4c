// Errors as values.
//
// Whatever can fail returns Result<T>. An error says in one line what is wrong and where:
// it names the tensor, op, device, file and bytes that are involved, so that it can be shown
// to a user as it is. Exceptions stop at the border of the library that threw them.
//
//   Result<Graph> Load(...) {
//     if (rank > kMaxRank) return Fail(ErrorCode::kInvalid, "tensor {}: rank {} ...", name, rank);
//     TANDEM_ASSIGN(Shape shape, InferShape(...));   // Returns the error, or goes on.
//     TANDEM_CHECK(builder.Validate());              // The same for Result<void>.
//   }
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tandem {

enum class ErrorCode {
  kInvalid,      // The caller's input is wrong: a shape, a name, a file, an option.
  kNotFound,     // A named thing is not there.
  kUnsupported,  // It is well-formed, but nothing here can do it; the message says why.
  kOutOfMemory,  // A memory or a stated budget is too small; the message has the bytes.
  kUndefined,    // A state is read whose contents a failed run left undefined.
  kDevice,       // A device reported a failure.
  kCancelled,    // The caller asked to stop.
  kInternal,     // A plan did not pass its validator: a bug in Tandem.
};

struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

// Makes an error from a format string; converts to any Result<T>.
template <class... Args>
tl::unexpected<Error> Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace tandem

#define TANDEM_CONCAT_(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_(a, b)

#define TANDEM_CHECK(expression)                                                \
  do {                                                                          \
    if (auto tandem_result = (expression); !tandem_result)                      \
      return tl::unexpected<::tandem::Error>(std::move(tandem_result).error()); \
  } while (false)

#define TANDEM_ASSIGN(declaration, expression)                       \
  auto TANDEM_CONCAT(tandem_result_, __LINE__) = (expression);       \
  if (!TANDEM_CONCAT(tandem_result_, __LINE__))                      \
    return tl::unexpected<::tandem::Error>(                          \
        std::move(TANDEM_CONCAT(tandem_result_, __LINE__)).error()); \
  declaration = std::move(*TANDEM_CONCAT(tandem_result_, __LINE__))
