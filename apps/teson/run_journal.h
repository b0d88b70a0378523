#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/job/config.h"
#include "teson/job/control.h"
#include "teson/job/failure_ledger.h"
#include "teson/job/inject.h"
#include "teson/job/live_line.h"
#include "teson/job/records.h"
#include "teson/job/run_folder.h"
#include "teson/job/summary.h"

namespace teson::apps {

/// What happens in a run, written down: metrics, events and ledger in the run's folder, progress
/// for people, and at the end the summary. One thread, the controller's. That records cannot be
/// written is said once and does not stop the run; they are kept until they can.
class RunJournal {
 public:
  /// The clock and the paths outlive it.
  static Result<std::unique_ptr<RunJournal>> open(const job::RunPaths& paths,
                                                  const job::Config& config,
                                                  const job::FaultPlan& faults, const Clock& clock);

  /// "new", "resumed" (from a checkpoint) or "repeated" (from nothing, in the folder of before).
  void started(const std::string& how);
  /// The history goes on from this checkpoint.
  void resumed(std::int64_t step, const std::string& checkpoint);
  /// A replica's process was started; the first one is no replacement.
  void spawned(int replica, Instant at);
  /// A fault was put into a replica on purpose. Planned ones are found by themselves.
  void injected(int replica, const std::string& what, Instant at);
  void died(int replica, const std::string& cause, Instant at);
  /// The lighthouse has lost its connection: most often the first sign of a death, whose cause is
  /// about to be known. It counts from now on; people are told when `died` follows, or soon.
  void lost(int replica, Instant at);
  /// Tells the cause of the replica's newest failure, which is only known now.
  void cause_known(int replica, const std::string& cause) { failures_.cause_known(replica, cause); }
  void fenced(std::uint64_t epoch, Instant at);
  void epoch_started(std::uint64_t epoch, const std::vector<int>& members, std::int64_t base_step,
                     Instant at);
  /// One rank's report of a committed step; every rank sends one, the first of a step counts. In a
  /// higher incarnation the history goes back to the step before the reported one.
  void committed(const job::StepReport& report);
  /// Every rank reports an evaluation; the first report counts.
  void evaluated(std::int64_t step, double loss);
  void checkpoint(const job::CheckpointReport& report);
  /// The next checkpoint of a later step than the newest was asked for: its place is told.
  void checkpoint_wanted() { wanted_after_ = step_; }
  void warning(std::string_view text);
  /// The lighthouse has refused a process of this run; as an event, since the run says why it ends.
  void refused(std::string_view text);
  /// The newest step that an earlier session committed; 0: none.
  std::int64_t committed_before() const { return newest_before_; }
  /// Draws the live line again, and tells of losses whose cause has not come.
  void tick();
  /// When tick is due, if something waits for it.
  std::optional<Instant> next_tick() const;

  /// Fills in what the journal knows, writes summary.json and the events still owed.
  Result<void> finish(job::Summary& summary);

 private:
  RunJournal(const job::RunPaths& paths, const job::Config& config, const job::FaultPlan& faults,
             const Clock& clock);
  void write(const job::EventRecord& record);
  /// At an instant that may have passed; by default now.
  job::EventRecord event(job::EventKind kind, std::optional<Instant> at = std::nullopt) const;
  /// Of planned faults up to this step.
  void note_injections(std::int64_t step_max = std::numeric_limits<std::int64_t>::max());
  void note_injection(int replica, const std::string& what, Instant at);
  bool count_failure(int replica, const std::string& cause, Instant at);
  void announce(int replica);
  void came_back(int replica, std::int64_t step, Instant at);
  void note_outcome(const Result<void>& written);
  void sum_up(job::Summary& summary) const;
  void sum_up_events(job::Summary& summary) const;
  std::int64_t missing_lines() const;
  job::Progress progress() const;
  /// What the summary takes from the records on disk.
  Result<void> count_records(job::Summary& summary);
  void write_last_events(const job::Summary& summary);

  const job::RunPaths& paths_;
  const job::Config& config_;
  const job::FaultPlan& faults_;
  const Clock& clock_;
  std::optional<job::RecordWriter> metrics_, events_, ledger_lines_;
  job::FailureLedger failures_;
  job::LiveLine live_;
  Instant began_{};
  std::int64_t step_ = 0;  ///< the newest committed one
  std::uint64_t incarnation_ = 0;
  std::optional<std::int64_t> first_step_;  ///< of this session
  std::int64_t steps_lost_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t tokens_here_ = 0;  ///< trained on in this session
  Instant first_commit_{};
  std::int64_t evaluated_ = 0;  ///< the step of the newest evaluation
  double rate_ = 0;             ///< tokens a second, smoothed
  std::optional<Instant> last_commit_;
  std::optional<double> loss_;
  std::int64_t newest_before_ = 0;  ///< step that an earlier session of the run had committed
  std::set<int> spawned_once_;
  std::set<int> alive_;
  std::set<int> coming_back_;
  /// Replicas whose failure people have not been told of, with the instant by which they are.
  std::map<int, Instant> unannounced_;
  std::optional<std::int64_t> wanted_after_;
  std::set<std::string> injections_noted_;
  bool write_failed_ = false;
};

}  // namespace teson::apps
