#include "teson/actor/host_agent.h"

#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "teson/actor/handshake_options.h"
#include "teson/actor/links.h"
#include "teson/actor/proc.h"
#include "teson/actor/proc_life.h"
#include "teson/actor/proc_ticket.h"
#include "teson/actor/read_request.h"
#include "teson/actor/relays.h"
#include "teson/actor/wire.h"
#include "teson/base/clock.h"
#include "teson/base/host_name.h"
#include "teson/base/random.h"
#include "teson/base/thread.h"
#include "teson/base/world.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"

namespace teson::actor {

namespace detail {

/// One owner's processes on this machine. The kernel ends them with the thread of this actor, which
/// starts them. What the owner relays to them passes on the loop's thread, so that a start that takes
/// long does not hold it up.
class AgentActor final : public HostAgent {
 public:
  AgentActor(Proc& proc, std::shared_ptr<Launcher> launcher, std::string host,
             ActorRef<HostObserver> observer)
      : proc_(proc), launcher_(std::move(launcher)), host_(std::move(host)), observer_(observer) {
    proc_.on_relay([this](net::Message message) { relay(std::move(message)); });
  }
  ~AgentActor() override {
    std::map<std::uint64_t, Started> procs;
    proc_.on_relay({});
    proc_.loop().run([&] {
      std::lock_guard lock(mutex_);
      procs.swap(procs_);
      for (const auto& [id, started] : procs)
        started.life->unwatch();
    });
    // Their end kills them.
  }

  Result<std::int64_t> start(const HostProc& wanted) override {
    TESON_TRY(ProcTicket ticket, read_ticket(wanted.ticket));
    ticket.parent = own_pid();
    ticket.death_signal = wanted.parent_death_signal ? SIGKILL : 0;
    ticket.agent_fd = ChildProcess::child_socket_fd;
    ticket.agent_token = random_word();
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
      return fail_errno("socketpair for a process", errno);
    Fd own(fds[0]);
    const Fd theirs(fds[1]);
    ChildSpec spec{.program = wanted.program,
                   .arguments = wanted.arguments,
                   .environment = wanted.environment,
                   .log_file = wanted.log_file,
                   .working_folder = wanted.working_folder};
    spec.environment[proc_variable] = ticket_text(ticket);
    TESON_TRY(std::shared_ptr<ProcLife> life,
              launcher_->start(proc_.loop(), host_, spec, theirs.get()));
    const std::int64_t pid = life->pid();
    const auto channel = link(std::move(own), ticket.agent_token,
                              Duration(static_cast<std::int64_t>(wanted.attach_deadline_ns)));
    proc_.loop().run([&] {
      life->watch([this, id = wanted.proc](const ExitStatus& status, const std::string&) {
        ended(id, status);
      });
      std::lock_guard lock(mutex_);
      procs_[wanted.proc] = {std::move(life), channel};
    });
    channel->start({.on_closed = [this, id = wanted.proc](const Error&) { out_of_reach(id); }});
    return pid;
  }

  void signal(std::uint64_t proc, std::int32_t number) override {
    std::lock_guard lock(mutex_);
    const auto found = procs_.find(proc);
    if (found != procs_.end()) (void)found->second.life->signal(number);
  }

 private:
  struct Started {
    std::shared_ptr<ProcLife> life;
    std::shared_ptr<net::Channel> channel;
  };

  std::shared_ptr<net::Channel> link(Fd own, const std::string& token, Duration deadline) {
    net::ChannelOptions options;
    options.handshake = handshake_options(agent_job, token, Hello{wire_hash()});
    options.handshake_deadline = deadline;
    // The owner has less on its way: none is refused.
    options.outgoing_bytes_max = 2 * Relays::call_bytes_max;
    return net::Channel::adopt(proc_.loop(), std::move(own), net::HandshakeRole::acceptor,
                               std::move(options));
  }

