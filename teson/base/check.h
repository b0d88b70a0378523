#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace teson::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

inline std::string check_values() {
  return {};
}
template <typename... Values>
std::string check_values(const Values&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + fmt::format("{}", values)), ...);
  return text;
}

}  // namespace teson::detail

/// A broken invariant ends the process, in release builds too, with the condition and the values
/// given. For what can happen in a healthy program, return a Result instead.
#define TESON_CHECK(condition, ...)                                              \
  do {                                                                           \
    if (!(condition)) [[unlikely]]                                               \
      ::teson::detail::check_failed(__FILE__, __LINE__, #condition,              \
                                    ::teson::detail::check_values(__VA_ARGS__)); \
  } while (false)
