#pragma once

#include <cstdint>

#include "teson/job/config.h"

namespace teson::train {

/// The learning rate of step `step` (0, 1, …) of a run of `steps` steps: a pure function. With p
/// the peak, W = warmup_steps, r = min_ratio:
///   step < W:  p · (step + 1) / W, so step W - 1 has the peak.
///   cosine:    p · (r + (1 - r) · (1 + cos(pi · t)) / 2) with t = min(1, (step + 1 - W) / D),
///              D = decay_steps, or steps - W if that is 0. The floor comes at step W + D - 1:
///              the last one if decay_steps is 0.
///   wsd:       p until the last D = decay_steps steps; their i-th (1 … D) has
///              p · (1 - (1 - r) · i / D).
/// Later steps than the last keep the last one's rate.
double learning_rate(const job::OptimizerSection& optimizer, std::int64_t step, std::int64_t steps);

}  // namespace teson::train
