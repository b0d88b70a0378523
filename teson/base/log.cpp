#include "teson/base/log.h"

#include <atomic>
#include <memory>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace teson {
namespace {

std::atomic<LogLevel> current_level{LogLevel::warning};

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("teson",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %L %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void log_start(std::string program, LogLevel level) {
  current_level = level;
  logger().set_pattern("%H:%M:%S.%e %L " + program + "  %v");
}

LogLevel log_level() {
  return current_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view area, std::string_view text) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                         spdlog::level::warn, spdlog::level::err};
  logger().log(levels[static_cast<int>(level)], "{}: {}", area, text);
  logger().flush();
}

}  // namespace teson
