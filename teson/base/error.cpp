#include "teson/base/error.h"

#include <cerrno>
#include <cstring>

namespace teson {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::failed:
      return "failed";
    case ErrorKind::timed_out:
      return "timed_out";
    case ErrorKind::disconnected:
      return "disconnected";
    case ErrorKind::aborted:
      return "aborted";
    case ErrorKind::overloaded:
      return "overloaded";
    case ErrorKind::unimplemented:
      return "unimplemented";
  }
  return "unknown";
}

Error Error::in(std::string_view context) const {
  return Error{kind, std::string(context) + ": " + message};
}

std::string Error::describe() const {
  return std::string(to_string(kind)) + ": " + message;
}

namespace {

ErrorKind kind_of_errno(int number) {
  switch (number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
      return ErrorKind::disconnected;
    case ETIMEDOUT:
      return ErrorKind::timed_out;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
      return ErrorKind::overloaded;
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return ErrorKind::invalid;
    default:
      return ErrorKind::failed;
  }
}

std::string_view advice_for_errno(int number) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
      return " (free some space, or choose another folder)";
    case EMFILE:
      return " (raise the limit of open files: ulimit -n)";
    case EISDIR:
      return " (a folder is in its place: move it out of the way)";
    case ELOOP:
      return " (a symbolic link leads back to itself)";
    case EADDRINUSE:
      return " (another program listens there: stop it, or choose another port)";
    case EACCES:
    case EPERM:
    case EROFS:
      return " (check who owns it and whether it is writable)";
    default:
      return "";
  }
}

}  // namespace

Failure fail_errno(std::string_view what, int error_number) {
  std::string message(what);
  message += ": ";
  message += std::strerror(error_number);
  message += advice_for_errno(error_number);
  return fail(kind_of_errno(error_number), std::move(message));
}

}  // namespace teson
