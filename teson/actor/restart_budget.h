#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "teson/base/clock.h"

namespace teson::actor {

struct RestartPolicy {
  std::size_t restarts_max = 5;  ///< restarts of one rank within the window; one more: give up
  Duration window = std::chrono::seconds(60);  ///< restarts longer ago than this are forgotten
  Duration backoff_first = std::chrono::milliseconds(
      200);  ///< before the second restart in a window; doubles from there
  Duration backoff_max = std::chrono::seconds(10);
  double jitter = 0.25;    ///< each back-off is stretched by a factor in [1, 1 + jitter), so that
                           ///< many do not restart at once
  std::uint64_t seed = 0;  ///< of the jitter
};

/// One-for-one supervision as arithmetic: when may a rank that has died be started again? The first
/// time at once, then after growing delays, and not at all once its budget is spent. Ranks do not
/// count against each other. Pure but for the clock it is given; one thread.
class RestartBudget {
 public:
  RestartBudget(RestartPolicy policy, const Clock& clock) : policy_(policy), clock_(clock) {}

  /// A rank has died: how long to wait before the restart, which is counted as of now. Nothing: the
  /// budget is spent, give up and say so.
  std::optional<Duration> next(std::size_t rank);
  /// Restarts of a rank that still count.
  std::size_t used(std::size_t rank);

 private:
  std::deque<Instant>& recent(std::size_t rank);

  RestartPolicy policy_;
  const Clock& clock_;
  std::map<std::size_t, std::deque<Instant>>
      restarts_;  ///< per rank, at most restarts_max instants
  std::uint64_t draws_ = 0;
};

}  // namespace teson::actor
