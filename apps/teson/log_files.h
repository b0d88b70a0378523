#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::apps {

/// The milliseconds of the day that a line of the log begins with ("12:00:01.123 I worker 1 …").
std::optional<std::int64_t> time_of_day_ms(std::string_view line);

struct LogLine {
  std::string text;  ///< without its end
  /// Where it belongs among the lines of others: its stamp, or for a line without one that of the
  /// line before, in milliseconds; a day more where the stamps of a file begin anew.
  std::int64_t time_ms = 0;
};

/// One log, read line by line as it grows. Holds one line of it, of at most line_bytes_max bytes; a
/// longer one is given in pieces. One thread.
class LogFile {
 public:
  static constexpr std::size_t line_bytes_max = std::size_t{64} << 10;

  /// It need not be there yet.
  LogFile(std::string label, std::filesystem::path path);

  /// Whose it is: "0", "lighthouse".
  const std::string& label() const { return label_; }
  /// The next line, if it is there; `cut`: also one without its end. It stays until pop().
  const LogLine* peek(bool cut);
  void pop() { line_.reset(); }

 private:
  /// Whether there was more to read.
  bool read_on();
  void stamp(LogLine& line);

  std::string label_;
  std::filesystem::path path_;
  Fd file_;
  std::string buffer_;         ///< what was read and not yet given
  std::size_t looked_at_ = 0;  ///< of it, without a line end
  std::optional<LogLine> line_;
  std::int64_t last_ms_ = 0;
  std::int64_t days_ms_ = 0;
};

/// The next line of all files, by time, and whose it is: its place in `files`. Nothing if no file
/// has one now.
std::optional<std::size_t> next_line(std::vector<LogFile>& files, bool cut);

}  // namespace teson::apps
