#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "apps/teson/controller.h"
#include "apps/teson/restart_policies.h"
#include "teson/base/log.h"
#include "teson/base/random.h"

namespace teson::apps {
namespace {

constexpr std::size_t kCrashesAtStartMax = 5;
/// The dynamic loader's exit code.
constexpr int kNotLoaded = 127;

Instant instant_of(std::int64_t ns) {
  return Instant(Duration(ns));
}

std::vector<int> replicas_of(const std::vector<quorum::MemberId>& members) {
  std::vector<int> replicas;
  for (const auto& member : members)
    replicas.push_back(member.replica);
  return replicas;
}

}  // namespace

std::string Controller::cause_of(const Worker& worker, const actor::ProcExit& exit) const {
  if (!worker.last_words.empty()) return worker.last_words;
  if (!exit.cause.empty()) return exit.cause;
  if (exit.signal != 0)
    return fmt::format("SIG{}", sigabbrev_np(exit.signal) ? sigabbrev_np(exit.signal) : "?");
  return fmt::format("exit code {}", exit.exit_code);
}

void Controller::on_actor_failure(const actor::ActorFailure& failure) {
  if (ending_) return;
  const std::string text =
      fmt::format("actor '{}' of {} ended: {}", failure.name, failure.where, failure.error.message);
  // Without its observer the run would go on, and nobody would hear of its end. A worker without
  // its control actor trains on, but cannot be asked to stop.
  if (failure.proc == 0) return end({RunEnd::Status::failed, text, false, {}});
  journal_.warning(text);
}

void Controller::on_worker_exit(const actor::ProcExit& exit) {
  if (ending_ || end_) return;
  const int replica = static_cast<int>(exit.rank);
  auto& worker = workers_[exit.rank];
  // The death may be old news: a replaced process whose end is reported late.
  if (exit.incarnation != mesh_->incarnation(exit.rank)) return;
  worker.kill_at.reset();
  const std::string cause = cause_of(worker, exit);
  if (agent_)
    agent_->report_dead(worker.instance, quorum::Cause::process_ended, cause, exit.instant);
  journal_.died(replica, cause, exit.instant);
  // A silent or hanging one that ends itself afterwards does so because it is out.
  if (worker.expelled && !worker.killed && (worker.link_lost || exit.signal != 0))
    journal_.cause_known(replica, cause);
  if (!config_.cluster.fault_tolerance)
    return end({RunEnd::Status::failed,
                fmt::format("with cluster.fault_tolerance = false the run cannot go on: {}",
                            exit.describe("workers")),
                false,
                {}});
  if (worker.hopeless) {
    return end({RunEnd::Status::failed,
                fmt::format("replica {}: {}", replica, worker.last_words),
                !first_commit_,
                {}});
  }
  if (stop_requested_) {
    const bool any_left = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& other) {
      return &other != &worker &&
             !mesh_->exit_of(static_cast<std::size_t>(&other - workers_.data()));
    });
    if (!any_left)
      end({RunEnd::Status::stopped, "the last worker ended before a step boundary", false, {}});
    return;
  }
  // The program or a library of it could not be loaded: the next one fares no better.
  if (worker.entered_epoch == 0 && exit.exit_code == kNotLoaded) {
    return give_up(
        fmt::format("replica {}: {}{}", replica, exit.describe("workers"), memory_limit_advice()));
  }
  std::optional<Duration> delay;
  if (worker.entered_epoch != 0) {
    delay = budget_.next(exit.rank);
    if (!delay)
      return give_up(
          fmt::format("replica {} failed more than {} times in {} s (cluster.restarts_max): {}",
                      replica, config_.cluster.restarts_max, config_.cluster.restart_window_s,
                      exit.describe("workers")));
  } else {
    if (!worker.at_start)
      worker.at_start =
          std::make_unique<actor::RestartBudget>(crash_policy(kCrashesAtStartMax), clock_);
    delay = worker.at_start->next(exit.rank);
    if (!delay)
      return give_up(fmt::format(
          "replica {} ended {} times before it trained; the last time {}. Its whole log: '{}'",
          replica, kCrashesAtStartMax + 1, exit.describe("workers"),
          folder_.paths().worker_log(replica).string()));
  }
  worker.restart_at = clock_.now() + *delay;
  restart_due_workers();
}

// A new process needs the folder of sockets. If that was removed, so was the lighthouse's socket:
// it is started again too; living workers listen again by themselves.
Result<void> Controller::restore_sockets() {
  TESON_TRY(const bool remade, folder_.restore_sockets());
  if (!remade) return {};
  journal_.warning(fmt::format("the folder of sockets, '{}', was removed; it is made again",
                               folder_.socket_folder().string()));
  serve_admin();
  if (lighthouse_) lighthouse_restart_at_ = clock_.now();
  return {};
}

