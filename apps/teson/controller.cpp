#include "apps/teson/controller.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/teson/commands.h"
#include "apps/teson/restart_policies.h"
#include "apps/teson/resume.h"
#include "teson/base/log.h"
#include "teson/base/random.h"
#include "teson/net/address.h"

namespace teson::apps {
namespace {

using namespace std::chrono_literals;

// How often the live line is drawn when nothing happens.
constexpr Duration kTick = 200ms;
constexpr std::size_t kLighthouseRestartsMax = 20;
constexpr std::size_t kLighthouseCrashesAtStartMax = 5;

}  // namespace

// Workers' reports arrive on an actor's thread; the controller's own thread deals with them.
class Controller::Observer final : public job::RunObserver {
 public:
  explicit Observer(Controller& controller) : controller_(controller) {}

  void step_committed(const job::StepReport& report) override {
    post([report](Controller& controller) {
      controller.journal_.committed(report);
      if (!controller.first_commit_) controller.first_commit();
    });
  }
  void evaluated(const job::EvaluationReport& report) override {
    post([report](Controller& controller) {
      controller.journal_.evaluated(report.step, report.loss);
    });
  }
  void checkpoint_ended(const job::CheckpointReport& report) override {
    post([report](Controller& controller) { controller.journal_.checkpoint(report); });
  }
  void checkpoint_damaged(const job::DamagedCheckpoint& report) override {
    post([report](Controller& controller) {
      pass_over(controller.config_, controller.journal_, report.path, report.reason);
    });
  }
  void entered(const job::EnteredReport& report) override {
    post([report](Controller& controller) { controller.on_entered(report); });
  }
  void finished(const job::FinishReport& report) override {
    post([report](Controller& controller) {
      RunEnd end;
      end.status = report.kind == job::EndKind::completed ? RunEnd::Status::completed
                   : report.kind == job::EndKind::stopped ? RunEnd::Status::stopped
                                                          : RunEnd::Status::failed;
      end.reason = report.reason;
      end.report = report;
      controller.end(std::move(end));
    });
  }
  void failed(std::int32_t replica, const Error& error) override {
    post([replica, error](Controller& controller) {
      auto& worker = controller.workers_[static_cast<std::size_t>(replica)];
      worker.last_words = error.message;
      worker.hopeless = error.kind == ErrorKind::invalid && !worker.expelled;
    });
  }

