#include "teson/actor/host_link.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/actor/handshake_options.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/runtime.h"
#include "teson/base/log.h"
#include "teson/base/thread.h"

namespace teson::actor::detail {

namespace {

/// How long an agent may take to start a process.
constexpr Duration start_deadline = std::chrono::seconds(30);

class Observer final : public HostObserver {
 public:
  explicit Observer(Runtime& runtime) : runtime_(runtime) {}
  void ended(const HostProcEnd& end) override {
    runtime_.loop.post([&runtime = runtime_, end] { runtime.hosts.ended(end); });
  }
  void out_of_reach(std::uint64_t proc) override {
    runtime_.loop.post([&runtime = runtime_, proc] { runtime.hosts.out_of_reach(proc); });
  }

 private:
  Runtime& runtime_;
};

}  // namespace

/// A process that a host agent has started.
class AgentLife final : public ProcLife {
 public:
  AgentLife(std::shared_ptr<HostLink> host, std::uint64_t proc, std::int64_t pid)
      : host_(std::move(host)), proc_(proc), pid_(pid) {}
  ~AgentLife() override { host_->forget(proc_); }

  std::int64_t pid() const override { return pid_; }
  std::string host() const override { return host_->name(); }
  Result<void> signal(int number) override {
    host_->signal(proc_, number);
    return {};
  }
  std::vector<std::string> last_lines() const override {
    std::lock_guard lock(mutex_);
    return last_lines_;
  }
  void watch(Ended ended) override {
    ended_ = std::move(ended);
    std::optional<std::pair<ExitStatus, std::string>> early;
    early.swap(early_);
    if (early) end(early->first, {}, early->second);
  }
  void unwatch() override { ended_ = {}; }

  /// Loop's thread.
  void end(const ExitStatus& status, std::vector<std::string> last_lines,
           const std::string& cause) {
    {
      std::lock_guard lock(mutex_);
      if (!last_lines.empty()) last_lines_ = std::move(last_lines);
    }
    if (const auto ended = std::exchange(ended_, {})) return ended(status, cause);
    early_.emplace(status, cause);
  }

