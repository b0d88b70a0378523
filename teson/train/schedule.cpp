#include "teson/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace teson::train {

double learning_rate(const job::OptimizerSection& optimizer, std::int64_t step,
                     std::int64_t steps) {
  const double peak = optimizer.learning_rate;
  const double ratio = optimizer.min_ratio;
  const std::int64_t warmup = optimizer.warmup_steps;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);

  if (optimizer.schedule == job::ScheduleKind::wsd) {
    const std::int64_t decay = optimizer.decay_steps;
    const std::int64_t into = std::min(step + 1 - (steps - decay), decay);
    if (decay == 0 || into <= 0) return peak;
    return peak * (1.0 - (1.0 - ratio) * static_cast<double>(into) / static_cast<double>(decay));
  }
  const std::int64_t decay = optimizer.decay_steps > 0 ? optimizer.decay_steps : steps - warmup;
  if (step + 1 - warmup >= decay) return peak * ratio;
  const double part = static_cast<double>(step + 1 - warmup) / static_cast<double>(decay);
  return peak * (ratio + (1.0 - ratio) * 0.5 * (1.0 + std::cos(std::numbers::pi * part)));
}

}  // namespace teson::train
