#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/teson/event_queue.h"
#include "apps/teson/run_journal.h"
#include "teson/actor/proc_mesh.h"
#include "teson/actor/restart_budget.h"
#include "teson/actor/system.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/job/config.h"
#include "teson/job/control.h"
#include "teson/job/inject.h"
#include "teson/job/retry_notice.h"
#include "teson/job/run_folder.h"
#include "teson/quorum/agent.h"

namespace teson::apps {

/// How a run came to its end.
struct RunEnd {
  enum class Status { completed, stopped, failed };
  Status status = Status::failed;
  std::string reason;
  bool users_mistake = false;  ///< of a failed one: a process refused what it was given
  std::optional<job::FinishReport>
      report;  ///< from the rank that spoke for the job, if it came that far
};

/// Owns the processes of one run on this host: a lighthouse (unless an address is given) and one
/// worker a replica. Starts them, replaces those that die, tells the lighthouse who is dead, puts
/// in random faults, and brings all to an end. It is never on the path of a step. One thread runs
/// it; other threads post to its queue.
class Controller {
 public:
  /// All outlive it.
  Controller(const job::Config& config, job::RunFolder& folder,
             const std::filesystem::path& prepared, const job::FaultPlan& faults,
             RunJournal& journal, EventQueue& queue, const Clock& clock);
  ~Controller();

  /// Runs the job to its end. Whatever happens, no process is left when the destructor returns.
  RunEnd run();

  /// From the queue: SIGINT, SIGTERM, SIGHUP or SIGUSR1 has come.
  void on_signal(int signal);

 private:
  class Observer;
  struct Worker {
    std::uint64_t instance = 0;
    std::int64_t entered_epoch = 0;  ///< the first one of its present life; 0: none yet
    bool expelled = false;           ///< the lighthouse has put it out
    bool killed = false;             ///< by us, for that; otherwise its own exit tells the cause
    bool link_lost = false;  ///< why it was put out: the first sign of an end, which tells more
    std::optional<Instant> kill_at;
    std::string last_words;
    bool hopeless = false;  ///< it said itself that starting it again would not help
    std::unique_ptr<actor::RestartBudget> at_start;  ///< while it has not entered yet
    std::optional<Instant> restart_at;
  };

  Result<void> start();
  void serve_admin();
  Result<void> start_lighthouse();
  Result<void> start_agent();
  Result<void> start_workers();
  void give_order(int replica);
  void on_lighthouse_exit(const actor::ProcExit& exit);
  void on_worker_exit(const actor::ProcExit& exit);
  void on_actor_failure(const actor::ActorFailure& failure);
  void on_quorum_event(const quorum::Event& event);
  void on_record(const quorum::RecordNews& news);
  void on_entered(const job::EnteredReport& report);
  void on_lighthouse_unreachable(const Error& error);
  void on_lighthouse_reached();
  void on_lighthouse_refused(const quorum::Refused& refused);
  Result<void> restore_sockets();
  bool is_training(const Worker& worker) const;
  void restart_due_workers();
  void kill_expelled_workers();
  void kill_all_workers();
  void inject_due_faults();
  void first_commit();
  /// The others save what they have at the next step boundary, if they come to one in the grace
  /// time; then the run has failed.
  void give_up(std::string reason, bool users_mistake = false);
  void ask_workers_to_stop();
  void set_kill_deadline();
  void end(RunEnd end);
  Instant next_deadline() const;
  std::string data_address(int replica, std::uint64_t instance) const;
  std::string cause_of(const Worker& worker, const actor::ProcExit& exit) const;

  const job::Config& config_;
  job::RunFolder& folder_;
  const std::filesystem::path prepared_;
  const job::FaultPlan& faults_;
  RunJournal& journal_;
  EventQueue& queue_;
  const Clock& clock_;

  std::string lighthouse_address_;
  job::RetryNotice lighthouse_notice_;
  std::vector<Worker> workers_;
  std::map<std::size_t, std::int64_t> random_faults_done_;  ///< by index in the plan
  std::optional<Instant> first_commit_;
  std::int64_t resumed_epoch_ = 0;        ///< the last one that began from a checkpoint
  std::optional<Instant> kill_deadline_;  ///< of a stop that has a grace time
  bool stop_requested_ = false;
  std::optional<RunEnd> failure_;  ///< the run is being stopped for it
  bool ending_ = false;
  std::optional<RunEnd> end_;
  actor::RestartBudget budget_;
  std::optional<actor::RestartBudget> lighthouse_budget_;
  std::optional<Instant> lighthouse_restart_at_;

  // In the order of their making.
  std::unique_ptr<actor::System> system_;
  actor::ActorRef<job::RunObserver> observer_;
  std::optional<actor::ProcMesh> lighthouse_;
  std::unique_ptr<quorum::Agent> agent_;
  std::optional<actor::ProcMesh> mesh_;
  std::optional<actor::ActorMesh<job::WorkerControl>> control_;
};

}  // namespace teson::apps
