#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "teson/base/clock.h"
#include "teson/quorum/broken_rules.h"
#include "teson/quorum/protocol.h"
#include "teson/quorum/record.h"

namespace teson::quorum {

/// Every bound of the protocol, derived from the one number h, the heartbeat interval. There are no
/// other timeouts but hang_floor.
struct Bounds {
  Duration heartbeat = std::chrono::milliseconds(100);
  /// A member that computes without progress is suspected of a hang no sooner than this (its first
  /// steps may be slow).
  Duration hang_floor = std::chrono::seconds(2);

  Duration silent() const { return 10 * heartbeat; }  ///< no message for so long: expelled
  Duration answer() const {
    return 5 * heartbeat;
  }  ///< STATUS after FENCE; return of members after a lighthouse's restart
  Duration reconnect() const {
    return 2 * heartbeat;
  }  ///< return after a broken link; proof after a peer's report
  Duration coalesce() const {
    return heartbeat;
  }  ///< how long joiners wait for others to join with them
  Duration forming_grace() const {
    return 50 * heartbeat;
  }  ///< how long a new job waits for the rest once it has min_replicas
  /// No progress in `phase` for so long is a hang if everybody else waits. `longest`: between two
  /// signs of progress, ever, in this job.
  Duration hang(Phase phase, Duration longest) const;
};

/// One member's answer to a FENCE.
struct Answer {
  Member member;  ///< id, addresses; the rest is filled here
  Status status;
};

/// What the answers to a FENCE come to.
struct NewRecord {
  EpochRecord record;
};
/// No living member may carry the history on (no insider).
struct NoInsider {};
/// First record of an incarnation: nobody has a state at all.
struct NoState {};
/// First record of an incarnation: equal step, other chain; these are refused. The text is for
/// people.
struct Conflict {
  std::vector<std::uint64_t> instances;
  std::string text;
  std::uint64_t chain_expected = 0;
  std::uint64_t chain_found = 0;
};
using Decision = std::variant<NewRecord, NoInsider, NoState, Conflict>;

/// What does not come from the answers.
struct Proposal {
  std::string job;
  std::uint64_t plan_hash = 0;
  std::int64_t epoch = 0;
  Mode mode = Mode::exact;
  std::int32_t lanes_total = 0;
  std::int32_t replicas_expected = 0;
};

/// The record after `parent`, from the answers of members that promised `proposal.epoch`: base,
/// verdict, who is an insider, who a learner, what is held, and the weights. Pure. Answers of any
/// order; each instance once.
Decision decide_next(const EpochRecord& parent, const Proposal& proposal,
                     std::vector<Answer> answers, const BrokenRules& broken = {});

/// The first record of incarnation `incarnation`: the highest step wins, lower ones are learners.
/// `parent_epoch`: that of the last record of the incarnation before, or 0.
Decision decide_first(std::int64_t parent_epoch, std::uint64_t incarnation,
                      const Proposal& proposal, std::vector<Answer> answers);

}  // namespace teson::quorum
