#include "teson/actor/remote_proc.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include "teson/actor/guest_life.h"
#include "teson/actor/handshake_options.h"
#include "teson/actor/proc_text.h"
#include "teson/base/check.h"
#include "teson/base/clock.h"
#include "teson/base/log.h"
#include "teson/base/thread.h"
#include "teson/base/world.h"

namespace teson::actor::detail {

namespace {

/// How long the second sign of a death (end of channel, end of process) may come after the first.
constexpr Duration second_sign_wait = std::chrono::milliseconds(200);
/// Heartbeats without a sign of life after which a process is ended.
constexpr int silent_beats_max = 2;

}  // namespace

RemoteProc::RemoteProc(Runtime& runtime, const ProcOptions& options, ProcPlace place,
                       Welcome welcome)
    : runtime_(runtime),
      options_(options),
      place_(place),
      welcome_(std::move(welcome)),
      resumption_(runtime.loop) {}

RemoteProc::~RemoteProc() {
  TESON_CHECK(!channel_);
}

ChildSpec RemoteProc::spec() const {
  ChildSpec spec;
  std::error_code none;
  spec.program = options_.program.empty() ? std::filesystem::read_symlink("/proc/self/exe", none)
                                          : options_.program;
  spec.working_folder = options_.working_folder;
  if (options_.arguments) spec.arguments = options_.arguments(place_);
  if (options_.environment) spec.environment = options_.environment(place_);
  if (options_.log_file) spec.log_file = options_.log_file(place_);
  return spec;
}

Result<void> RemoteProc::start_child(Hooks hooks) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
    return fail_errno("socketpair for a child process", errno);
  Fd own(fds[0]);
  const Fd theirs(fds[1]);
  const std::string token = random_word();
  ChildSpec child = spec();
  child.environment[proc_variable] =
      fmt::format("{}:{}:{}:{}", ChildProcess::child_socket_fd, own_pid(),
                  options_.parent_death_signal ? SIGKILL : 0, token);
  Result<std::unique_ptr<ProcLife>> life;
  runtime_.starter.run([&] {
    life = runtime_.launcher->start(runtime_.loop, runtime_.host_name, child, theirs.get());
  });
  if (!life)
    return fail(std::move(life).error().in(
        fmt::format("rank {} of mesh '{}'", place_.rank, welcome_.mesh)));
  begin(std::move(*life), std::move(hooks));

  net::ChannelOptions options;
  options.handshake = handshake_options(child_job, token, welcome_);
  options.handshake_deadline = options_.attach_deadline;
  link(net::Channel::adopt(runtime_.loop, std::move(own), net::HandshakeRole::acceptor,
                           std::move(options)));
  return {};
}

Result<void> RemoteProc::start_on(const std::shared_ptr<HostLink>& host, Hooks hooks) {
  host_ = host;
  TESON_TRY(const ProcTicket ticket, runtime_.links.expect(shared_from_this(), welcome_));
  set_networked();
  auto life = host->start(id(), spec(), ticket, options_);
  if (!life) {
    runtime_.links.forget(id());
    return fail(std::move(life).error().in(fmt::format("rank {} of mesh '{}' on host '{}'",
                                                       place_.rank, welcome_.mesh, host->name())));
  }
  begin(std::move(*life), std::move(hooks));
  return {};
}

Result<std::string> RemoteProc::await(Hooks hooks) {
  TESON_TRY(const ProcTicket ticket, runtime_.links.expect(shared_from_this(), welcome_));
  set_networked();
  begin(std::make_unique<GuestLife>(runtime_.loop), std::move(hooks));
  return ticket_text(ticket);
}

void RemoteProc::attach(std::unique_ptr<net::Channel> channel, const LinkHello& hello,
                        std::optional<net::Dial> dial, Hooks hooks) {
  set_networked();
  is_agent_ = true;
  if (dial) resumption_.set_dial(std::move(*dial));
  early_.emplace(std::move(channel), hello);
  begin(std::make_unique<GuestLife>(runtime_.loop), std::move(hooks));
}

