#include "apps/worker/reports.h"

#include <utility>

namespace teson::apps {
namespace {

job::StepReport step_report(int replica, const job::StepRecord& record,
                            const job::LedgerLine& ledger, Instant stamp) {
  job::StepReport report;
  report.replica = replica;
  report.committed_ns = stamp.time_since_epoch().count();
  report.step = record.step;
  report.loss = record.loss;
  report.tokens = record.tokens;
  report.tokens_per_s = record.tokens_per_s;
  report.learning_rate = record.learning_rate;
  report.gradient_norm = record.gradient_norm;
  report.seconds = record.seconds;
  report.replicas = record.replicas;
  report.epoch = record.epoch;
  report.skipped = record.skipped;
  report.ledger_epoch = ledger.epoch;
  for (const auto& lane : ledger.lanes)
    report.lanes.push_back({lane.lane, lane.replica, lane.samples, lane.sample_hash});
  return report;
}

}  // namespace

train::TrainerEvents report_to(const actor::Actor<job::RunObserver>& observer, int replica) {
  train::TrainerEvents events;
  events.committed = [=](const job::StepRecord& record, const job::LedgerLine& ledger,
                         Instant stamp) {
    (void)observer.cast<&job::RunObserver::step_committed>(
        step_report(replica, record, ledger, stamp));
  };
  events.evaluated = [=](std::int64_t step, double loss) {
    (void)observer.cast<&job::RunObserver::evaluated>(job::EvaluationReport{step, loss});
  };
  events.entered = [=](std::int64_t epoch, bool was_learner) {
    (void)observer.cast<&job::RunObserver::entered>(
        job::EnteredReport{replica, epoch, was_learner});
  };
  events.checkpoint_skipped = [=](std::int64_t step, const Error& error) {
    (void)observer.cast<&job::RunObserver::checkpoint_ended>(
        job::CheckpointReport{step, false, error.message, 0});
  };
  events.finished = [=](const train::Finish& finish) {
    job::FinishReport report;
    report.kind = finish.status == train::FinishStatus::completed ? job::EndKind::completed
                  : finish.status == train::FinishStatus::stopped ? job::EndKind::stopped
                                                                  : job::EndKind::diverged;
    report.reason = finish.reason;
    report.step = finish.step;
    report.val_loss = finish.val_loss;
    report.weights_sha256 = finish.weights_sha256;
    report.unigram_entropy = finish.unigram_entropy;
    (void)observer.cast<&job::RunObserver::finished>(report);
  };
  return events;
}

void report_checkpoint(const actor::Actor<job::RunObserver>& observer,
                       const CheckpointOutcome& outcome) {
  const auto step = static_cast<std::int64_t>(outcome.id.step);
  const bool written = outcome.written.has_value();
  (void)observer.cast<&job::RunObserver::checkpoint_ended>(job::CheckpointReport{
      step, written, written ? outcome.written->string() : outcome.written.error().message,
      outcome.seconds});
  if (!outcome.tidied) {
    (void)observer.cast<&job::RunObserver::checkpoint_ended>(job::CheckpointReport{
        step, false, "removing old checkpoints: " + outcome.tidied.error().message, 0});
  }
}

}  // namespace teson::apps
