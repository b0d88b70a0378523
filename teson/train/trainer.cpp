#include "teson/train/trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/log.h"
#include "teson/quorum/deal.h"
#include "teson/train/membership.h"

namespace teson::train {

using quorum::Phase;

Trainer::Trainer(Replica& replica, Membership& membership, TrainerOptions options)
    : replica_(replica),
      membership_(membership),
      options_(std::move(options)),
      gradients_(replica.buffer_elements(), replica.config().batch.lanes),
      samples_(static_cast<std::size_t>(replica.config().batch.lanes)),
      sum_(replica.buffer_elements()),
      digests_((replica.buffer_elements() + kTileElements - 1) / kTileElements) {
  TESON_CHECK(options_.clock != nullptr && options_.connect);
}

bool Trainer::inject(std::int64_t step, job::FaultPhase phase) {
  return options_.inject && options_.inject(step, phase);
}

Result<void> Trainer::run() {
  while (true) {
    membership_.set_phase(Phase::idle);
    TESON_TRY(const auto order, membership_.wait_start());
    const auto outcome = run_epoch(order);
    // After the job's end peers may still be at work: the connections stay until the next epoch.
    if (outcome && !membership_.votes()) return {};
    if (outcome) continue;
    communicator_.reset();
    const auto kind = outcome.error().kind;
    if (kind != ErrorKind::aborted && kind != ErrorKind::disconnected) return outcome;
    log_info("trainer", "left epoch {}: {}", quorum::epoch_text(order.record.epoch),
             outcome.error().message);
  }
}

Result<void> Trainer::run_epoch(const quorum::StartOrder& order) {
  settle(order);
  TESON_TRY_VOID(enter(order));
  if (options_.events.entered) options_.events.entered(order.record.epoch, order.learner);
  return train_steps(order.record);
}

// What the record decided about the step that the epoch before left behind.
void Trainer::settle(const quorum::StartOrder& order) {
  if (order.apply_prepared) {
    log_info("trainer", "step {} was committed by the record", order.outcome.step);
    apply(order.outcome, order.record);
  }
  gradients_.drop_lane();
  if (order.discard) gradients_.clear();
}

// Connects to the peers, and brings learners level.
Result<void> Trainer::enter(const quorum::StartOrder& order) {
  const auto& record = order.record;
  std::vector<int> donors, learners;
  for (std::size_t rank = 0; rank < record.members.size(); ++rank) {
    (record.members[rank].learner ? learners : donors).push_back(static_cast<int>(rank));
  }
  membership_.set_phase(Phase::waiting_for_peers);
  communicator_.reset();
  TESON_TRY(communicator_, options_.connect(record, order.rank));
  if (membership_.fenced()) return fail(ErrorKind::aborted, "a newer epoch is being formed");
  if (learners.empty()) return {};
  if (donors.empty()) return fail(ErrorKind::aborted, "nobody in this epoch has the state");

  TESON_TRY_VOID(transfer_state(*communicator_, donors, learners, replica_.state()));
  if (!order.learner) return {};
  replica_.state_changed();
  gradients_.clear();
  return membership_.set_level(record.epoch, replica_.state().step, replica_.state().chain);
}

Result<void> Trainer::train_steps(const Epoch& epoch) {
  const auto& state = replica_.state();
  const auto& train = replica_.config().train;
  // Whether the evaluation of the base step is still to be done must be decided alike on all ranks:
  // by the record.
  const bool base_is_over = quorum::is_interrupted(epoch, epoch.base_step + 1);
  if (!ended_ && !base_is_over && state.step > 0 && state.step < train.steps)
    TESON_TRY_VOID(after_step(epoch, false));
  while (!ended_ && state.step < train.steps) {
    TESON_TRY_VOID(run_step(epoch));
  }
  if (!ended_) ended_ = FinishStatus::completed;
  return finish(epoch);
}

}  // namespace teson::train