 private:
  const std::shared_ptr<HostLink> host_;
  const std::uint64_t proc_;
  const std::int64_t pid_;
  Ended ended_;                                              ///< loop's thread
  std::optional<std::pair<ExitStatus, std::string>> early_;  ///< loop's thread
  mutable Mutex mutex_;
  std::vector<std::string> last_lines_;
};

HostLink::HostLink(Runtime& runtime, std::uint64_t number, LinkHello hello)
    : runtime_(runtime),
      number_(number),
      id_(runtime.next_proc++),
      hello_(std::move(hello)),
      options_{.name = "hosts", .heartbeat = runtime.options.host_heartbeat} {}

std::optional<Error> HostLink::gone() const {
  std::lock_guard lock(mutex_);
  return gone_;
}

void HostLink::attach(std::unique_ptr<net::Channel> channel, std::optional<net::Dial> dial,
                      std::function<void(const std::string&)> lost) {
  lost_ = std::move(lost);
  Welcome welcome{.wire = wire_hash(),
                  .proc = id_,
                  .rank = number_,
                  .mesh = options_.name,
                  .heartbeat_ns = static_cast<std::uint64_t>(options_.heartbeat.count())};
  {
    std::lock_guard lock(mutex_);
    proc_ = std::make_shared<RemoteProc>(runtime_, options_,
                                         ProcPlace{static_cast<std::size_t>(number_), 0}, welcome);
  }
  const std::weak_ptr<HostLink> weak = weak_from_this();
  proc_->attach(std::move(channel), hello_, std::move(dial),
                {.ended = [weak](const ProcExit& exit) {
                  if (const auto self = weak.lock()) self->lose(exit.cause);
                }});
  actor_ = runtime_.node.next_actor_id();
  const std::string arguments =
      net::encode(std::tuple<ActorRef<HostObserver>>(runtime_.hosts.observer()));
  SpawnRequest request{.actor = actor_,
                       .class_hash = hash_text(class_name<HostAgent>()),
                       .interface = interface_hash<HostAgent>(),
                       .class_name = std::string(class_name<HostAgent>()),
                       .name = "host-agent",
                       .region = Region(Shape{}).layout(),
                       .arguments = std::as_bytes(std::span(arguments))};
  (void)proc_->send(Kind::spawn, net::Payload(net::encode(request)));
}

bool HostLink::is_resumed_by(const LinkHello& hello) const {
  return !gone() && hello.proc == agent_id() && same_word(hello.token, hello_.token);
}

Actor<HostAgent> HostLink::agent() const {
  return {runtime_.node, {id_, actor_}, start_deadline};
}

Result<std::shared_ptr<ProcLife>> HostLink::start(std::uint64_t proc, const ChildSpec& spec,
                                                  const ProcTicket& ticket,
                                                  const ProcOptions& options) {
  {
    std::lock_guard lock(mutex_);
    if (gone_) return Failure(*gone_);
    lives_[proc] = {};
  }
  const auto started =
      agent()
          .call<&HostAgent::start>(HostProc{
              .proc = proc,
              .program = spec.program.string(),
              .arguments = spec.arguments,
              .environment = spec.environment,
              .log_file = spec.log_file.string(),
              .working_folder = spec.working_folder.string(),
              .ticket = ticket_text(ticket),
              .attach_deadline_ns = static_cast<std::uint64_t>(options.attach_deadline.count()),
              .parent_death_signal = options.parent_death_signal})
          .wait();
  if (!started) {
    forget(proc);
    return Failure(started.error());
  }
  auto life = std::make_shared<AgentLife>(shared_from_this(), proc, *started);
  // Nothing is told between the look for what was told already and the place in the table.
  runtime_.loop.run([&] {
    std::unique_lock lock(mutex_);
    lives_[proc] = life;
    const auto told = early_.extract(proc);
    const auto why = gone_;
    lock.unlock();
    if (!told.empty()) {
      ended(told.mapped());
    } else if (why) {
      life->end({.code = -1, .unknown = true}, {}, why->message);
    }
  });
  return life;
}

void HostLink::signal(std::uint64_t proc, int number) {
  (void)agent().cast<&HostAgent::signal>(proc, number);
}

void HostLink::ended(const HostProcEnd& end) {
  std::shared_ptr<AgentLife> life;
  {
    std::lock_guard lock(mutex_);
    const auto found = lives_.find(end.proc);
    if (found == lives_.end()) return;  // another host's, or forgotten
    life = found->second.lock();
    if (!life) early_[end.proc] = end;
  }
  if (!life) return;
  life->end({.code = end.code,
             .signal = end.signal,
             .core_dumped = end.core_dumped,
             .unknown = end.unknown},
            end.last_lines, "");
}

bool HostLink::out_of_reach(std::uint64_t proc) {
  std::lock_guard lock(mutex_);
  if (!lives_.contains(proc)) return false;  // another host's, or its end was reported
  out_of_reach_.insert(proc);
  return true;
}

bool HostLink::relays_to(std::uint64_t proc) const {
  std::lock_guard lock(mutex_);
  return !gone_ && lives_.contains(proc) && !out_of_reach_.contains(proc);
}

std::optional<std::uint64_t> HostLink::relay(const RelayTo& to, const net::Payload& call) {
  const auto way = runtime_.node.routes().to(id_);
  if (!way) return std::nullopt;
  net::Channel& channel = *way.route->channel;
  // The one follows the other.
  std::lock_guard lock(relay_mutex_);
  if (!channel.send(static_cast<std::uint16_t>(Kind::relay_to), net::encode(to)) ||
      !channel.send(static_cast<std::uint16_t>(Kind::relayed), call, to.number))
    return std::nullopt;
  relayed_.fetch_add(1, std::memory_order_relaxed);
  return channel.progress().sent;
}

std::uint64_t HostLink::received() const {
  const auto way = runtime_.node.routes().to(id_);
  return way ? way.route->channel->progress().taken : 0;
}

void HostLink::forget(std::uint64_t proc) {
  std::lock_guard lock(mutex_);
  out_of_reach_.erase(proc);
  lives_.erase(proc);
  early_.erase(proc);
}

std::size_t HostLink::kept() const {
  std::lock_guard lock(mutex_);
  return lives_.size() + early_.size();
}

std::shared_ptr<RemoteProc> HostLink::proc() const {
  std::lock_guard lock(mutex_);
  return proc_;
}

void HostLink::lose(const std::string& why) {
  const Error error{ErrorKind::disconnected,
                    fmt::format("the agent of host '{}' (pid {}) is gone: {}", name(), pid(), why)};
  std::vector<std::shared_ptr<AgentLife>> lives;
  {
    std::lock_guard lock(mutex_);
    gone_ = error;
    for (const auto& [proc, life] : lives_)
      if (auto living = life.lock()) lives.push_back(std::move(living));
  }
  for (const auto& life : lives)
    life->end({.code = -1, .unknown = true}, {}, error.message);
  if (const auto lost = std::exchange(lost_, {})) lost(error.message);
}

void HostLink::supplant() {
  proc_->lose("it has joined again over another connection");
}

void HostLink::release() {
  if (proc_) proc_->release();
}

void Hosts::resume(std::unique_ptr<net::Channel> channel, const LinkHello& hello) {
  for (const auto& link : all()) {
    if (link->is_resumed_by(hello)) return link->proc()->resume(std::move(channel));
  }
}

void Hosts::add(std::unique_ptr<net::Channel> channel, LinkHello hello,
                std::optional<net::Dial> dial) {
  if (hello.resumes) return resume(std::move(channel), hello);
  drop_gone(hello.proc);
  std::shared_ptr<HostLink> link;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    link = std::make_shared<HostLink>(runtime_, joined_++, std::move(hello));
    links_.push_back(link);
  }
  link->attach(std::move(channel), std::move(dial), [this](const std::string& why) {
    runtime_.supervision.post([this, why] {
      if (runtime_.options.on_host_lost) return runtime_.options.on_host_lost(why);
      log_warning("actor", "{}", why);
    });
  });
  changed_.notify_all();
}

