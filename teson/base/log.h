#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace teson {

enum class LogLevel { debug, info, warning, error };

/// Where log lines go: standard error, one line an event: "12:00:01.123 I lighthouse  quorum:
/// epoch 4 started". `program` names the process in each line ("worker 1"). Call once, from main,
/// before threads start.
void log_start(std::string program, LogLevel level);
LogLevel log_level();
/// Threads: any. Lines are whole, never interleaved.
void log_line(LogLevel level, std::string_view area, std::string_view text);

/// `log_info("quorum", "epoch {} started with {} members", epoch, count);` Never log secrets.
template <typename... Args>
void log_debug(std::string_view area, fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::debug)
    log_line(LogLevel::debug, area, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(std::string_view area, fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::info)
    log_line(LogLevel::info, area, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(std::string_view area, fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::warning)
    log_line(LogLevel::warning, area, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(std::string_view area, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, area, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace teson
