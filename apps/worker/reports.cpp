#include "apps/worker/reports.h"

#include <utility>

namespace teson::apps {

train::TrainerEvents report_to(const actor::Actor<job::RunObserver>& observer, int replica,
                               const Origin& origin) {
  train::TrainerEvents events;
  events.committed = [=](const train::CommittedStep& step) {
    job::StepReport report;
    report.replica = replica;
    report.committed_ns = step.at.time_since_epoch().count();
    report.incarnation = step.incarnation;
    report.step = step.record;
    report.ledger = step.ledger;
    (void)observer.cast<&job::RunObserver::step_committed>(report);
  };
  events.evaluated = [=](std::int64_t step, double loss) {
    (void)observer.cast<&job::RunObserver::evaluated>(job::EvaluationReport{step, loss});
  };
  events.entered = [=](std::int64_t epoch, bool was_learner) {
    (void)observer.cast<&job::RunObserver::entered>(
        was_learner ? job::EnteredReport{replica, epoch, true, "", 0}
                    : job::EnteredReport{replica, epoch, false, origin.checkpoint, origin.step});
  };
  events.checkpoint_skipped = [=](std::int64_t step, const Error& error) {
    (void)observer.cast<&job::RunObserver::checkpoint_ended>(
        job::CheckpointReport{step, false, error.message, "", 0});
  };
  events.finished = [=](const train::Finish& finish) {
    job::FinishReport report;
    report.kind = finish.status == train::FinishStatus::completed ? job::EndKind::completed
                  : finish.status == train::FinishStatus::stopped ? job::EndKind::stopped
                                                                  : job::EndKind::failed;
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
      outcome.tidied ? "" : outcome.tidied.error().message, outcome.seconds});
}

}  // namespace teson::apps
