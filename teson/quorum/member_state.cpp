#include "teson/quorum/member_state.h"

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::quorum {
namespace {

/// No gradient has more tiles than this: 16 TiB of fp32 in tiles of 1 MiB.
constexpr std::size_t tiles_max = std::size_t{1} << 24;

}  // namespace

MemberState::MemberState(MemberId id, bool has_state, std::int64_t step, std::uint64_t chain,
                         const BrokenRules& broken)
    : id_(id), broken_(broken), has_state_(has_state), step_(step), chain_(chain) {
  last_outcome_.step = -1;
}

Result<std::optional<Status>> MemberState::on_fence(const Fence& fence) {
  if (left_ || fence.epoch < promised_ || fence.epoch == active()) return std::optional<Status>{};
  if (fence.record && fence.record->epoch > active() && rank_of(*fence.record, id_.instance) >= 0 &&
      !broken_.status_without_record) {
    TESON_TRY_VOID(apply(*fence.record));
  }
  promised_ = fence.epoch;
  return std::optional<Status>(status());
}

Result<bool> MemberState::on_start(const EpochRecord& record) {
  if (left_ || record.epoch < promised_ || record.epoch <= active()) return false;
  if (rank_of(record, id_.instance) < 0) return false;
  TESON_TRY_VOID(apply(record));
  promised_ = record.epoch;
  return true;
}

Result<void> MemberState::apply(const EpochRecord& record) {
  TESON_TRY_VOID(check_record(record));
  const Member& self = record.members[static_cast<std::size_t>(rank_of(record, id_.instance))];
  if (self.learner) {
    has_state_ = false;
    unapplied_.reset();
    forget_step();
  } else {
    const bool rolls_forward =
        has_state_ && step_ == record.base_step - 1 && vote_ && vote_->step == record.base_step &&
        record.base_outcome.step == record.base_step && vote_->digest == record.base_outcome.digest;
    if (rolls_forward) {
      advance(record.base_outcome);
      unapplied_ = record.base_outcome;
    }
    if (!has_state_ || step_ != record.base_step || chain_ != record.base_chain) {
      return fail(ErrorKind::invalid,
                  fmt::format("the lighthouse's record ({}; chain {:016x}) contradicts this rank, "
                              "which has {} step {}, "
                              "chain {:016x}: the record is not this job's newest; end this "
                              "process and start it again",
                              describe(record), record.base_chain,
                              has_state_ ? "committed" : "no state, last", step_, chain_));
    }
    if (record.verdict != Verdict::go_on) forget_step();
    lanes_held_ = {self.lanes_held.begin(), self.lanes_held.end()};
    tiles_final_ = self.tiles_final;
  }
  vote_.reset();
  active_ = record;
  order_ready_ = true;
  order_discard_ |= record.verdict == Verdict::discard;
  return {};
}

std::optional<StartOrder> MemberState::take_order() {
  if (!order_ready_ || left_ || promised_ > active()) return std::nullopt;
  StartOrder order;
  order.record = *active_;
  order.rank = rank_of(*active_, id_.instance);
  order.apply_prepared = unapplied_.has_value();
  if (unapplied_) order.outcome = *unapplied_;
  order.discard = order_discard_;
  order.learner = active_->members[static_cast<std::size_t>(order.rank)].learner;
  unapplied_.reset();
  order_ready_ = false;
  order_discard_ = false;
  return order;
}

Result<void> MemberState::check_epoch(std::int64_t epoch, const char* doing) const {
  if (left_) return fail(ErrorKind::aborted, fmt::format("{}: this rank has left the job", doing));
  if (epoch != active()) {
    return fail(ErrorKind::aborted, fmt::format("{} in epoch {}: epoch {} is active", doing,
                                                epoch_text(epoch), epoch_text(active())));
  }
  if (promised_ > epoch && !broken_.noise_after_promise) {
    return fail(ErrorKind::aborted, fmt::format("{} in epoch {}: epoch {} is being formed", doing,
                                                epoch_text(epoch), epoch_text(promised_)));
  }
  return {};
}

Result<void> MemberState::set_level(std::int64_t epoch, std::int64_t step, std::uint64_t chain) {
  TESON_TRY_VOID(check_epoch(epoch, "catching up"));
  if (step != active_->base_step || chain != active_->base_chain) {
    return fail(ErrorKind::invalid, fmt::format("catching up in epoch {}: expected the state of "
                                                "step {} with chain {:016x}, found step {} "
                                                "with chain {:016x}",
                                                epoch_text(epoch), active_->base_step,
                                                active_->base_chain, step, chain));
  }
  if (has_state_) return {};
  has_state_ = true;
  step_ = step;
  chain_ = chain;
  last_outcome_ = active_->base_outcome;
  return {};
}

Result<void> MemberState::begin_step(std::int64_t epoch, std::int64_t step) {
  TESON_TRY_VOID(check_epoch(epoch, "beginning a step"));
  if (!has_state_)
    return fail(ErrorKind::invalid,
                "beginning a step: this rank is a learner without the state; call set_level first");
  if (step != step_ + 1) {
    return fail(ErrorKind::invalid,
                fmt::format("beginning step {}: the next one is {}", step, step_ + 1));
  }
  return {};
}

Result<void> MemberState::hold_lane(std::int64_t epoch, std::int32_t lane) {
  TESON_TRY_VOID(check_epoch(epoch, "beginning a lane"));
  if (!has_state_ || lane < 0 || lane >= active_->lanes_total) {
    return fail(ErrorKind::invalid,
                fmt::format("beginning lane {}: expected 0 to {} and a rank with the state", lane,
                            active_->lanes_total - 1));
  }
  lanes_held_.insert(lane);
  return {};
}

Result<void> MemberState::hold_final(std::int64_t epoch, std::size_t tile) {
  TESON_TRY_VOID(check_epoch(epoch, "keeping a final tile"));
  if (tile >= tiles_max) {
    return fail(ErrorKind::invalid,
                fmt::format("final tile {}: at most {} tiles are possible", tile, tiles_max));
  }
  if (has_state_) set_tile(tiles_final_, tile);
  return {};
}

Result<void> MemberState::prepare(const Vote& vote) {
  TESON_TRY_VOID(check_epoch(vote.epoch, "voting"));
  if (!has_state_ || vote.step != step_ + 1) {
    return fail(ErrorKind::invalid,
                fmt::format("voting for step {}: this rank {} step {}", vote.step,
                            has_state_ ? "has committed" : "is a learner, last at", step_));
  }
  vote_ = vote;
  return {};
}

Result<void> MemberState::commit(std::int64_t epoch, const Outcome& outcome) {
  TESON_TRY_VOID(check_epoch(epoch, "committing"));
  if (!vote_ || outcome.step != vote_->step || outcome.digest != vote_->digest) {
    return fail(
        ErrorKind::invalid,
        fmt::format("committing step {}: this rank has not voted for it with digest {:016x}",
                    outcome.step, outcome.digest));
  }
  advance(outcome);
  return {};
}

void MemberState::advance(const Outcome& outcome) {
  TESON_CHECK(outcome.step == step_ + 1, outcome.step, step_);
  chain_ = chain_next(chain_, outcome);
  step_ = outcome.step;
  last_outcome_ = outcome;
  forget_step();
}

void MemberState::forget_step() {
  lanes_held_.clear();
  tiles_final_.clear();
  vote_.reset();
}

void MemberState::leave() {
  left_ = true;
}

Status MemberState::status() const {
  Status status;
  status.epoch = promised_;
  status.active = active();
  status.has_state = has_state_;
  status.step = step_;
  status.chain = chain_;
  status.last_outcome = last_outcome_;
  status.vote = vote_;
  status.lanes_held.assign(lanes_held_.begin(), lanes_held_.end());
  status.tiles_final = tiles_final_;
  return status;
}

}  // namespace teson::quorum
