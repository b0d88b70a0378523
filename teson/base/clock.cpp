#include "teson/base/clock.h"

namespace teson {

Instant SystemClock::now() const {
  return std::chrono::steady_clock::now();
}

std::int64_t SystemClock::wall_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace teson