  /// Loop's thread.
  void relay(net::Message message) {
    if (message.kind == static_cast<std::uint16_t>(Kind::relay_to)) {
      relay_to_ = read_request<RelayTo>(owner_proc, message.payload.bytes(), "list of receivers");
      return;
    }
    const auto to = std::exchange(relay_to_, {});
    if (!to || to->number != message.epoch) {
      return log_warning("actor", "a call was to be relayed, but not said to whom");
    }
    const net::Payload call = shareable(std::move(message.payload));
    for (const std::uint64_t proc : to->procs) {
      const auto channel = channel_to(proc);
      if (!channel || !channel->send(static_cast<std::uint16_t>(Kind::relayed), call, to->number))
        out_of_reach(proc);
    }
  }

  /// A large one once into shared memory, however many read it there.
  static net::Payload shareable(net::Buffer call) {
    if (call.size() < net::shared_payload_bytes_min) return net::Payload(std::move(call));
    net::PayloadWriter writer;
    writer.reserve(call.size());
    writer.append(call.text().data(), call.size());
    return std::move(writer).finish();
  }

  std::shared_ptr<net::Channel> channel_to(std::uint64_t proc) {
    std::lock_guard lock(mutex_);
    const auto found = procs_.find(proc);
    return found == procs_.end() ? nullptr : found->second.channel;
  }

  void out_of_reach(std::uint64_t proc) {
    (void)proc_.actor(observer_).cast<&HostObserver::out_of_reach>(proc);
  }

  void ended(std::uint64_t proc, const ExitStatus& status) {
    Started started;
    {
      std::lock_guard lock(mutex_);
      const auto found = procs_.extract(proc);
      if (found.empty()) return;
      started = found.mapped();
    }
    const HostProcEnd end{.proc = proc,
                          .code = status.code,
                          .signal = status.signal,
                          .core_dumped = status.core_dumped,
                          .unknown = status.unknown,
                          .last_lines = started.life->last_lines()};
    (void)proc_.actor(observer_).cast<&HostObserver::ended>(end);
    // Not within a function of its own.
    proc_.loop().post([started] {});
  }

  Proc& proc_;
  const std::shared_ptr<Launcher> launcher_;
  const std::string host_;
  const ActorRef<HostObserver> observer_;
  Mutex mutex_;
  std::map<std::uint64_t, Started> procs_;
  std::optional<RelayTo> relay_to_;  ///< loop's thread; of the call that follows
};

}  // namespace detail

namespace {

/// Owners at one time.
constexpr std::size_t owners_max = 16;
constexpr Duration connect_deadline = std::chrono::seconds(10);

}  // namespace

struct HostServer::State {
  /// The thread that serves one owner; its end is waited for when it goes.
  struct Session {
    std::atomic<bool> done{false};
    ~Session() {
      if (thread.joinable()) thread.join();
    }
    Thread thread;
  };

  /// The connection to an owner.
  struct Served {
    Proc* proc;
    std::string token;  ///< of an owner that has connected
  };

  explicit State(HostAgentOptions agent_options)
      : options(completed(std::move(agent_options))),
        // Owners count theirs from 1; agents choose far above.
        id((std::uint64_t{1} << 62) | (entropy64() >> 2)),
        cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  static HostAgentOptions completed(HostAgentOptions options) {
    if (options.name.empty()) options.name = host_name();
    if (!options.launcher) options.launcher = detail::system_launcher();
    return options;
  }

  /// `token`: of a connection that this agent makes, or resumes.
  net::ChannelOptions channel_options(const std::string& token = {}, bool resumes = false) const {
    net::ChannelOptions result;
    result.tls = options.tls;
    result.resumable = true;
    result.handshake = detail::handshake_options(detail::link_job, options.secret,
                                                 detail::LinkHello{.wire = detail::wire_hash(),
                                                                   .role = detail::LinkRole::host,
                                                                   .proc = id,
                                                                   .pid = own_pid(),
                                                                   .host = options.name,
                                                                   .token = token,
                                                                   .resumes = resumes});
    return result;
  }

  void say(const std::string& line) const {
    if (options.say) options.say(line);
  }

  Result<void> listen() {
    net::ChannelListenerOptions listening{.channel = channel_options()};
    TESON_TRY(listener, net::ChannelListener::listen(loop, options.address, std::move(listening),
                                                     [this](std::unique_ptr<net::Channel> channel) {
                                                       accept(std::move(channel));
                                                     }));
    say("waiting for an owner at " + listener->address().to_string());
    return {};
  }

