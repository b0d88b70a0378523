#include "apps/teson/run_journal.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/job/sample_ledger.h"

namespace teson::apps {
namespace {

// A process whose connection has ended is most often dead, and its exit says why: until then.
constexpr Duration kCauseWait = std::chrono::milliseconds(50);

job::LiveLine::Options live_options() {
  job::LiveLine::Options options;
  options.fd = STDERR_FILENO;
  options.terminal = job::LiveLine::is_terminal(STDERR_FILENO);
  return options;
}

}  // namespace

RunJournal::RunJournal(const job::RunPaths& paths, const job::Config& config,
                       const job::FaultPlan& faults, const Clock& clock)
    : paths_(paths),
      config_(config),
      faults_(faults),
      clock_(clock),
      live_(clock, live_options()),
      began_(clock.now()) {}

Result<std::unique_ptr<RunJournal>> RunJournal::open(const job::RunPaths& paths,
                                                     const job::Config& config,
                                                     const job::FaultPlan& faults,
                                                     const Clock& clock) {
  std::unique_ptr<RunJournal> journal(new RunJournal(paths, config, faults, clock));
  TESON_TRY(journal->metrics_, job::RecordWriter::open(paths.metrics()));
  TESON_TRY(journal->events_, job::RecordWriter::open(paths.events()));
  TESON_TRY(journal->ledger_lines_, job::RecordWriter::open(paths.ledger()));
  // Faults that fired in an earlier session are not this one's.
  for (const auto& fault : faults.faults) {
    if (job::claimed_at(paths.faults(), fault)) journal->injections_noted_.insert(fault.name());
  }
  // A line that cannot be read is said now: at the end it would be all that is said of the run.
  const auto advise = [](const Error& error) {
    if (error.kind != ErrorKind::invalid) return error;
    return Error{error.kind,
                 error.message + "; mend that line, or begin from nothing with --start-anew"};
  };
  const auto before = job::read_step_records(paths.metrics());
  if (!before) return fail(advise(before.error()));
  if (const auto ledger = job::read_ledger(paths.ledger()); !ledger)
    return fail(advise(ledger.error()));
  if (!before->empty()) journal->newest_before_ = before->back().step;
  return journal;
}

void RunJournal::note_outcome(const Result<void>& written) {
  if (written && write_failed_ && missing_lines() == 0) {
    write_failed_ = false;
    live_.message("teson: the records are written again; none is missing");
  }
  if (written || write_failed_) return;
  write_failed_ = true;
  live_.message(
      fmt::format("teson: {}; training goes on, its records are kept until they can be "
                  "written",
                  written.error().message));
}

std::int64_t RunJournal::missing_lines() const {
  return metrics_->missing() + events_->missing() + ledger_lines_->missing();
}

void RunJournal::write(const job::EventRecord& record) {
  note_outcome(events_->write(record));
}

job::EventRecord RunJournal::event(job::EventKind kind, std::optional<Instant> at) const {
  const Instant now = clock_.now();
  job::EventRecord record;
  record.kind = kind;
  record.at = at.value_or(now);
  record.wall_ns = clock_.wall_ns() - (now - record.at).count();
  return record;
}

void RunJournal::started(const std::string& how) {
  auto record = event(job::EventKind::started);
  record.cause = how;
  write(record);
}

void RunJournal::resumed(std::int64_t step, const std::string& checkpoint) {
  auto record = event(job::EventKind::resumed);
  record.step = step;
  record.cause = checkpoint;
  write(record);
  live_.message(fmt::format("resumed from step {} ({})", step, checkpoint));
}

void RunJournal::spawned(int replica, Instant at) {
  // Fixed members have no epochs that would tell.
  if (!config_.cluster.fault_tolerance) alive_.insert(replica);
  if (spawned_once_.insert(replica).second) return;
  announce(replica);
  failures_.spawned(replica, at);
  coming_back_.insert(replica);
}

// A worker notes the instant of a planned fault in a file, since it cannot say anything afterwards.
void RunJournal::note_injections(std::int64_t step_max) {
  for (const auto& fault : faults_.faults) {
    if (fault.step > step_max || injections_noted_.contains(fault.name())) continue;
    const auto at = job::claimed_at(paths_.faults(), fault);
    if (!at) continue;
    injections_noted_.insert(fault.name());
    // Nobody dies of a gradient.
    if (fault.kind != job::FaultKind::nan) failures_.injected(fault.replica, *at);
    note_injection(fault.replica, fault.name(), *at);
  }
}

void RunJournal::note_injection(int replica, const std::string& what, Instant at) {
  auto record = event(job::EventKind::injected, at);
  record.replica = replica;
  record.cause = what;
  write(record);
}

void RunJournal::injected(int replica, const std::string& what, Instant at) {
  failures_.injected(replica, at);
  note_injection(replica, what, at);
}

// False if this death has been heard of.
bool RunJournal::count_failure(int replica, const std::string& cause, Instant at) {
  note_injections();
  const std::size_t before = failures_.rows().size();
  failures_.died(replica, cause, at);
  alive_.erase(replica);
  coming_back_.erase(replica);
  return failures_.rows().size() > before;
}

void RunJournal::lost(int replica, Instant at) {
  if (count_failure(replica, "its connection ended", at))
    unannounced_[replica] = clock_.now() + kCauseWait;
}

void RunJournal::died(int replica, const std::string& cause, Instant at) {
  if (count_failure(replica, cause, at)) {
    unannounced_[replica] = at;
  } else if (unannounced_.contains(replica)) {
    failures_.cause_known(replica, cause);
  }
  announce(replica);
}

void RunJournal::announce(int replica) {
  if (unannounced_.erase(replica) == 0) return;
  const auto& rows = failures_.rows();
  const auto row = std::find_if(rows.rbegin(), rows.rend(),
                                [&](const auto& each) { return each.replica == replica; });
  auto record = event(job::EventKind::failure, row->detected);
  record.replica = replica;
  record.step = row->step;
  record.cause = row->cause;
  record.detect_ms = row->detect_ms;
  write(record);
  live_.message(fmt::format("replica {} failed after step {}: {}", replica, row->step, row->cause));
}

void RunJournal::fenced(std::uint64_t epoch, Instant at) {
  failures_.fenced(epoch, at);
}

void RunJournal::epoch_started(std::uint64_t epoch, const std::vector<int>& members,
                               std::int64_t base_step, Instant at) {
  failures_.started(epoch, members, at);
  alive_ = {members.begin(), members.end()};
  auto record = event(job::EventKind::epoch, at);
  record.epoch = epoch;
  record.step = base_step;
  record.cause = fmt::format("replicas {}", fmt::join(members, " "));
  write(record);
}

void RunJournal::came_back(int replica, std::int64_t step, Instant at) {
  failures_.rejoined(replica, at);
  auto record = event(job::EventKind::rejoin, at);
  record.replica = replica;
  record.step = step;
  write(record);
  live_.message(fmt::format("replica {} is back at step {}", replica, step));
}

void RunJournal::committed(const job::StepReport& report) {
  const auto& step = report.step;
  const Instant at{Duration(report.committed_ns)};
  if (report.incarnation < incarnation_) return;  // of a history that was lost meanwhile
  note_injections(step.step);
  failures_.committed(step.step, step.epoch, at);
  if (coming_back_.erase(report.replica) > 0) came_back(report.replica, step.step, at);
  if (first_step_ && report.incarnation > incarnation_) {
    steps_lost_ += std::max<std::int64_t>(0, step_ - (step.step - 1));
    step_ = step.step - 1;
    evaluated_ = std::min(evaluated_, step_);
    tokens_ = step.tokens - job::tokens_per_step(config_);
  }
  incarnation_ = report.incarnation;
  if (first_step_ && step.step <= step_) return;
  if (!first_step_) {
    first_step_ = step.step;
    first_commit_ = at;
    steps_lost_ = std::max<std::int64_t>(0, newest_before_ - (step.step - 1));
  } else {
    tokens_here_ += step.tokens - tokens_;
    const double seconds = to_seconds(at - *last_commit_);
    const double now = seconds > 0 ? static_cast<double>(step.tokens - tokens_) / seconds : rate_;
    rate_ = rate_ == 0 ? now : 0.9 * rate_ + 0.1 * now;
  }
  last_commit_ = at;
  step_ = step.step;
  tokens_ = step.tokens;
  loss_ = step.loss;
  if (step.skipped) {
    warning(fmt::format("step {}: the loss or the gradient is not finite; the step was skipped",
                        step.step));
  }
  note_outcome(metrics_->write(step));
  note_outcome(ledger_lines_->write(report.ledger));
  live_.update(progress());
}

void RunJournal::evaluated(std::int64_t step, double loss) {
  if (step <= evaluated_) return;
  evaluated_ = step;
  auto record = event(job::EventKind::evaluation);
  record.step = step;
  record.loss = loss;
  write(record);
  live_.message(fmt::format("step {}: validation loss {:.4f}", step, loss));
}

void RunJournal::checkpoint(const job::CheckpointReport& report) {
  auto record = event(report.written ? job::EventKind::checkpoint : job::EventKind::warning);
  record.step = report.step;
  record.cause = report.text;
  write(record);
  if (!report.written)
    live_.message(fmt::format("teson: no checkpoint of step {}: {}", report.step, report.text));
  if (wanted_after_ && report.written && report.step > *wanted_after_) {
    wanted_after_.reset();
    live_.message(fmt::format("checkpoint of step {}: {}", report.step, report.text));
  }
  if (!report.trouble.empty())
    warning(fmt::format("old checkpoints were not removed: {}", report.trouble));
}

void RunJournal::warning(std::string_view text) {
  auto record = event(job::EventKind::warning);
  record.cause = text;
  write(record);
  live_.message(fmt::format("teson: {}", text));
}

void RunJournal::refused(std::string_view text) {
  auto record = event(job::EventKind::refused);
  record.cause = text;
  write(record);
}

job::Progress RunJournal::progress() const {
  job::Progress progress;
  progress.step = step_;
  progress.steps = config_.train.steps;
  progress.loss = loss_;
  progress.tokens_per_s = rate_;
  progress.replicas_alive = static_cast<int>(alive_.size());
  progress.replicas = config_.cluster.replicas;
  progress.failures = static_cast<int>(failures_.rows().size());
  if (rate_ > 0) {
    const auto left =
        static_cast<double>((config_.train.steps - step_) * job::tokens_per_step(config_));
    progress.seconds_left = left / rate_;
  }
  if (!coming_back_.empty())
    progress.note = fmt::format("replica {} is coming back", fmt::join(coming_back_, ", "));
  return progress;
}

void RunJournal::tick() {
  const Instant now = clock_.now();
  for (int replica = 0; replica < config_.cluster.replicas; ++replica) {
    const auto waiting = unannounced_.find(replica);
    if (waiting != unannounced_.end() && waiting->second <= now) announce(replica);
  }
  if (first_step_) live_.update(progress());
}

std::optional<Instant> RunJournal::next_tick() const {
  std::optional<Instant> next;
  for (const auto& [replica, at] : unannounced_)
    next = next ? std::min(*next, at) : at;
  return next;
}

// The newest evaluation of the history that counts, and the failures of all sessions.
void RunJournal::sum_up_events(job::Summary& summary) const {
  summary.failures_total = static_cast<std::int64_t>(failures_.rows().size());
  const auto events = job::read_event_records(paths_.events());
  if (!events) return;
  summary.failures_total = 0;
  const bool is_measured = summary.val_loss.has_value();
  for (const auto& each : *events) {
    if (each.kind == job::EventKind::failure) ++summary.failures_total;
    if (is_measured || each.kind != job::EventKind::evaluation || !each.step || !each.loss)
      continue;
    if (*each.step > summary.steps) continue;
    summary.val_loss = each.loss;
    summary.val_loss_step = each.step;
  }
}

void RunJournal::sum_up(job::Summary& summary) const {
  summary.steps = step_;
  summary.steps_planned = config_.train.steps;
  summary.steps_lost = steps_lost_;
  summary.tokens = tokens_;
  summary.replicas = config_.cluster.replicas;
  summary.seconds = to_seconds(clock_.now() - began_);
  if (first_step_ && *last_commit_ > first_commit_) {
    summary.tokens_per_s =
        static_cast<double>(tokens_here_) / to_seconds(*last_commit_ - first_commit_);
  }
  summary.failures = failures_.rows();
  summary.faults_unfired = job::unfired(paths_.faults(), faults_);
}

Result<void> RunJournal::finish(job::Summary& summary) {
  note_injections();
  for (int replica = 0; replica < config_.cluster.replicas; ++replica)
    announce(replica);
  if (first_step_) live_.update(progress());
  live_.finish();
  sum_up(summary);
  // Whatever the records are worth by now, the summary is written.
  note_outcome(metrics_->sync());
  note_outcome(ledger_lines_->sync());
  const auto counted = count_records(summary);
  if (!summary.faults_unfired.empty()) warning(job::unfired_text(summary.faults_unfired));
  write_last_events(summary);
  TESON_TRY_VOID(job::write_summary(summary, paths_.summary()));
  TESON_TRY_VOID(counted);
  const auto synced = events_->sync();
  if (const auto missing = missing_lines(); missing > 0)
    live_.message(fmt::format("teson: {} lines of the records are missing for good", missing));
  return synced;
}

Result<void> RunJournal::count_records(job::Summary& summary) {
  TESON_TRY(const auto steps, job::read_step_records(paths_.metrics()));
  const auto finite = [](double loss) {
    return std::isfinite(loss) ? std::optional(loss) : std::nullopt;
  };
  if (!steps.empty() && step_ == 0) {
    summary.steps = steps.back().step;
    summary.tokens = steps.back().tokens;
  }
  // Steps beyond the newest one are of a history that was lost.
  for (const auto& step : steps) {
    if (step.step > summary.steps) break;
    if (!summary.loss_first) summary.loss_first = finite(step.loss);
    summary.loss_last = finite(step.loss);
    if (step.skipped) ++summary.steps_skipped;
  }
  sum_up_events(summary);
  const auto& batch = config_.batch;
  job::LedgerPlan plan;
  plan.steps = summary.steps;
  plan.lanes = batch.lanes;
  plan.samples_per_lane = std::int64_t{batch.microbatches} * batch.sequences;
  TESON_TRY(const auto check, job::check_ledger(paths_.ledger(), plan));
  summary.samples_planned = check.samples_planned;
  summary.samples_used = check.samples_used;
  // Elastic runs leave lanes out on purpose.
  if (config_.train.mode == job::Mode::exact && !check.complete()) {
    warning(fmt::format("the ledger accounts for {} of {} samples: {}", check.samples_used,
                        check.samples_planned,
                        check.problems.empty() ? "lines are missing" : check.problems.front()));
  }
  return {};
}

void RunJournal::write_last_events(const job::Summary& summary) {
  for (const auto& row : failures_.rows()) {
    auto record = event(job::EventKind::recovered);
    record.replica = row.replica;
    record.step = row.step;
    record.cause = row.cause;
    record.detect_ms = row.detect_ms;
    record.fence_ms = row.fence_ms;
    record.reconfigure_ms = row.reconfigure_ms;
    record.commit_ms = row.commit_ms;
    record.rejoin_ms = row.rejoin_ms;
    write(record);
  }
  auto record = event(job::EventKind::finished);
  record.step = summary.steps;
  record.cause = summary.status;
  write(record);
}

}  // namespace teson::apps
