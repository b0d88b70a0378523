#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "teson/base/clock.h"

namespace teson::job {

struct Progress {
  std::int64_t step = 0, steps = 0;
  std::optional<double> loss;
  double tokens_per_s = 0;
  int replicas_alive = 0, replicas = 0;
  int failures = 0;
  std::optional<double> seconds_left;
  std::string note;  ///< "replica 1 is coming back"; may be empty
};

/// One line of at most `columns`: "step 120/400  loss 5.8312  21.4k tok/s  replicas 2/3  failures 1
/// left 0:42". Parts that do not fit are dropped from the least important on; what is left is cut.
std::string format_progress(const Progress& progress, std::size_t columns);

/// "0:42", "12:03", "3:05:09", "2d 04:00"
std::string format_seconds(double seconds);
/// "812", "21.4k", "3.21M"
std::string format_count(double count);

/// Progress on a file descriptor, usually standard error. On a terminal one line that is rewritten
/// in place, at most once in `terminal_interval`; else plain lines, at most one in `plain_interval`
/// and only if the step changed. The width is asked for at each drawing, so a resized window is
/// followed. Write errors are ignored: progress is never a reason to stop. Threads: any.
class LiveLine {
 public:
  struct Options {
    int fd = 2;
    bool terminal = false;
    std::size_t columns = 0;  ///< 0: ask the terminal; 80 if it does not say
    Duration terminal_interval = std::chrono::milliseconds(100);
    Duration plain_interval = std::chrono::seconds(5);
  };
  /// The clock outlives it.
  LiveLine(const Clock& clock, Options options) : clock_(clock), options_(options) {}
  ~LiveLine() { finish(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Whether `fd` is a terminal that understands control sequences.
  static bool is_terminal(int fd);

  /// Drops the update if the last one was drawn less than the interval ago.
  void update(const Progress& progress);
  /// Draws at once.
  void update_now(const Progress& progress);
  /// A line of text that stays, above the live line. A dropped update is forgotten: it is older
  /// than the text.
  void message(std::string_view text);
  /// Clears the live line; on a plain output writes the last update if it was dropped. Later
  /// updates start anew.
  void finish();

 private:
  std::size_t columns() const;
  void draw(const Progress& progress);
  void write(std::string_view text) const;

  const Clock& clock_;
  const Options options_;
  std::mutex mutex_;
  bool visible_ = false;  ///< a live line stands on the terminal
  std::optional<Instant> drawn_;
  std::int64_t drawn_step_ = -1;
  std::optional<Progress> pending_;
};

}  // namespace teson::job
