#pragma once

#include <chrono>
#include <cstdint>

namespace teson {

using Duration = std::chrono::nanoseconds;
/// An instant of the machine's monotonic clock, in nanoseconds. Comparable between processes of one
/// host (CLOCK_MONOTONIC).
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// What the calling thread's clock shows: the machine's, or that of a simulation (base/world.h).
Instant now();

/// Time, handed down from main so that a whole cluster can run on simulated time. Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
  /// Nanoseconds since 1970, for records that people read.
  virtual std::int64_t wall_ns() const = 0;
};

/// The machine's clocks.
class SystemClock final : public Clock {
 public:
  Instant now() const override;
  std::int64_t wall_ns() const override;
};

/// A clock that stands still until told otherwise. One thread.
class ManualClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  std::int64_t wall_ns() const override { return now_.time_since_epoch().count(); }
  void advance(Duration by) { now_ += by; }

 private:
  Instant now_{};
};

inline double to_ms(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}
inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace teson
