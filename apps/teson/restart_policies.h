#pragma once

#include <chrono>
#include <cstddef>

#include "teson/actor/restart_budget.h"
#include "teson/job/config.h"

namespace teson::apps {

/// Of workers that had trained: replaced at once, within the run's budget.
inline actor::RestartPolicy run_policy(const job::Config& config) {
  actor::RestartPolicy policy;
  policy.restarts_max = static_cast<std::size_t>(config.cluster.restarts_max);
  policy.window = std::chrono::seconds(config.cluster.restart_window_s);
  policy.backoff_first = Duration::zero();
  policy.seed = config.train.seed;
  return policy;
}

/// Of processes that end before they did any work: a few times, with growing pauses.
inline actor::RestartPolicy crash_policy(std::size_t restarts_max) {
  actor::RestartPolicy policy;
  policy.restarts_max = restarts_max;
  policy.window = std::chrono::minutes(10);
  policy.backoff_first = std::chrono::milliseconds(200);
  policy.backoff_max = std::chrono::seconds(5);
  return policy;
}

}  // namespace teson::apps