void RemoteProc::begin(std::shared_ptr<ProcLife> life, Hooks hooks) {
  runtime_.loop.run([&] {
    life_ = std::move(life);
    hooks_ = std::move(hooks);
    life_->watch(
        [this](const ExitStatus& status, const std::string& cause) { on_end(status, cause); });
    if (early_) {
      auto [channel, hello] = *std::exchange(early_, std::nullopt);
      return adopt(std::move(channel), hello);
    }
    if (!networked()) return;
    runtime_.node.routes().expect(id(), name() + ", which has not attached yet", unanswered_);
    timer_ = runtime_.loop.after(options_.attach_deadline, [this] {
      end_because(
          fmt::format("it has not attached within {:.0f} s", to_seconds(options_.attach_deadline)));
    });
  });
}

void RemoteProc::adopt(std::unique_ptr<net::Channel> channel, const LinkHello& hello) {
  if (!life_) {
    early_.emplace(std::move(channel), hello);
    return;
  }
  if (auto* guest = dynamic_cast<GuestLife*>(life_.get())) guest->introduce(hello);
  // One that is known to have ended is reported all the same.
  if (!status_) timer_.cancel();
  link(std::move(channel));
}

void RemoteProc::link(std::shared_ptr<net::Channel> channel) {
  // First, since what was held back goes before what is sent from now on.
  runtime_.node.routes().add(id(), {channel, name(), unanswered_, is_agent_});
  {
    std::lock_guard lock(mutex_);
    channel_ = channel;
  }
  // release() closes the channel, which drops these.
  const auto self = shared_from_this();
  const auto take = [self](net::Message message) {
    if (is_reply(message) && message.epoch == owner_proc) self->count_reply();
    self->runtime_.node.receive(self->id(), std::move(message));
  };
  channel->start({.on_open = [self] { self->on_open(); },
                  .on_message = take,
                  .on_early_message =
                      [take](net::Message& message) {
                        if (!is_reply(message)) return false;
                        take(std::move(message));
                        return true;
                      },
                  .on_cut = [self](const Error& error) { self->on_cut(error); },
                  .on_resumed = [self] { self->on_resumed(); },
                  .on_closed = [self](const Error& error) { self->on_channel_end(error); }});
  if (early_resumption_) channel->resume(std::move(early_resumption_));
}

std::shared_ptr<net::Channel> RemoteProc::channel() const {
  std::lock_guard lock(mutex_);
  return channel_;
}

void RemoteProc::resume(std::unique_ptr<net::Channel> fresh) {
  if (const auto cut = channel()) return cut->resume(std::move(fresh));
  // Cut before it was linked.
  if (early_) early_resumption_ = std::move(fresh);
}

void RemoteProc::on_cut(const Error& error) {
  if (released_) return;
  const auto self = shared_from_this();
  cut_ = error;
  // Nothing more can be heard of what has ended.
  if (status_) return on_channel_end(error);
  if (const auto cut = channel()) resumption_.on_cut(cut);
}

void RemoteProc::on_resumed() {
  log_warning("actor", "the connection to {} was cut and is resumed after {:.0f} ms: {}", name(),
              to_ms(resumption_.on_resumed()),
              cut_ ? cut_->message : "the other end has noticed it first");
  cut_.reset();
}

void RemoteProc::on_open() {
  const auto open = channel();
  if (!open) return;
  if (!networked()) {
    const auto hello = net::decode<Hello>(open->peer_body());
    if (!hello || hello->wire != wire_hash())
      return end_because("it was built from another version of this library");
  }
  {
    std::lock_guard lock(mutex_);
    attached_ = true;
  }
  if (options_.heartbeat > Duration::zero()) {
    silent_beats_ = -1;  // it was heard
    beat();
  }
  if (hooks_.changed) hooks_.changed();
}

