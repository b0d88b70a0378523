#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "teson/base/log.h"
#include "teson/checkpoint/async_writer.h"
#include "teson/train/membership.h"
#include "teson/train/trainer.h"

namespace teson::train {

using quorum::Phase;

// What follows a committed step on all ranks, and is done again by an epoch that finds it undone.
Result<void> Trainer::after_step(const Epoch& epoch, bool checkpoint_wanted) {
  const auto& config = replica_.config();
  const std::int64_t step = replica_.state().step;
  if (ended_ || step == config.train.steps) return {};
  if (config.train.evaluate_every > 0 && step % config.train.evaluate_every == 0) {
    TESON_TRY(const auto loss, evaluate());
    if (loss && options_.events.evaluated) options_.events.evaluated(step, *loss);
  }
  const bool due = config.checkpoint.every > 0 && step % config.checkpoint.every == 0;
  if ((due || checkpoint_wanted) && speaks_for_job()) start_checkpoint(epoch);
  if (checkpoint_wanted) checkpoint_requested_ = false;
  return {};
}

// Batches are dealt in turn; all sums are gathered and added in the order of the batches, so the
// value does not depend on the deal.
Result<std::optional<double>> Trainer::evaluate() {
  const int batches = replica_.evaluation_batches();
  if (batches == 0) return std::nullopt;
  membership_.set_phase(Phase::evaluating);
  const int size = communicator_->size();
  const auto rounds = static_cast<std::size_t>((batches + size - 1) / size);
  std::vector<Replica::EvaluationSum> own(rounds), all(rounds * static_cast<std::size_t>(size));
  for (std::size_t round = 0; round < rounds; ++round) {
    if (membership_.fenced()) return fail(ErrorKind::aborted, "a newer epoch is being formed");
    const int batch = static_cast<int>(round) * size + communicator_->rank();
    if (batch >= batches) break;
    TESON_TRY(own[round], replica_.evaluate_batch(batch));
    membership_.add_progress();
  }
  membership_.set_phase(Phase::waiting_for_peers);
  TESON_TRY_VOID(
      communicator_
          ->all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)))
          .wait());
  double loss = 0;
  double tokens = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const auto& sum = all[static_cast<std::size_t>(batch % size) * rounds +
                          static_cast<std::size_t>(batch / size)];
    loss += sum.loss;
    tokens += sum.tokens;
  }
  return loss / tokens;
}

namespace {

CheckpointMeta meta_of(const Replica& replica, const quorum::EpochRecord& epoch) {
  auto meta = replica.checkpoint_meta();
  meta.incarnation = epoch.incarnation;
  meta.epoch = static_cast<std::uint64_t>(epoch.epoch);
  return meta;
}

}  // namespace

void Trainer::start_checkpoint(const Epoch& epoch) {
  if (options_.checkpoints == nullptr) return;
  membership_.set_phase(Phase::checkpointing);
  inject(replica_.state().step, job::FaultPhase::checkpoint);
  const auto started =
      options_.checkpoints->start(meta_of(replica_, epoch), replica_.checkpoint_sections());
  if (!started && options_.events.checkpoint_skipped) {
    options_.events.checkpoint_skipped(replica_.state().step, started.error());
  }
}

Result<void> Trainer::write_final_checkpoint(const Epoch& epoch) {
  if (options_.checkpoints == nullptr) return {};
  membership_.set_phase(Phase::checkpointing);
  // A busy writer is at an earlier step's: let it end first.
  TESON_TRY_VOID(options_.checkpoints->wait());
  inject(replica_.state().step, job::FaultPhase::checkpoint);
  TESON_TRY_VOID(
      options_.checkpoints->start(meta_of(replica_, epoch), replica_.checkpoint_sections()));
  TESON_TRY_VOID(options_.checkpoints->wait());
  const auto last = options_.checkpoints->last();
  if (last && !last->written) return Failure(last->written.error());
  return {};
}

// The end of the job, entered again by each later epoch until the controller ends this process:
// whoever speaks for the job then does what the one before it may have left undone.
Result<void> Trainer::finish(const Epoch& epoch) {
  Finish finish;
  finish.status = *ended_;
  finish.reason = end_reason_;
  finish.step = replica_.state().step;
  if (*ended_ == FinishStatus::completed) {
    TESON_TRY(finish.val_loss, evaluate());
    if (finish.val_loss && options_.events.evaluated)
      options_.events.evaluated(finish.step, *finish.val_loss);
  }
  if (speaks_for_job()) {
    if (*ended_ != FinishStatus::failed) {
      if (const auto written = write_final_checkpoint(epoch); !written) {
        finish.status = FinishStatus::failed;
        finish.reason = fmt::format("the checkpoint of the last step, {}, was not written: {}",
                                    finish.step, written.error().message);
      }
    }
    finish.weights_sha256 = replica_.weights_sha256();
    finish.unigram_entropy = replica_.unigram_entropy();
    if (options_.events.finished) options_.events.finished(finish);
  }
  membership_.set_phase(Phase::idle);
  return {};
}

}  // namespace teson::train
