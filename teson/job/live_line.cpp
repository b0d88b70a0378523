#include "teson/job/live_line.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "teson/job/text_width.h"

namespace teson::job {
namespace {

constexpr std::size_t kColumnsDefault = 80;
constexpr std::size_t kColumnsMin = 10;
constexpr std::size_t kPlainColumns = 200;

}  // namespace

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds > 1e9) return "over 30 years";
  const auto total = std::llround(seconds);
  const auto days = total / 86'400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  const struct {
    double unit;
    const char* letter;
  } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : units) {
    if (count < unit * 0.9995) continue;
    const double part = count / unit;
    return fmt::format("{:.{}f}{}", part, part < 9.995 ? 2 : part < 99.95 ? 1 : 0, letter);
  }
  return fmt::format("{:.0f}", count);
}

std::string format_progress(const Progress& progress, std::size_t columns) {
  struct Part {
    int importance;
    std::string text;
  };
  std::vector<Part> parts = {{9, fmt::format("step {}/{}", progress.step, progress.steps)}};
  if (progress.loss) {
    parts.push_back({8, std::isfinite(*progress.loss) ? fmt::format("loss {:.4f}", *progress.loss)
                                                      : "loss not finite"});
  }
  parts.push_back({5, fmt::format("{} tok/s", format_count(progress.tokens_per_s))});
  parts.push_back({7, fmt::format("replicas {}/{}", progress.replicas_alive, progress.replicas)});
  parts.push_back({4, fmt::format("failures {}", progress.failures)});
  if (progress.seconds_left)
    parts.push_back({6, fmt::format("left {}", format_seconds(*progress.seconds_left))});
  if (!progress.note.empty()) parts.push_back({3, printable(progress.note)});
  while (true) {
    std::string line;
    std::size_t least = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      line += (i == 0 ? "" : "  ") + parts[i].text;
      if (parts[i].importance < parts[least].importance) least = i;
    }
    if (display_width(line) <= columns || parts.size() == 1)
      return truncate_to_width(line, columns);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(least));
  }
}

bool LiveLine::is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  return ::isatty(fd) == 1 && kind != nullptr && std::string_view(kind) != "dumb" && *kind != '\0';
}

std::size_t LiveLine::columns() const {
  if (options_.columns > 0) return options_.columns;
  struct winsize size{};
  if (::ioctl(options_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= kColumnsMin)
    return size.ws_col;
  return kColumnsDefault;
}

void LiveLine::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(options_.fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void LiveLine::draw(const Progress& progress) {
  if (options_.terminal) {
    // One column stays free: in the last one some terminals wrap at once.
    write("\r\x1b[K" + format_progress(progress, columns() - 1));
    visible_ = true;
  } else {
    write(format_progress(progress, kPlainColumns) + "\n");
  }
  drawn_ = clock_.now();
  drawn_step_ = progress.step;
  pending_.reset();
}

void LiveLine::update(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  const Duration interval =
      options_.terminal ? options_.terminal_interval : options_.plain_interval;
  const bool early = drawn_ && clock_.now() - *drawn_ < interval;
  const bool same = !options_.terminal && progress.step == drawn_step_;
  if (early || same) {
    pending_ = same ? std::nullopt : std::optional(progress);
    return;
  }
  draw(progress);
}

void LiveLine::update_now(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  draw(progress);
}

void LiveLine::message(std::string_view text) {
  const std::lock_guard lock(mutex_);
  write((visible_ ? "\r\x1b[K" : "") + printable(text) + "\n");
  visible_ = false;
  pending_.reset();
  if (options_.terminal) drawn_.reset();
}

void LiveLine::finish() {
  const std::lock_guard lock(mutex_);
  if (visible_) write("\r\x1b[K");
  visible_ = false;
  if (pending_ && !options_.terminal) draw(*pending_);
  pending_.reset();
  drawn_.reset();
}

}  // namespace teson::job
