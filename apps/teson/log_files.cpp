#include "apps/teson/log_files.h"

#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/file.h"

namespace teson::apps {
namespace {

constexpr std::int64_t kDayMs = 24LL * 60 * 60 * 1000;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;

}  // namespace

std::optional<std::int64_t> time_of_day_ms(std::string_view line) {
  constexpr std::string_view shape = "dd:dd:dd.ddd ";
  if (line.size() < shape.size()) return std::nullopt;
  std::array<std::int64_t, 9> digits{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool is_digit = line[i] >= '0' && line[i] <= '9';
    if (shape[i] == 'd' ? !is_digit : line[i] != shape[i]) return std::nullopt;
    if (is_digit) digits[count++] = line[i] - '0';
  }
  const auto two = [&](std::size_t at) { return 10 * digits[at] + digits[at + 1]; };
  const std::int64_t seconds = (two(0) * 60 + two(2)) * 60 + two(4);
  return seconds * 1000 + 10 * two(6) + digits[8];
}

LogFile::LogFile(std::string label, std::filesystem::path path)
    : label_(std::move(label)), path_(std::move(path)) {}

bool LogFile::read_on() {
  if (!file_) {
    auto opened = open_file(path_, O_RDONLY);
    if (!opened) return false;
    file_ = std::move(*opened);
  }
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kReadBytes);
  ssize_t got = -1;
  do {
    got = ::read(file_.get(), buffer_.data() + size, kReadBytes);
  } while (got < 0 && errno == EINTR);
  buffer_.resize(size + static_cast<std::size_t>(got > 0 ? got : 0));
  return got > 0;
}

const LogLine* LogFile::peek(bool cut) {
  while (!line_) {
    auto end = buffer_.find('\n', looked_at_);
    std::size_t after = end + 1;
    if (end == std::string::npos && buffer_.size() < line_bytes_max) {
      looked_at_ = buffer_.size();
      if (read_on()) continue;
      if (!cut || buffer_.empty()) return nullptr;
      end = after = buffer_.size();
    } else if (end > line_bytes_max) {  // or there is none
      end = after = line_bytes_max;
    }
    line_.emplace(LogLine{.text = buffer_.substr(0, end)});
    buffer_.erase(0, after);
    looked_at_ = 0;
    stamp(*line_);
  }
  return &*line_;
}

void LogFile::stamp(LogLine& line) {
  if (const auto time = time_of_day_ms(line.text)) {
    // Lines of several threads may stand out of their order by a little; half a day is a new one.
    if (days_ms_ + *time < last_ms_ - kDayMs / 2) days_ms_ += kDayMs;
    last_ms_ = days_ms_ + *time;
  }
  line.time_ms = last_ms_;
}

std::optional<std::size_t> next_line(std::vector<LogFile>& files, bool cut) {
  std::optional<std::size_t> next;
  std::int64_t earliest = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const LogLine* line = files[i].peek(cut);
    if (line == nullptr || (next && line->time_ms >= earliest)) continue;
    next = i;
    earliest = line->time_ms;
  }
  return next;
}

}  // namespace teson::apps
