#include "teson/sim/cluster.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "teson/actor/proc_ticket.h"
#include "teson/base/check.h"
#include "teson/sim/draw.h"

namespace teson::sim {

namespace {

constexpr int backlog = 64;

/// "fd:parent:signal:token" or a ticket, as a process gets it, with its own descriptor in place of the one that every real one has.
struct Inherited {
  std::string text;
  int death_signal = 0;
};

Inherited inherited(const std::string& text, int fd) {
  if (auto ticket = actor::detail::read_ticket(text)) {
    ticket->agent_fd = fd;
    return {actor::detail::ticket_text(*ticket), static_cast<int>(ticket->death_signal)};
  }
  const auto first = text.find(':');
  const auto second = text.find(':', first + 1);
  TESON_CHECK(first != std::string::npos && second != std::string::npos, text);
  Inherited result{.text = fmt::format("{}{}", fd, text.substr(first))};
  std::from_chars(text.data() + second + 1, text.data() + text.size(), result.death_signal);
  return result;
}

std::pair<sockaddr_un, socklen_t> abstract_name(const std::string& text) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  TESON_CHECK(text.size() + 1 < sizeof(name.sun_path), text);
  std::copy(text.begin(), text.end(), name.sun_path + 1);
  return {name, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())};
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
  scheduler_.on_listen = [this](Process& process, const std::string& address) {
    return listen(process, address);
  };
  scheduler_.on_connect = [this](Process& process, const std::string& address) {
    return connect(process, address);
  };
}

Cluster::~Cluster() {
  scheduler_.on_end = {};
  scheduler_.on_listen = scheduler_.on_connect = {};
  ending_ = true;
  wake_kernel();
  kernel_.join();
}

std::shared_ptr<actor::detail::Launcher> Cluster::launcher() {
  return std::make_shared<SimulatedLauncher>(*this);
}

std::function<void()> Cluster::main_of(const std::string& program) {
  return [this, main = programs_.at(program)] {
    sleep_for(draw(scheduler_.random(), options_.start_max));
    main();
  };
}

int Cluster::start(int host, const std::string& program) {
  Process& process = scheduler_.start(scheduler_.process(), host, program, {}, main_of(program));
  children_[process.number] = {.process = &process};
  return process.number;
}

Result<std::unique_ptr<actor::detail::ProcLife>> Cluster::start(
    net::Loop& loop, std::string host, const actor::detail::ChildSpec& spec, int socket) {
  const std::string program = spec.program.string();
  if (!programs_.contains(program))
    return fail(ErrorKind::failed, fmt::format("starting {}: no such program", program));
  std::unordered_map<std::string, std::string> variables(spec.environment.begin(),
                                                         spec.environment.end());
  Process& parent = scheduler_.process();
  Child child;
  auto& text = variables[actor::detail::proc_variable];
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  auto given = inherited(text, ends[1]);
  text = std::move(given.text);
  child.death_signal = given.death_signal;
  Process& process =
      scheduler_.start(parent, parent.host, program, std::move(variables), main_of(program));
  const int copy = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail_errno("dup", errno);
  network_.join({.fd = Fd(copy), .process = parent.number, .host = parent.host},
                {.fd = Fd(ends[0]), .process = process.number, .host = process.host});
  wake_kernel();
  auto watcher = std::make_shared<Watcher>(Watcher{.loop = &loop, .parent = &parent});
  child.process = &process;
  child.watcher = watcher;
  children_.emplace(process.number, std::move(child));
  return std::make_unique<SimulatedLife>(*this, process.number, std::move(host),
                                         std::move(watcher));
}

Fd Cluster::listen(Process& process, const std::string& address) {
  const auto found = doors_.find(address);
  if (found != doors_.end() && !found->second.process->dead) {
    errno = EADDRINUSE;
    return Fd();
  }
  // A name of this process alone, in the abstract namespace of Unix sockets.
  const std::string path = fmt::format("teson-sim-{}-{}", ::getpid(), next_door_++);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto [name, bytes] = abstract_name(path);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0 ||
      ::listen(fd.get(), backlog) != 0)
    return Fd();
  doors_[address] = {path, &process};
  return fd;
}

Fd Cluster::connect(Process& process, const std::string& address) {
  const auto found = doors_.find(address);
  if (found == doors_.end() || found->second.process->dead) {
    errno = ECONNREFUSED;
    return Fd();
  }
  const Process& owner = *found->second.process;
  Fd far(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto [name, bytes] = abstract_name(found->second.path);
  if (!far || ::connect(far.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0)
    return Fd();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return Fd();
  network_.join({.fd = Fd(ends[0]), .process = process.number, .host = process.host},
                {.fd = std::move(far), .process = owner.number, .host = owner.host});
  wake_kernel();
  return Fd(ends[1]);
}

std::vector<int> Cluster::living(std::optional<int> host) const {
  std::vector<int> living;
  for (const auto& [number, child] : children_) {
    if (!child.process->dead && (!host || child.process->host == *host)) living.push_back(number);
  }
  return living;
}

void Cluster::lose_host(int host) {
  network_.silence(host);
  for (const int number : living(host))
    signal(number, SIGKILL);
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
  events_.emplace(scheduler_.now() + draw(scheduler_.random(), most), std::move(function));
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
