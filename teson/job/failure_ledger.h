#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "teson/base/clock.h"

namespace teson::job {

/// One failure of one replica, with how long each phase took. A phase that has not ended, or whose
/// beginning is unknown, is unset.
struct FailureRow {
  int replica = 0;
  std::string cause;
  std::int64_t step = 0;  ///< the last step committed when it was detected
  bool injected = false;
  Instant detected{};
  std::optional<double> detect_ms;       ///< from the injection to the detection
  std::optional<double> fence_ms;        ///< detection to FENCE
  std::optional<double> reconfigure_ms;  ///< detection to the first START without the dead rank
  std::optional<double>
      commit_ms;  ///< detection to the first commit under that START or a later one
  std::optional<double> rejoin_ms;  ///< start of the replacement to its own first commit
};

/// Turns phase stamps into failure rows. Pure: no clock, no files. Stamps may come in any order
/// that processes can produce (an injection is often heard of after the death it caused); failures
/// may overlap. One thread at a time.
class FailureLedger {
 public:
  /// The instant a fault was put into `replica`. Belongs to its next death, or to its newest one if
  /// that came after `at`.
  void injected(int replica, Instant at);
  /// The owner heard of the death. Hearing again of the same death (no spawn in between) changes
  /// nothing.
  void died(int replica, std::string cause, Instant at);
  /// What the death of `replica` that was heard of last really was, for when its consequence was
  /// seen before it ("link_lost").
  void cause_known(int replica, std::string cause);
  void fenced(std::uint64_t epoch, Instant at);
  /// `members`: replicas of the new epoch. A replica that died and has not been spawned again since
  /// is a member that was dead when the epoch started: that START does not count for its row.
  void started(std::uint64_t epoch, const std::vector<int>& members, Instant at);
  void committed(std::int64_t step, std::uint64_t epoch, Instant at);
  /// A replacement of `replica` was started.
  void spawned(int replica, Instant at);
  /// The replacement's first commit.
  void rejoined(int replica, Instant at);

  const std::vector<FailureRow>& rows() const { return rows_; }

 private:
  struct Progress {
    std::optional<std::uint64_t> start_epoch;
    bool replaced = false;
  };
  /// The newest row of a replica, or -1.
  int newest(int replica) const;

  std::vector<FailureRow> rows_;
  std::vector<Progress> progress_;  ///< beside rows_
  std::map<int, Instant> injections_;
  std::map<int, Instant> spawns_;
  std::int64_t step_ = 0;
};

}  // namespace teson::job
