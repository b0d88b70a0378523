#pragma once

#include <cstdint>

#include "teson/base/clock.h"
#include "teson/base/random.h"

namespace teson::sim {

/// Uniform from 0 to `most`, both included.
inline Duration draw(CounterRandom& random, Duration most) {
  const auto bound = static_cast<std::uint64_t>(most.count()) + 1;
  return Duration(static_cast<std::int64_t>(random.below(bound)));
}

}  // namespace teson::sim
