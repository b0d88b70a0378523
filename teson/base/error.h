#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace teson {

/// What a caller can do about a failure. The kinds survive the wire, so their numbers never change.
enum class ErrorKind : std::uint8_t {
  invalid = 0,        ///< the request or its data is wrong; repeating it will not help
  failed = 1,         ///< the operation was tried and did not work
  timed_out = 2,      ///< a deadline passed; the outcome may be unknown
  disconnected = 3,   ///< the other side is gone
  aborted = 4,        ///< superseded: a newer epoch, a shutdown, an explicit abort
  overloaded = 5,     ///< a named bound was reached; try later
  unimplemented = 6,  ///< known, but not built
};

/// The kind as written in messages and records: "timed_out".
std::string_view to_string(ErrorKind kind);

/// A failure as a value. The message says what was expected, what was found, and what to do.
struct Error {
  ErrorKind kind = ErrorKind::failed;
  std::string message;

  /// The same failure seen from further out: "reading shard 3: unexpected end of file".
  Error in(std::string_view context) const;
  /// "timed_out: no answer from the lighthouse in 500 ms"
  std::string describe() const;
  bool operator==(const Error&) const = default;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Failure = tl::unexpected<Error>;

/// `return fail(ErrorKind::invalid, "lanes must be at least 1");`
inline Failure fail(ErrorKind kind, std::string message) {
  return Failure(Error{kind, std::move(message)});
}
inline Failure fail(Error error) {
  return Failure(std::move(error));
}

/// A failed system call as an Error: "open '/x/y': No such file or directory". ENOSPC and its like
/// name what to do; a path that can never be opened is `invalid`.
Failure fail_errno(std::string_view what, int error_number);

}  // namespace teson

#define TESON_CONCAT_(a, b) a##b
#define TESON_CONCAT(a, b) TESON_CONCAT_(a, b)

/// `TESON_TRY(auto file, open_file(path));` returns the error, or goes on with the value.
#define TESON_TRY(declaration, ...)                                              \
  auto TESON_CONCAT(result_, __LINE__) = (__VA_ARGS__);                          \
  if (!TESON_CONCAT(result_, __LINE__))                                          \
    return ::teson::Failure(std::move(TESON_CONCAT(result_, __LINE__)).error()); \
  declaration = std::move(*TESON_CONCAT(result_, __LINE__))

/// The same for Result<void>.
#define TESON_TRY_VOID(...)                                     \
  do {                                                          \
    if (auto teson_result = (__VA_ARGS__); !teson_result)       \
      return ::teson::Failure(std::move(teson_result).error()); \
  } while (false)