void Controller::restart_due_workers() {
  if (failure_) return;
  const Instant now = clock_.now();
  const auto is_due = [&](const Worker& worker) {
    return worker.restart_at && now >= *worker.restart_at;
  };
  if (!lighthouse_restart_at_ && std::none_of(workers_.begin(), workers_.end(), is_due)) return;
  if (auto restored = restore_sockets(); !restored)
    return give_up("starting a process again: " + restored.error().message);
  if (lighthouse_restart_at_ && clock_.now() >= *lighthouse_restart_at_) {
    lighthouse_restart_at_.reset();
    if (auto restarted = lighthouse_->replace(0); !restarted)
      return give_up("starting the lighthouse again: " + restarted.error().message);
  }
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    auto& worker = workers_[rank];
    if (!is_due(worker)) continue;
    auto at_start = std::move(worker.at_start);
    worker = Worker{};
    worker.instance = entropy64();
    worker.at_start = std::move(at_start);
    const Instant spawned = clock_.now();
    if (auto replaced = mesh_->replace(rank); !replaced) {
      return give_up(fmt::format("starting replica {} again: {}", rank, replaced.error().message));
    }
    give_order(static_cast<int>(rank));
    if (stop_requested_) (void)control_->at(rank).cast<&job::WorkerControl::stop_at_boundary>();
    journal_.spawned(static_cast<int>(rank), spawned);
  }
}

// It may be alive, stopped or cut off: it must be dead before it is replaced.
void Controller::kill_expelled_workers() {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    auto& worker = workers_[rank];
    if (!worker.kill_at || clock_.now() < *worker.kill_at) continue;
    worker.kill_at.reset();
    worker.killed = mesh_->kill(rank, SIGKILL).has_value();
  }
}

void Controller::kill_all_workers() {
  for (std::size_t rank = 0; mesh_ && rank < workers_.size(); ++rank)
    (void)mesh_->kill(rank, SIGKILL);
}

void Controller::on_quorum_event(const quorum::Event& event) {
  if (ending_) return;
  const auto find = [&](std::uint64_t instance) {
    return std::find_if(workers_.begin(), workers_.end(),
                        [&](const Worker& worker) { return worker.instance == instance; });
  };
  switch (event.kind) {
    case quorum::EventKind::fenced:
      journal_.fenced(static_cast<std::uint64_t>(event.epoch), instant_of(event.at_ns));
      break;
    case quorum::EventKind::started:
      journal_.epoch_started(static_cast<std::uint64_t>(event.epoch), replicas_of(event.members),
                             event.base_step, instant_of(event.at_ns));
      break;
    case quorum::EventKind::expelled: {
      // Out of the quorum, but its process may be alive: kill it before it is replaced.
      const auto worker = find(event.id.instance);
      if (worker == workers_.end() || worker->expelled) break;
      worker->expelled = true;
      worker->link_lost = event.cause == quorum::Cause::link_lost;
      // A broken link is most often the first sign of a death, whose cause the exit is about to
      // tell.
      const bool dying = worker->link_lost;
      if (dying) {
        journal_.lost(event.id.replica, instant_of(event.at_ns));
      } else {
        journal_.died(event.id.replica, std::string(to_string(event.cause)),
                      instant_of(event.at_ns));
      }
      worker->kill_at =
          clock_.now() +
          (dying ? 2 * std::chrono::milliseconds(config_.cluster.heartbeat_ms) : Duration::zero());
      kill_expelled_workers();
      break;
    }
    case quorum::EventKind::left: {
      // A rank that ends itself for an error says so before it does; its exit follows.
      const auto worker = find(event.id.instance);
      if (worker == workers_.end() || stop_requested_) break;
      journal_.died(event.id.replica, event.text, instant_of(event.at_ns));
      break;
    }
    case quorum::EventKind::refused:
      if (find(event.id.instance) != workers_.end()) journal_.refused(event.text);
      break;
    case quorum::EventKind::waiting_proof: {
      // Of processes that are not its living children the controller has the proof, and has given
      // it: so it is at every resume.
      const bool is_waiting = std::any_of(
          event.members.begin(), event.members.end(),
          [&](const quorum::MemberId& id) { return find(id.instance) != workers_.end(); });
      if (is_waiting) journal_.warning("lighthouse: " + event.text);
      break;
    }
    case quorum::EventKind::trouble:
      journal_.warning(event.text.empty() ? std::string(to_string(event.kind))
                                          : "lighthouse: " + event.text);
      break;
    default:
      break;
  }
}

// A lighthouse, new or restarted, tells whom its last record knows. Those that are not this
// controller's living workers are dead: they were children of this host's controllers, and die with
// them; the lock on the run's folder says that there is no other.
void Controller::on_record(const quorum::RecordNews& news) {
  if (!news.record || !agent_) return;
  for (const auto& member : news.record->members) {
    const bool ours = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
      return worker.instance == member.id.instance;
    });
    if (!ours)
      agent_->report_dead(member.id.instance, quorum::Cause::launcher, "its controller has ended",
                          clock_.now());
  }
}