void Hosts::drop_gone(std::uint64_t joining) {
  std::vector<std::shared_ptr<HostLink>> known;
  {
    std::lock_guard lock(mutex_);
    known = links_;
  }
  for (const auto& link : known) {
    // Its agent has left that connection, though nobody here has missed it yet.
    if (!link->gone() && link->agent_id() == joining) link->supplant();
    if (!link->gone()) continue;
    link->release();
    std::lock_guard lock(mutex_);
    std::erase(links_, link);
  }
}

Result<void> Hosts::connect(const net::Address& address, const std::string& secret,
                            Instant deadline, std::shared_ptr<net::Tls> tls) {
  const std::string token = random_word();
  const auto dial = [&](const net::Address& where, bool resumes) {
    OwnerHello own = owner_hello(runtime_.options);
    own.token = token;
    own.resumes = resumes;
    net::ChannelOptions options;
    options.tls = tls;
    options.resumable = true;
    options.handshake = handshake_options(link_job, secret, own);
    return net::Dial{where, std::move(options)};
  };
  TESON_TRY(auto channel,
            net::Channel::connect(runtime_.loop, address, dial(address, false).options, deadline));
  auto hello = net::decode<LinkHello>(channel->peer_body());
  if (!hello || hello->wire != wire_hash() || hello->role != LinkRole::host) {
    return fail(ErrorKind::invalid,
                address.to_string() + ": expected a host agent of the same build of this library");
  }
  hello->token = token;
  auto again = dial(channel->endpoint(), true);
  runtime_.loop.run([&] { add(std::move(channel), std::move(*hello), std::move(again)); });
  return {};
}

Result<std::vector<std::shared_ptr<HostLink>>> Hosts::wait(std::size_t count, Instant deadline) {
  std::unique_lock lock(mutex_);
  const auto living = [&] {
    std::vector<std::shared_ptr<HostLink>> found;
    std::copy_if(links_.begin(), links_.end(), std::back_inserter(found),
                 [](const auto& link) { return !link->gone(); });
    return found;
  };
  if (!changed_.wait_until(lock, deadline, [&] { return living().size() >= count; })) {
    return fail(ErrorKind::timed_out,
                fmt::format("{} of {} hosts have joined; start 'teson host --join' on the others",
                            living().size(), count));
  }
  return living();
}

std::shared_ptr<HostLink> Hosts::latest(const std::shared_ptr<HostLink>& link) const {
  if (!link->gone()) return link;
  std::lock_guard lock(mutex_);
  const auto joined_again = [&](const auto& other) {
    return other->agent_id() == link->agent_id() && !other->gone();
  };
  const auto started_again = [&](const auto& other) {
    return other->name() == link->name() && !other->gone();
  };
  const auto again = std::find_if(links_.rbegin(), links_.rend(), joined_again);
  if (again != links_.rend()) return *again;
  const auto other = std::find_if(links_.rbegin(), links_.rend(), started_again);
  return other == links_.rend() ? link : *other;
}

void Hosts::ended(const HostProcEnd& end) {
  for (const auto& link : all())
    link->ended(end);
}

void Hosts::out_of_reach(std::uint64_t proc) {
  for (const auto& link : all()) {
    if (link->out_of_reach(proc)) runtime_.relays.repair(proc);
  }
}

std::vector<std::shared_ptr<HostLink>> Hosts::all() const {
  std::lock_guard lock(mutex_);
  return links_;
}

ActorRef<HostObserver> Hosts::observer() {
  std::lock_guard lock(mutex_);
  if (!observer_) {
    observer_ = host_actor<HostObserver>(runtime_.node, "host-observer",
                                         std::make_unique<Observer>(runtime_),
                                         {.handlers = Handlers::in_place});
  }
  return observer_;
}

void Hosts::close() {
  std::vector<std::shared_ptr<HostLink>> links;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    links.swap(links_);
  }
  for (const auto& link : links)
    link->release();
}

}  // namespace teson::actor::detail
