#pragma once

#include <cstdint>
#include <filesystem>

#include "teson/base/clock.h"
#include "teson/job/inject.h"

namespace teson::apps {

/// Puts the faults of a plan into this process, where and when they are due, each once in the life
/// of the run.
class FaultInjector {
 public:
  /// `faults`: the run's folder of claims. The clock outlives it.
  FaultInjector(job::FaultPlan plan, std::filesystem::path faults, int replica, const Clock& clock);

  /// True if the step's gradient is to be poisoned. Does not return from kill, stop (but for a
  /// SIGCONT), segfault and hang; throws std::runtime_error for exception.
  bool operator()(std::int64_t step, job::FaultPhase phase) const;

 private:
  job::FaultPlan plan_;
  std::filesystem::path faults_;
  int replica_;
  const Clock& clock_;
};

}  // namespace teson::apps
