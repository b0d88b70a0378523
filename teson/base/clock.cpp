#include "teson/base/clock.h"

#include "teson/base/world.h"

namespace teson {

Instant now() {
  World* const world = World::current();
  return world == nullptr ? std::chrono::steady_clock::now() : world->now();
}

Instant SystemClock::now() const {
  return teson::now();
}

std::int64_t SystemClock::wall_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace teson