void Controller::on_entered(const job::EnteredReport& report) {
  auto& worker = workers_[static_cast<std::size_t>(report.replica)];
  worker.at_start.reset();
  if (worker.entered_epoch != 0) return;
  worker.entered_epoch = report.epoch;
  if (report.checkpoint.empty() || report.epoch == resumed_epoch_) return;
  // Somebody who was there before has the newer state: then this one only comes back.
  const bool is_first = std::all_of(workers_.begin(), workers_.end(), [&](const Worker& other) {
    return other.entered_epoch == 0 || other.entered_epoch == report.epoch;
  });
  if (!is_first) return;
  resumed_epoch_ = report.epoch;
  journal_.resumed(report.checkpoint_step, report.checkpoint);
}

void Controller::on_lighthouse_unreachable(const Error& error) {
  if (ending_ || !lighthouse_notice_.failed(error.message, clock_.now())) return;
  journal_.warning(fmt::format("cannot reach the lighthouse at {}; trying again", error.message));
}

void Controller::on_lighthouse_reached() {
  if (!lighthouse_notice_.worked() || ending_) return;
  journal_.warning(fmt::format("reached the lighthouse at {}", lighthouse_address_));
}

void Controller::on_lighthouse_refused(const quorum::Refused& refused) {
  if (ending_ || end_) return;
  journal_.refused(refused.message);
  end({RunEnd::Status::failed,
       "the lighthouse refuses this run: " + refused.message,
       !first_commit_,
       {}});
}

bool Controller::is_training(const Worker& worker) const {
  return worker.entered_epoch != 0 && !worker.expelled &&
         !mesh_->exit_of(static_cast<std::size_t>(&worker - workers_.data()));
}

void Controller::give_up(std::string reason, bool users_mistake) {
  if (failure_ || end_) return;
  const bool may_save =
      first_commit_ && std::any_of(workers_.begin(), workers_.end(),
                                   [&](const Worker& worker) { return is_training(worker); });
  RunEnd failed{RunEnd::Status::failed, std::move(reason), users_mistake && !first_commit_, {}};
  if (!may_save) return end(std::move(failed));
  journal_.warning(fmt::format("{}; the others end at the next step boundary, with a checkpoint",
                               failed.reason));
  failure_ = std::move(failed);
  lighthouse_restart_at_.reset();
  for (auto& worker : workers_)
    worker.restart_at.reset();
  set_kill_deadline();
  ask_workers_to_stop();
}

void Controller::set_kill_deadline() {
  if (kill_deadline_) return;
  kill_deadline_ = clock_.now() + std::chrono::duration_cast<Duration>(
                                      std::chrono::duration<double>(config_.cluster.grace_seconds));
}

void Controller::ask_workers_to_stop() {
  stop_requested_ = true;
  if (control_) (void)control_->cast<&job::WorkerControl::stop_at_boundary>();
}

void Controller::on_signal(int signal) {
  if (signal == SIGUSR1) {
    journal_.checkpoint_wanted();
    if (control_) (void)control_->cast<&job::WorkerControl::checkpoint_now>();
    return;
  }
  if (stop_requested_ && signal == SIGINT) {
    end({RunEnd::Status::stopped, "interrupted twice; the newest checkpoint is older", false, {}});
    return kill_all_workers();
  }
  if (!first_commit_) {
    // There is nothing to save, and perhaps nobody who comes to a boundary.
    end({RunEnd::Status::stopped, "before the first step of this session", false, {}});
    return kill_all_workers();
  }
  if (!stop_requested_) {
    journal_.warning(signal == SIGINT
                         ? "interrupted: ending at the next step boundary, with a checkpoint; once "
                           "more ends at once"
                         : fmt::format("SIG{}: ending at the next step boundary, with a checkpoint",
                                       sigabbrev_np(signal)));
  }
  if (signal != SIGINT) set_kill_deadline();
  ask_workers_to_stop();
}

// Random faults come from outside, at any instruction of the victim.
void Controller::inject_due_faults() {
  if (!first_commit_ || stop_requested_) return;
  const Instant now = clock_.now();
  for (std::size_t i = 0; i < faults_.random.size(); ++i) {
    const auto& random = faults_.random[i];
    auto& done = random_faults_done_[i];
    if (random.count && done >= *random.count) continue;
    if (now < *first_commit_ + random.time_of(done)) continue;
    std::vector<std::size_t> candidates;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      if (is_training(workers_[rank])) candidates.push_back(rank);
    }
    // Never the last one that has the state: that would be another experiment.
    if (candidates.size() < 2) continue;
    const std::size_t victim = candidates[static_cast<std::size_t>(
        random.victim_of(done, static_cast<int>(candidates.size())))];
    ++done;
    const int signal = random.kind == job::FaultKind::stop       ? SIGSTOP
                       : random.kind == job::FaultKind::segfault ? SIGSEGV
                                                                 : SIGKILL;
    journal_.injected(static_cast<int>(victim), std::string(to_string(random.kind)), clock_.now());
    (void)mesh_->kill(victim, signal);
  }
}

}  // namespace teson::apps