 private:
  void post(std::function<void(Controller&)> function) {
    controller_.queue_.post([this, function = std::move(function)] { function(controller_); });
  }
  Controller& controller_;
};

Controller::Controller(const job::Config& config, job::RunFolder& folder,
                       const std::filesystem::path& prepared, const job::FaultPlan& faults,
                       RunJournal& journal, EventQueue& queue, const Clock& clock)
    : config_(config),
      folder_(folder),
      prepared_(prepared),
      faults_(faults),
      journal_(journal),
      queue_(queue),
      clock_(clock),
      workers_(static_cast<std::size_t>(config.cluster.replicas)),
      budget_(run_policy(config), clock) {}

Controller::~Controller() {
  // Workers first: the lighthouse must not take their end for a failure.
  ending_ = true;
  mesh_.reset();
  agent_.reset();
  lighthouse_.reset();
}

RunEnd Controller::run() {
  if (auto started = start(); !started)
    return {RunEnd::Status::failed, started.error().message, false, {}};
  while (!end_) {
    queue_.run_until(next_deadline());
    if (end_) break;
    const Instant now = clock_.now();
    kill_expelled_workers();
    restart_due_workers();
    inject_due_faults();
    journal_.tick();
    if (!folder_.is_in_place()) {
      end({RunEnd::Status::failed,
           fmt::format("'{}' was moved or removed while the run went on: start it again with the "
                       "folder's new place (--run-dir)",
                       folder_.paths().dir.string()),
           false,
           {}});
      kill_all_workers();
      break;
    }
    if (kill_deadline_ && now >= *kill_deadline_) {
      kill_all_workers();
      end({RunEnd::Status::stopped,
           "the grace time was over before a step boundary; the newest checkpoint is older",
           false,
           {}});
    }
  }
  ending_ = true;
  mesh_->stop();
  return *end_;
}

Result<void> Controller::start() {
  actor::SystemOptions options;
  options.on_actor_failure = [this](const actor::ActorFailure& failure) {
    queue_.post([this, failure] { on_actor_failure(failure); });
  };
  system_ = std::make_unique<actor::System>(std::move(options));
  serve_admin();
  observer_ = system_->host<job::RunObserver>("observer", std::make_unique<Observer>(*this));
  if (config_.cluster.fault_tolerance) {
    lighthouse_address_ = config_.cluster.lighthouse;
    if (lighthouse_address_.empty()) TESON_TRY_VOID(start_lighthouse());
    TESON_TRY_VOID(start_agent());
  }
  return start_workers();
}

// Without it the run goes on all the same.
void Controller::serve_admin() {
  const auto served =
      net::Address::unix_path(folder_.admin_socket().string())
          .and_then([this](const net::Address& address) { return system_->serve_admin(address); });
  if (!served) {
    journal_.warning(
        fmt::format("teson ps and teson trace will not find this run: {}", served.error().message));
  }
}

Result<void> Controller::start_agent() {
  quorum::AgentOptions agent;
  TESON_TRY(agent.lighthouse, net::Address::parse(lighthouse_address_));
  agent.job = config_.run.name;
  agent.secret = folder_.secret();
  agent.name = "controller";
  agent.on_event = [this](const quorum::Event& event) {
    queue_.post([this, event] { on_quorum_event(event); });
  };
  agent.on_record = [this](const quorum::RecordNews& news) {
    queue_.post([this, news] { on_record(news); });
  };
  agent.on_link = [this](bool up) {
    if (up) queue_.post([this] { on_lighthouse_reached(); });
  };
  agent.on_unreachable = [this](const Error& error) {
    queue_.post([this, error] { on_lighthouse_unreachable(error); });
  };
  agent.on_refused = [this](const quorum::Refused& refused) {
    queue_.post([this, refused] { on_lighthouse_refused(refused); });
  };
  agent_ = quorum::Agent::start(system_->loop(), std::move(agent));
  return {};
}

Result<void> Controller::start_lighthouse() {
  lighthouse_address_ = fmt::format("unix:{}/lighthouse", folder_.socket_folder().string());
  actor::ProcOptions options;
  options.name = "lighthouse";
  options.program = program_folder() / "teson";
  options.arguments = [this](const actor::ProcPlace&) {
    return std::vector<std::string>{
        "--verbose",      "lighthouse",
        "--job-bind",     lighthouse_address_,
        "--job",          config_.run.name,
        "--replicas",     fmt::format("{}", config_.cluster.replicas),
        "--min-replicas", fmt::format("{}", config_.cluster.min_replicas),
        "--record",       folder_.paths().lighthouse_record().string(),
        "--heartbeat-ms", fmt::format("{}", config_.cluster.heartbeat_ms)};
  };
  options.environment = [this](const actor::ProcPlace&) {
    return std::map<std::string, std::string>{{kSecretVariable, folder_.secret()}};
  };
  options.log_file = [this](const actor::ProcPlace&) { return folder_.paths().lighthouse_log(); };
  TESON_TRY(lighthouse_,
            actor::this_host(*system_).spawn_procs({{"lighthouse", 1}}, std::move(options)));
  lighthouse_budget_.emplace(crash_policy(kLighthouseCrashesAtStartMax), clock_);
  lighthouse_->on_failure([this](const actor::ProcExit& exit) {
    queue_.post([this, exit] { on_lighthouse_exit(exit); });
  });
  return {};
}

void Controller::first_commit() {
  first_commit_ = clock_.now();
  lighthouse_budget_.emplace(crash_policy(kLighthouseRestartsMax), clock_);
}

void Controller::on_lighthouse_exit(const actor::ProcExit& exit) {
  if (ending_ || end_ || failure_) return;
  // Ending itself before it was of use, or for what only the user can mend, it would do so again.
  if (exit.exit_code == kUserError || (exit.exit_code > 0 && !first_commit_)) {
    std::string_view words;
    if (!exit.last_lines.empty()) words = exit.last_lines.back();
    if (words.starts_with("teson: ")) words.remove_prefix(words.find(' ') + 1);
    return give_up(words.empty() ? exit.describe("lighthouse") : std::string(words),
                   exit.exit_code == kUserError);
  }
  const auto delay = lighthouse_budget_->next(0);
  if (!delay) return give_up("the lighthouse ends again and again: " + exit.describe("lighthouse"));
  journal_.warning(
      fmt::format("{}; training goes on, it is started again", exit.describe("lighthouse")));
  lighthouse_restart_at_ = clock_.now() + *delay;
}

std::string Controller::data_address(int replica, std::uint64_t instance) const {
  return fmt::format("unix:{}/data{}-{:08x}", folder_.socket_folder().string(), replica,
                     instance & 0xffffffff);
}

Result<void> Controller::start_workers() {
  actor::ProcOptions options;
  options.name = "workers";
  options.program = program_folder() / "teson-worker";
  options.arguments = [](const actor::ProcPlace&) { return std::vector<std::string>{"rank"}; };
  options.log_file = [this](const actor::ProcPlace& place) {
    return folder_.paths().worker_log(static_cast<int>(place.rank));
  };
  // The kernels' threads are a setting of the job, not of the shell it was started from.
  options.environment = [this](const actor::ProcPlace&) {
    std::map<std::string, std::string> environment{
        {"OMP_NUM_THREADS", fmt::format("{}", config_.train.threads)}};
    if (log_level() <= LogLevel::info) environment.emplace("TESON_VERBOSE", "1");
    return environment;
  };
  const Instant spawned = clock_.now();
  for (auto& worker : workers_)
    worker.instance = entropy64();
  TESON_TRY(mesh_,
            actor::this_host(*system_).spawn_procs(
                {{"replica", static_cast<std::uint64_t>(config_.cluster.replicas)}, {"shard", 1}},
                std::move(options)));
  control_ = mesh_->spawn<job::WorkerControl>("control");
  for (int replica = 0; replica < config_.cluster.replicas; ++replica) {
    journal_.spawned(replica, spawned);
    give_order(replica);
  }
  mesh_->on_failure(
      [this](const actor::ProcExit& exit) { queue_.post([this, exit] { on_worker_exit(exit); }); });
  return {};
}

void Controller::give_order(int replica) {
  job::WorkerOrder order;
  order.run_dir = folder_.paths().dir.string();
  order.prepared = prepared_.string();
  order.replica = replica;
  order.instance = workers_[static_cast<std::size_t>(replica)].instance;
  order.lighthouse = lighthouse_address_;
  order.data_address = data_address(replica, order.instance);
  order.faults = job::to_texts(faults_);
  order.observer = observer_;
  if (!config_.cluster.fault_tolerance) {
    for (int peer = 0; peer < config_.cluster.replicas; ++peer) {
      const auto instance = workers_[static_cast<std::size_t>(peer)].instance;
      order.fixed_addresses.push_back(data_address(peer, instance));
      order.fixed_instances.push_back(instance);
    }
  }
  // If it has ended already, its exit says why and what follows.
  (void)control_->at(static_cast<std::size_t>(replica)).cast<&job::WorkerControl::start>(order);
}

Instant Controller::next_deadline() const {
  Instant deadline = clock_.now() + kTick;
  for (const auto& worker : workers_) {
    if (worker.restart_at) deadline = std::min(deadline, *worker.restart_at);
    if (worker.kill_at) deadline = std::min(deadline, *worker.kill_at);
  }
  if (const auto next = journal_.next_tick()) deadline = std::min(deadline, *next);
  if (lighthouse_restart_at_) deadline = std::min(deadline, *lighthouse_restart_at_);
  if (kill_deadline_) deadline = std::min(deadline, *kill_deadline_);
  if (first_commit_) {
    for (std::size_t i = 0; i < faults_.random.size(); ++i) {
      const auto done = random_faults_done_.find(i);
      deadline = std::min(
          deadline, *first_commit_ + faults_.random[i].time_of(
                                         done == random_faults_done_.end() ? 0 : done->second));
    }
  }
  return deadline;
}

void Controller::end(RunEnd end) {
  if (end_) return;
  end_ = std::move(end);
  if (!failure_ || end_->status == RunEnd::Status::failed) return;
  failure_->report = std::move(end_->report);
  end_ = std::move(failure_);
}

}  // namespace teson::apps