bool RemoteProc::has_given_sign() {
  const auto line = channel();
  if (!line) return false;
  const net::ChannelProgress before = std::exchange(progress_, line->progress());
  if (progress_.received > before.received) return true;
  // While what was sent before the last ping is still on its way, the line alone can give one.
  return progress_.taken < pinged_ && progress_.taken > before.taken;
}

void RemoteProc::beat() {
  silent_beats_ = has_given_sign() ? 0 : silent_beats_ + 1;
  if (silent_beats_ >= silent_beats_max) {
    return end_because(
        fmt::format("it has given no sign of life for {:.1f} s: it was stopped, its I/O thread is "
                    "blocked, or its machine cannot be reached",
                    silent_beats_max * to_seconds(options_.heartbeat)));
  }
  (void)send(Kind::ping, {});
  pinged_ = progress_.sent;
  heartbeat_ = runtime_.loop.after(options_.heartbeat, [this] { beat(); });
}

void RemoteProc::on_end(const ExitStatus& status, const std::string& cause) {
  const auto self = shared_from_this();
  status_ = status;
  if (cause_.empty()) cause_ = cause;
  // Its last messages are still being read; a grandchild that holds the socket must not delay the
  // news.
  if (channel_end_ || cut_ || status.unknown) return report();
  timer_ = runtime_.loop.after(second_sign_wait, [this] { report(); });
}

void RemoteProc::on_channel_end(const Error& error) {
  if (released_) return;
  const auto self = shared_from_this();
  channel_end_ = error;
  if (status_) return report();
  if (life_->ends_with_link() || error.kind != ErrorKind::disconnected)
    return end_because("its connection has ended: " + error.message);
  // It may be leaving by itself, which takes its time; but nobody shall wait for its replies
  // meanwhile.
  timer_ = runtime_.loop.after(second_sign_wait, [this] {
    const Error lost{ErrorKind::disconnected,
                     name() + " has closed its connection" + log_text(life_->last_lines())};
    {
      std::lock_guard lock(mutex_);
      lost_ = lost;
    }
    runtime_.node.lose(id(), lost);
    if (hooks_.changed) hooks_.changed();
    timer_ = runtime_.loop.after(options_.stop_grace, [this] {
      end_because("it had closed its connection and did not end");
    });
  });
}

void RemoteProc::end_because(const std::string& cause) {
  if (exit()) return;
  if (cause_.empty() && !status_) cause_ = cause;
  if (status_) {
    // Its end is known; the end of its connection, which may be silent, is not waited for.
    timer_ = runtime_.loop.after(second_sign_wait, [this] { report(); });
    return;
  }
  (void)signal(SIGKILL);
  // An agent that cannot be reached does not hold up the news. The process ends without its owner.
  if (!host_) return;
  kill_timer_ = runtime_.loop.after(second_sign_wait, [this] {
    if (!status_) lose("");
  });
}

void RemoteProc::lose(const std::string& cause) {
  on_end({.code = -1, .unknown = true}, cause);
}

void RemoteProc::report() {
  const auto self = shared_from_this();
  if (exit()) return;
  timer_.cancel();
  stop_timer_.cancel();
  kill_timer_.cancel();
  heartbeat_.cancel();
  resumption_.cancel();
  runtime_.links.forget(id());
  if (cause_.empty() && networked() && channel_end_ && status_->signal == 0)
    cause_ = "its connection had ended: " + channel_end_->message;
  ProcExit exit{.rank = place_.rank,
                .incarnation = place_.incarnation,
                .pid = pid(),
                .host = life_->host(),
                .exit_code = status_->code,
                .signal = status_->signal,
                .core_dumped = status_->core_dumped,
                .cause = cause_,
                .last_lines = life_->last_lines(),
                .instant = now()};
  std::shared_ptr<net::Channel> guests;
  {
    std::lock_guard lock(mutex_);
    exit.expected = expected_;
    exit_ = exit;
    if (networked_) guests = channel_;
  }
  // One that still runs somewhere ends itself without it.
  if (guests) guests->close();
  const Error why = end_error(exit);
  runtime_.node.lose(id(), why);
  runtime_.relays.forget(id());
  if (hooks_.ended) hooks_.ended(exit);
}

