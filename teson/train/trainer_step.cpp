#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/base/log.h"
#include "teson/quorum/deal.h"
#include "teson/train/membership.h"
#include "teson/train/trainer.h"

namespace teson::train {

using quorum::Phase;

// One step as a transaction: compute, reduce, vote, commit, apply.
Result<void> Trainer::run_step(const Epoch& epoch) {
  const std::int64_t step = replica_.state().step + 1;
  step_began_ = options_.clock->now();
  TESON_TRY_VOID(membership_.begin_step(epoch.epoch, step));
  auto lanes = quorum::lanes_by_member(epoch, step);
  auto held = quorum::nodes_by_member(epoch, step);
  auto finals = quorum::finals_by_member(epoch, step, digests_.size());

  std::size_t lanes_in_sum = 0;
  for (const auto& list : lanes)
    lanes_in_sum += list.size();
  const auto& batch = replica_.config().batch;
  step_tokens_ = static_cast<std::int64_t>(lanes_in_sum) * batch.microbatches * batch.sequences *
                 batch.sequence_length;

  // Where every tile of the sum is final at somebody already, there is nothing left to compute.
  bool all_final = !finals.empty();
  for (std::size_t tile = 0; tile < digests_.size() && all_final; ++tile) {
    all_final =
        std::any_of(finals.begin(), finals.end(), [tile](const auto& of) { return of[tile] != 0; });
  }
  const auto rank = static_cast<std::size_t>(communicator_->rank());
  if (all_final) {
    for (auto& nodes : held)
      nodes.clear();
  } else {
    TESON_TRY_VOID(compute_lanes(epoch, lanes[rank]));
  }
  if (!all_final || ledger_.step != step) note_ledger(epoch, lanes);
  TESON_TRY_VOID(reduce(epoch, std::move(held), std::move(finals)));
  // Without a lane computed in this epoch the votes say nothing about samples.
  TESON_TRY(const auto outcome, vote(epoch, !all_final));
  apply(outcome, epoch);
  return after_step(epoch, outcome.checkpoint);
}

Result<void> Trainer::compute_lanes(const Epoch& epoch, const std::vector<std::int32_t>& lanes) {
  membership_.set_phase(Phase::compute);
  for (const std::int32_t lane : lanes) {
    if (gradients_.holds(lane)) continue;
    TESON_TRY_VOID(membership_.hold_lane(epoch.epoch, lane));
    const bool poison = inject(replica_.state().step + 1, job::FaultPhase::compute);
    float* buffer = gradients_.begin_lane();
    // Fenced or not, the lane is this rank's to finish: it stays in the deal of the next epoch.
    auto samples = replica_.compute_lane(lane, buffer, [this] {
      membership_.add_progress();
      return true;
    });
    if (!samples) {
      gradients_.drop_lane();
      return Failure(samples.error());
    }
    if (poison) buffer[0] = std::numeric_limits<float>::quiet_NaN();
    if (!membership_.votes()) replica_.set_flag(buffer, stop_requested_);
    gradients_.finish_lane(lane);
    samples_[static_cast<std::size_t>(lane)] = *samples;
    membership_.add_progress();
    if (membership_.fenced()) return fail(ErrorKind::aborted, "a newer epoch is being formed");
  }
  return {};
}

// Who contributed which lane. Every rank writes down the whole step, so that the record does not
// depend on one rank's survival. The samples of other ranks' lanes are the planned ones: a step
// whose votes say otherwise is not committed.
void Trainer::note_ledger(const Epoch& epoch, const std::vector<std::vector<std::int32_t>>& lanes) {
  const std::int64_t step = replica_.state().step + 1;
  ledger_ = {step, static_cast<std::uint64_t>(epoch.epoch), {}};
  planned_.assign(lanes.size(), {});
  for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
    for (const std::int32_t lane : lanes[rank]) {
      const bool own = static_cast<int>(rank) == communicator_->rank();
      const auto planned = replica_.planned_samples(step - 1, lane);
      const auto samples = own ? samples_[static_cast<std::size_t>(lane)] : planned;
      planned_[rank].sample_hash += planned.hash;
      ++planned_[rank].lanes;
      ledger_.lanes.push_back(
          {lane, epoch.members[rank].id.replica, samples.samples, samples.hash});
    }
  }
  std::sort(ledger_.lanes.begin(), ledger_.lanes.end(),
            [](const auto& a, const auto& b) { return a.lane < b.lane; });
}

Result<void> Trainer::reduce(const Epoch& epoch, std::vector<std::vector<comm::TreeNode>> held,
                             std::vector<std::vector<std::uint8_t>> finals) {
  membership_.set_phase(Phase::waiting_for_peers);
  inject(replica_.state().step + 1, job::FaultPhase::reduce);
  comm::ReduceParts parts;
  parts.elements = sum_.size();
  parts.tile_elements = kTileElements;
  parts.lanes = replica_.config().batch.lanes;
  if (!held[static_cast<std::size_t>(communicator_->rank())].empty()) {
    TESON_CHECK(gradients_.nodes() == held[static_cast<std::size_t>(communicator_->rank())]);
    parts.own_parts = gradients_.parts();
  }
  parts.held = std::move(held);
  parts.finals = std::move(finals);
  parts.out = sum_.data();
  parts.tile_digests = digests_.data();
  parts.on_final = [this, number = epoch.epoch](std::size_t tile) {
    // A refusal means that the epoch is over; the reduction is about to be aborted.
    (void)membership_.hold_final(number, tile);
    membership_.add_progress();
  };
  return communicator_->reduce_parts(std::move(parts)).wait();
}