  /// Loop's thread.
  void accept(std::unique_ptr<net::Channel> channel) {
    std::lock_guard lock(mutex);
    const auto owner = net::decode<detail::OwnerHello>(channel->peer_body());
    if (owner && owner->resumes) {
      for (const auto& [proc, token] : procs) {
        if (detail::same_word(owner->token, token)) return proc->resume(std::move(channel));
      }
      return;  // it was given up: the end of this connection says so
    }
    sessions.remove_if([](Session& session) { return session.done.load(); });
    if (stopping || sessions.size() >= owners_max) return;
    Session& session = sessions.emplace_back();
    auto shared = std::make_shared<std::unique_ptr<net::Channel>>(std::move(channel));
    session.thread = Thread("teson-owner", [this, shared, &session] {
      serve(std::move(*shared));
      session.done = true;
    });
  }

  /// Connects, serves, and again, until stopped.
  void join() {
    std::string problem;
    while (true) {
      {
        std::unique_lock lock(mutex);
        if (stopping) return;
      }
      const std::string token = detail::random_word();
      auto channel = net::Channel::connect(loop, options.address, channel_options(token),
                                           now() + connect_deadline, cancel.get());
      if (channel) {
        problem.clear();
        net::Dial again{(*channel)->endpoint(), channel_options(token, true)};
        serve(std::move(*channel), std::move(again));
      } else if (const std::string now = channel.error().describe(); now != problem) {
        // Said once, however often it is tried.
        problem = now;
        say("no owner yet: " + now + "; trying on");
      }
      std::unique_lock lock(mutex);
      changed.wait_for(lock, options.connect_interval, [this] { return stopping; });
    }
  }

  /// Until the owner is gone, or this agent is to end.
  void serve(std::unique_ptr<net::Channel> channel, std::optional<net::Dial> dial = {}) {
    const std::string who = channel->peer().to_string();
    const auto owner = net::decode<detail::OwnerHello>(channel->peer_body());
    if (!owner || owner->wire != detail::wire_hash())
      return say("the owner at " + who + " is of another build of this library: not served");
    const auto proc =
        Proc::over(loop, std::move(channel), id,
                   Duration(static_cast<std::int64_t>(owner->host_heartbeat_ns)), std::move(dial));
    proc->serve<detail::HostAgent>([&](const ProcContext&,
                                       ActorRef<detail::HostObserver> observer) {
      return std::make_unique<detail::AgentActor>(*proc, options.launcher, options.name, observer);
    });
    std::list<Served>::iterator place;
    {
      std::lock_guard lock(mutex);
      if (stopping) return;
      place = procs.insert(procs.end(), {proc.get(), owner->token});
    }
    proc->start();
    say("serving the owner at " + who);
    const StopReason why = proc->wait();
    {
      std::lock_guard lock(mutex);
      procs.erase(place);
    }
    if (why == StopReason::parent_gone)
      say("the owner at " + who + " is gone: its processes are ended");
  }

  void stop() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
      for (const auto& [proc, token] : procs)
        proc->stop();
    }
    changed.notify_all();
    ::eventfd_write(cancel.get(), 1);
    listener.reset();
    sessions.clear();
  }

  const HostAgentOptions options;
  const std::uint64_t id;
  const Fd cancel;
  net::Loop loop{"teson-host-io"};
  std::unique_ptr<net::ChannelListener> listener;
  Mutex mutex;
  Condition changed;
  std::list<Served> procs;
  std::list<Session> sessions;
  bool stopping = false;
};

Result<std::unique_ptr<HostServer>> HostServer::start(HostAgentOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  if (!state->cancel) return fail_errno("eventfd", errno);
  if (state->options.listen) {
    TESON_TRY_VOID(state->listen());
  } else {
    state->sessions.emplace_back().thread =
        Thread("teson-owner", [state = state.get()] { state->join(); });
  }
  return std::unique_ptr<HostServer>(new HostServer(std::move(state)));
}

HostServer::HostServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
HostServer::~HostServer() {
  state_->stop();
}

net::Address HostServer::address() const {
  return state_->listener ? state_->listener->address() : state_->options.address;
}

}  // namespace teson::actor