std::string RemoteProc::name() const {
  return process_text(place_.rank, pid(), life_->host(), welcome_.mesh);
}

Error RemoteProc::end_error(const ProcExit& exit) const {
  return {ErrorKind::disconnected, exit.describe(welcome_.mesh)};
}

pid_t RemoteProc::pid() const {
  return life_ ? static_cast<pid_t>(life_->pid()) : 0;
}

std::string RemoteProc::host() const {
  return life_ ? life_->host() : runtime_.host_name;
}

void RemoteProc::set_networked() {
  std::lock_guard lock(mutex_);
  networked_ = true;
}

bool RemoteProc::networked() const {
  std::lock_guard lock(mutex_);
  return networked_;
}

bool RemoteProc::attached() const {
  std::lock_guard lock(mutex_);
  return attached_;
}

bool RemoteProc::alive() const {
  std::lock_guard lock(mutex_);
  return !exit_ && !lost_;
}

std::optional<ProcExit> RemoteProc::exit() const {
  std::lock_guard lock(mutex_);
  return exit_;
}

std::optional<Error> RemoteProc::gone() const {
  std::lock_guard lock(mutex_);
  if (exit_) return end_error(*exit_);
  return lost_;
}

Result<void> RemoteProc::send(Kind kind, net::Payload payload) {
  if (kind == Kind::call && runtime_.node.trace_ring().on())
    runtime_.node.trace_ring().sent(id(), header_of(payload.text()));
  std::shared_ptr<net::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    // A grandchild may still hold the socket: nobody reads there. Calls are registered before they
    // are sent, so none is missed by the fail_proc that follows exit_.
    if (exit_) return fail(end_error(*exit_));
    channel = channel_;
    if (!channel && networked_ && !lost_)
      return runtime_.node.routes().send(id(), kind, std::move(payload));
  }
  if (!channel)
    return fail(gone().value_or(Error{ErrorKind::disconnected, "the process was not started"}));
  return channel->send(static_cast<std::uint16_t>(kind), std::move(payload));
}

net::ChannelReader RemoteProc::reader() const {
  std::lock_guard lock(mutex_);
  return channel_ ? channel_->reader() : net::ChannelReader();
}

Result<void> RemoteProc::signal(int number) {
  if (exit()) return fail(ErrorKind::disconnected, fmt::format("process {} has ended", pid()));
  return life_->signal(number);
}

void RemoteProc::stop() {
  {
    std::lock_guard lock(mutex_);
    if (exit_) return;
    expected_ = true;
  }
  (void)send(Kind::stop, {});
  runtime_.loop.post([this, self = shared_from_this()] {
    if (status_ || exit()) return;
    stop_timer_ = runtime_.loop.after(options_.stop_grace, [this] {
      (void)signal(SIGTERM);
      stop_timer_ = runtime_.loop.after(options_.term_grace, [this] {
        end_because("it had to be killed: it neither ended when asked nor by SIGTERM");
      });
    });
  });
}

void RemoteProc::end_now() {
  {
    std::lock_guard lock(mutex_);
    expected_ = true;
  }
  runtime_.loop.post([self = shared_from_this()] { self->end_because(""); });
}

void RemoteProc::release() {
  std::shared_ptr<net::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    channel.swap(channel_);
  }
  (void)runtime_.node.routes().remove(id(), {});
  // Before the channel ends, which is no news any more.
  runtime_.loop.run([this] {
    released_ = true;
    life_->unwatch();
    heartbeat_.cancel();
    timer_.cancel();
    stop_timer_.cancel();
    kill_timer_.cancel();
    resumption_.cancel();
    hooks_ = {};
  });
  if (channel) channel->close();
  runtime_.loop.run([&] { channel.reset(); });
}

}  // namespace teson::actor::detail
