#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "teson/base/error.h"
#include "teson/quorum/broken_rules.h"
#include "teson/quorum/protocol.h"
#include "teson/quorum/record.h"
#include "teson/quorum/vote.h"

namespace teson::quorum {

/// What the step loop has to do to enter an epoch. In this order: apply, then forget or keep, then
/// catch up, then steps.
struct StartOrder {
  EpochRecord record;
  int rank = 0;  ///< in record.members
  /// The prepared step (record.base_step, or the one before it) was committed by a record: apply
  /// its gradient with `outcome` first.
  bool apply_prepared = false;
  Outcome outcome;
  /// Lane gradients and final tiles of the interrupted step are worthless: forget them. Otherwise
  /// those that the record lists are kept.
  bool discard = false;
  /// This rank gets the state of base_step from donor_of(record, rank), then calls set_level.
  bool learner = false;
};

/// One rank's side of the step protocol: a pure state machine, without I/O and without a clock.
/// Promises live and die with the process. One thread at a time. Calls that name an epoch are
/// refused with `aborted` once a newer epoch was promised (or is active): the caller stops what it
/// does and waits for the next StartOrder. Source: the epoch change is one round of Paxos-like
/// promise, status, durable record, start, with unanimous votes in between.
class MemberState {
 public:
  /// `has_state`: holds the state after `step` with chain H_step (step 0: fresh, the chain then
  /// identifies the initial weights).
  MemberState(MemberId id, bool has_state, std::int64_t step, std::uint64_t chain,
              const BrokenRules& broken = {});

  // From the lighthouse.

  /// A newer epoch is being formed. Promises it: from here on nothing is committed, voted or held
  /// below `fence.epoch`. If fence.record has this rank and was not applied, it is applied first.
  /// Returns the answer, or nothing if the fence is older than what was promised. The caller aborts
  /// communicators before it sends the answer. Error: as on_start.
  Result<std::optional<Status>> on_fence(const Fence& fence);
  /// A record that has this rank and is not older than the promise is applied: true. Anything else
  /// is ignored: false. `invalid`: the record contradicts what this rank has committed, which no
  /// lighthouse with its record may say: end the process.
  Result<bool> on_start(const EpochRecord& record);
  /// The order for the active epoch, if it was not taken yet and no newer epoch is promised.
  std::optional<StartOrder> take_order();

  // From the step loop.

  /// A learner has received the state of the active epoch's base step. `invalid` if step or chain
  /// are not those of the record.
  Result<void> set_level(std::int64_t epoch, std::int64_t step, std::uint64_t chain);
  /// Work on `step` begins; it must be step() + 1. What is held of it already (after a go_on)
  /// stays.
  Result<void> begin_step(std::int64_t epoch, std::int64_t step);
  /// The computation of a lane begins: from here on this rank will contribute it, in later epochs
  /// too. Idempotent.
  Result<void> hold_lane(std::int64_t epoch, std::int32_t lane);
  /// A tile of the sum is final here. Idempotent. After `aborted` the tile does not count as final.
  Result<void> hold_final(std::int64_t epoch, std::size_t tile);
  /// Everything is final: this rank may send its vote if this returns well, and keeps the gradient
  /// until commit or a StartOrder.
  Result<void> prepare(const Vote& vote);
  /// All votes agreed. On success the step is committed here and must be applied, whatever comes.
  /// On `aborted` the next StartOrder says what became of it.
  Result<void> commit(std::int64_t epoch, const Outcome& outcome);
  /// This rank takes part in nothing any more.
  void leave();

  MemberId id() const { return id_; }
  bool has_state() const { return has_state_; }
  std::int64_t step() const { return step_; }  ///< c: the newest committed step
  std::uint64_t chain() const { return chain_; }
  std::int64_t active() const { return active_ ? active_->epoch : 0; }
  std::int64_t promised() const { return promised_; }
  bool left() const { return left_; }
  const std::optional<EpochRecord>& record() const { return active_; }
  /// The vote cast in the active epoch for step() + 1.
  const std::optional<Vote>& vote() const { return vote_; }
  /// What a FENCE would be answered with now.
  Status status() const;

 private:
  Result<void> check_epoch(std::int64_t epoch, const char* doing) const;
  Result<void> apply(const EpochRecord& record);
  void advance(const Outcome& outcome);
  void forget_step();

  MemberId id_;
  BrokenRules broken_;
  bool has_state_ = false;
  bool left_ = false;
  std::int64_t step_ = 0;
  std::uint64_t chain_ = 0;
  Outcome last_outcome_;
  std::int64_t promised_ = 0;
  std::optional<EpochRecord> active_;
  std::set<std::int32_t> lanes_held_;
  std::vector<std::uint8_t> tiles_final_;
  std::optional<Vote> vote_;
  /// Committed by a record, not yet handed to the step loop.
  std::optional<Outcome> unapplied_;
  bool order_ready_ = false;
  bool order_discard_ = false;
};

}  // namespace teson::quorum