quorum::Vote Trainer::own_vote(const Epoch& epoch) const {
  quorum::Vote vote;
  vote.epoch = epoch.epoch;
  vote.step = replica_.state().step + 1;
  vote.digest = hash64(std::as_bytes(std::span(digests_)));
  for (const auto& entry : ledger_.lanes) {
    if (entry.replica != options_.replica) continue;
    vote.sample_hash += entry.sample_hash;
    ++vote.lanes_computed;
  }
  // Without votes the wish travels in the sum, which is the same on all ranks.
  const bool stop = membership_.votes() ? stop_requested_.load() : replica_.any_flag(sum_.data());
  vote.stop_requested = stop ? 1 : 0;
  vote.checkpoint_requested = checkpoint_requested_ ? 1 : 0;
  return vote;
}

Result<quorum::Outcome> Trainer::vote(const Epoch& epoch, bool hold_against_plan) {
  std::vector<quorum::Vote> votes(static_cast<std::size_t>(communicator_->size()));
  const auto own = own_vote(epoch);
  votes[static_cast<std::size_t>(communicator_->rank())] = own;
  if (!membership_.votes()) {
    sum_of_squares_ = replica_.sum_of_squares(sum_.data());
    return quorum::decide(std::span(&own, 1)).outcome;
  }
  TESON_TRY_VOID(membership_.prepare(own));
  inject(replica_.state().step + 1, job::FaultPhase::vote);
  auto exchange = communicator_->all_gather(std::as_bytes(std::span(&own, 1)),
                                            std::as_writable_bytes(std::span(votes)));
  // The norm needs no word of the others: it is found while the votes travel.
  sum_of_squares_ = replica_.sum_of_squares(sum_.data());
  TESON_TRY_VOID(exchange.wait());
  const auto result = quorum::decide(votes);
  if (!result.unanimous()) {
    membership_.report_mismatch(epoch.epoch, own.step, result.mismatched);
    return fail(ErrorKind::aborted, fmt::format("the votes on step {} differ", own.step));
  }
  const auto off_plan =
      hold_against_plan ? quorum::ranks_off_plan(votes, planned_) : std::vector<int>{};
  if (!off_plan.empty()) {
    membership_.report_mismatch(epoch.epoch, own.step, off_plan);
    return fail(ErrorKind::aborted,
                fmt::format("ranks {} computed other samples than step {} is made of",
                            fmt::join(off_plan, ", "), own.step));
  }
  TESON_TRY_VOID(membership_.commit(epoch.epoch, result.outcome));
  return result.outcome;
}

void Trainer::apply(const quorum::Outcome& outcome, const Epoch& epoch) {
  const Instant committed = options_.clock->now();
  membership_.set_phase(Phase::applying);
  inject(replica_.state().step + 1, job::FaultPhase::apply);
  auto& state = replica_.state();
  const auto applied = replica_.apply(sum_.data(), sum_of_squares_, step_tokens_);
  state.chain = quorum::chain_next(state.chain, outcome);
  TESON_CHECK(state.step == outcome.step, state.step, outcome.step);
  gradients_.clear();

  if (outcome.stop) ended_ = FinishStatus::stopped;
  const int limit = replica_.config().train.nan_limit;
  if (applied.skipped && state.skipped_in_a_row >= limit) {
    ended_ = FinishStatus::failed;
    end_reason_ = fmt::format(
        "the loss or the gradient was not finite in {} steps in a row, from step {} on; they were "
        "skipped. Begin a new run (--run-dir, or --start-anew) with a lower "
        "optimizer.learning_rate or other data",
        state.skipped_in_a_row, state.step - state.skipped_in_a_row + 1);
  }
  if (!options_.events.committed) return;
  const double seconds = to_seconds(options_.clock->now() - step_began_);
  CommittedStep step{epoch.incarnation, {}, ledger_, committed};
  auto& record = step.record;
  record.step = state.step;
  record.loss = applied.loss;
  record.tokens = state.tokens;
  record.tokens_per_s = seconds > 0 ? static_cast<double>(applied.tokens) / seconds : 0;
  record.learning_rate = applied.learning_rate;
  record.gradient_norm = applied.gradient_norm;
  record.seconds = seconds;
  record.replicas = static_cast<int>(epoch.members.size());
  record.epoch = static_cast<std::uint64_t>(epoch.epoch);
  record.skipped = applied.skipped;
  options_.events.committed(step);
}

}  // namespace teson::train
