#include "teson/sim/cluster.h"

#include <charconv>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "teson/actor/proc_ticket.h"
#include "teson/base/check.h"

namespace teson::sim {

namespace {

/// "fd:parent:signal:token", as a child gets it, with its own descriptor in place of the one that every real child has.
struct Inherited {
  std::string text;
  int death_signal = 0;
};

Inherited inherited(const std::string& text, int fd) {
  const auto first = text.find(':');
  const auto second = text.find(':', first + 1);
  TESON_CHECK(first != std::string::npos && second != std::string::npos, text);
  Inherited result{.text = fmt::format("{}{}", fd, text.substr(first))};
  std::from_chars(text.data() + second + 1, text.data() + text.size(), result.death_signal);
  return result;
}

}  // namespace

/// Who wants to know of a process's end. Its function belongs to the thread of its loop.
struct Cluster::Watcher {
  net::Loop* loop = nullptr;
  Process* parent = nullptr;
  actor::detail::ProcLife::Ended ended;
};

class Cluster::SimulatedLife final : public actor::detail::ProcLife {
 public:
  SimulatedLife(Cluster& cluster, int process, std::string host, std::shared_ptr<Watcher> watcher)
      : cluster_(cluster),
        process_(process),
        host_(std::move(host)),
        watcher_(std::move(watcher)) {}
  ~SimulatedLife() override { cluster_.signal(process_, SIGKILL); }

  std::int64_t pid() const override { return pid_of(process_); }
  std::string host() const override { return host_; }
  Result<void> signal(int number) override {
    cluster_.signal(process_, number);
    return {};
  }
  std::vector<std::string> last_lines() const override { return {}; }
  void watch(Ended ended) override { watcher_->ended = std::move(ended); }
  void unwatch() override { watcher_->ended = {}; }

 private:
  Cluster& cluster_;
  const int process_;
  const std::string host_;
  const std::shared_ptr<Watcher> watcher_;
};

class Cluster::SimulatedLauncher final : public actor::detail::Launcher {
 public:
  explicit SimulatedLauncher(Cluster& cluster) : cluster_(cluster) {}
  Result<std::unique_ptr<actor::detail::ProcLife>> start(net::Loop& loop, std::string host,
                                                         const actor::detail::ChildSpec& spec,
                                                         int socket) override {
    return cluster_.start(loop, std::move(host), spec, socket);
  }

 private:
  Cluster& cluster_;
};

Cluster::Cluster(Scheduler& scheduler, ClusterOptions options, Programs programs)
    : scheduler_(scheduler),
      options_(options),
      programs_(std::move(programs)),
      network_(scheduler.random(), options.network),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      kernel_("kernel", [this] { run_kernel(); }) {
  scheduler_.on_end = [this](Process& process, int code, int signal) {
    ended(process, code, signal);
  };
}

Cluster::~Cluster() {
  scheduler_.on_end = {};
  ending_ = true;
  wake_kernel();
  kernel_.join();
}

std::shared_ptr<actor::detail::Launcher> Cluster::launcher() {
  return std::make_shared<SimulatedLauncher>(*this);
}

Result<std::unique_ptr<actor::detail::ProcLife>> Cluster::start(
    net::Loop& loop, std::string host, const actor::detail::ChildSpec& spec, int socket) {
  const auto program = programs_.find(spec.program.string());
  if (program == programs_.end()) {
    return fail(ErrorKind::failed,
                fmt::format("starting {}: no such program", spec.program.string()));
  }
  std::unordered_map<std::string, std::string> variables(spec.environment.begin(),
                                                         spec.environment.end());
  Process& parent = scheduler_.process();
  Child child;
  int ends[2] = {-1, -1};
  if (socket >= 0) {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return fail_errno("socketpair", errno);
    auto& text = variables[actor::detail::proc_variable];
    auto given = inherited(text, ends[1]);
    text = std::move(given.text);
    child.death_signal = given.death_signal;
  }
  Process& process = scheduler_.start(
      parent, spec.program.string(), std::move(variables), [this, main = program->second] {
        const auto wait =
            scheduler_.random().below(static_cast<std::uint64_t>(options_.start_max.count()) + 1);
        sleep_for(Duration(static_cast<std::int64_t>(wait)));
        main();
      });
  if (socket >= 0) {
    const int copy = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return fail_errno("dup", errno);
    network_.join({.fd = Fd(copy), .process = parent.number},
                  {.fd = Fd(ends[0]), .process = process.number});
    wake_kernel();
  }
  auto watcher = std::make_shared<Watcher>(Watcher{.loop = &loop, .parent = &parent});
  child.process = &process;
  child.watcher = watcher;
  children_.emplace(process.number, std::move(child));
  return std::make_unique<SimulatedLife>(*this, process.number, std::move(host),
                                         std::move(watcher));
}

std::vector<int> Cluster::living() const {
  std::vector<int> living;
  for (const auto& [number, child] : children_) {
    if (!child.process->dead) living.push_back(number);
  }
  return living;
}

void Cluster::signal(int number, int signal) {
  const auto found = children_.find(number);
  if (found == children_.end() || found->second.process->dead) return;
  Process& process = *found->second.process;
  switch (signal) {
    case SIGSTOP:
      process.stopped = true;
      break;
    case SIGCONT:
      process.stopped = false;
      break;
    default:
      scheduler_.end(process, -1, signal);
  }
}

void Cluster::ended(Process& process, int code, int signal) {
  soon(options_.notice_max, [this, &process, code, signal] { tell(process, code, signal); });
  // What it held is closed by then.
  soon(options_.notice_max, [this, number = process.number] { network_.process_ended(number); });
  for (const auto& [number, child] : children_) {
    if (child.process->parent != process.number || child.death_signal == 0) continue;
    soon(options_.notice_max, [this, number = number, death_signal = child.death_signal] {
      this->signal(number, death_signal);
    });
  }
}

void Cluster::tell(Process& process, int code, int signal) {
  const auto watcher = children_.at(process.number).watcher.lock();
  if (!watcher || watcher->parent->dead) return;
  watcher->loop->post([weak = std::weak_ptr(watcher), code, signal] {
    const auto still = weak.lock();
    if (!still) return;
    if (const auto ended = std::exchange(still->ended, {}))
      ended({.code = code, .signal = signal}, "");
  });
}

void Cluster::soon(Duration most, std::function<void()> function) {
  const auto wait = scheduler_.random().below(static_cast<std::uint64_t>(most.count()) + 1);
  events_.emplace(scheduler_.now() + Duration(static_cast<std::int64_t>(wait)),
                  std::move(function));
  wake_kernel();
}

void Cluster::wake_kernel() {
  ::eventfd_write(wake_.get(), 1);
}

void Cluster::run_kernel() {
  while (!ending_) {
    while (!events_.empty() && events_.begin()->first <= scheduler_.now())
      events_.extract(events_.begin()).mapped()();
    network_.step(scheduler_.now());
    std::vector<pollfd> fds{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    network_.add_waits(fds);
    const Instant event = events_.empty() ? Instant::max() : events_.begin()->first;
    poll_until(fds, std::min(event, network_.next_due()));
    eventfd_t count = 0;
    if (fds[0].revents != 0) ::eventfd_read(wake_.get(), &count);
  }
}

}  // namespace teson::sim
