#include "teson/actor/proc.h"

#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "teson/actor/wire.h"
#include "teson/base/check.h"
#include "teson/base/log.h"
#include "teson/net/channel.h"

namespace teson::actor {

namespace {

constexpr const char* variable = "TESON_PROC";
constexpr std::uint64_t parent_proc = 0;
/// What may arrive between attach and start.
constexpr std::size_t held_messages_max = 16384;
/// How long the last messages may take to leave.
constexpr Duration flush_wait = std::chrono::seconds(1);
/// Where the numbers of actors begin that a child starts itself: far from those its parent counts.
constexpr std::uint64_t first_own_actor = std::uint64_t{1} << 63;

/// What the parent passes in the environment: "fd:parent pid:signal at its death:token".
struct Inheritance {
  int fd = -1;
  int parent = 0;
  int death_signal = 0;
  std::string token;
};

Result<Inheritance> read_inheritance() {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return fail(ErrorKind::invalid,
                fmt::format("{} is not in the environment: expected to be started by a ProcMesh",
                            variable));
  }
  Inheritance result;
  std::string_view rest = text;
  for (int* number : {&result.fd, &result.parent, &result.death_signal}) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *number);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != ':') {
      return fail(ErrorKind::invalid,
                  fmt::format("{} is damaged: expected fd:parent:signal:token", variable));
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 1);
  }
  result.token = rest;
  ::unsetenv(variable);
  return result;
}

/// From here on the kernel ends this process when its parent dies; the parent may have died just
/// before.
Result<void> follow_parent(const Inheritance& inherited) {
  if (inherited.death_signal != 0 && ::prctl(PR_SET_PDEATHSIG, inherited.death_signal) < 0)
    return fail_errno("prctl", errno);
  if (::getppid() != inherited.parent) {
    return fail(ErrorKind::disconnected,
                fmt::format("the parent, process {}, is gone", inherited.parent));
  }
  return {};
}

}  // namespace

struct Proc::State {
  State(std::uint64_t self, std::size_t rank, const AttachOptions& attach_options)
      : options(attach_options),
        node(self, rank, first_own_actor, attach_options.mailbox,
             {.actor_failed = [this](const ActorFailure& failure) { climb(failure); },
              .stop_asked = [this] { stop(StopReason::asked); }}) {}

  void on_message(net::Message message) {
    if (started) return node.receive(parent_proc, std::move(message));
    if (held.size() < held_messages_max) return held.push_back(std::move(message));
    log_error("actor", "more than {} messages came from the parent before Proc::start: giving up",
              held_messages_max);
    channel->close();
  }

  /// What an actor dies of that this process hosts is for its owner to deal with.
  void climb(const ActorFailure& failure) {
    const detail::ActorFailed failed{failure.actor, failure.name, failure.error};
    (void)node.send_control(parent_proc, detail::Kind::actor_failed, net::encode(failed));
  }

  void start() {
    started = true;
    for (auto& message : held)
      node.receive(parent_proc, std::move(message));
    held.clear();
  }

  void on_closed(const Error& error) {
    node.pending().fail_proc(parent_proc, error.in("the parent process"));
    // What user threads do may never end: this process does. The I/O thread is not theirs.
    hard_end = loop->after(orphan_grace, [] { ::_exit(orphan_exit_code); });
    stop(StopReason::parent_gone);
  }

  void stop(StopReason why) {
    std::function<void(StopReason)> tell;
    {
      std::lock_guard lock(mutex);
      // Asked first, then orphaned, is still told once.
      if (!reason) tell = told;
      reason = why;
    }
    changed.notify_all();
    if (tell) tell(why);
  }

  const AttachOptions options;
  ProcContext context;
  Duration orphan_grace{};
  net::Loop* loop = nullptr;
  std::shared_ptr<net::Channel> channel;
  detail::Node node;
  net::Timer hard_end;
  bool started = false;            ///< loop's thread
  std::vector<net::Message> held;  ///< loop's thread; what came before start
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<StopReason> reason;
  std::function<void(StopReason)> told;
  std::unique_ptr<net::Loop> own_loop;
};

bool Proc::is_child() {
  return std::getenv(variable) != nullptr;
}

Result<std::unique_ptr<Proc>> Proc::attach(AttachOptions options) {
  TESON_TRY(const Inheritance inherited, read_inheritance());
  TESON_TRY_VOID(follow_parent(inherited));
  Fd socket(inherited.fd);
  if (::fcntl(socket.get(), F_SETFD, FD_CLOEXEC) < 0)
    return fail_errno("the socket inherited from the parent", errno);

  auto loop = std::make_unique<net::Loop>();
  const std::string hello = net::encode(detail::Hello{detail::wire_hash()});
  const auto bytes = std::as_bytes(std::span(hello));
  net::ChannelOptions channel_options;
  channel_options.handshake = {.job_id = "proc",
                               .purpose = "actor",
                               .secret = inherited.token,
                               .body = {bytes.begin(), bytes.end()}};
  TESON_TRY(std::shared_ptr<net::Channel> channel,
            net::Channel::open(*loop, std::move(socket), net::HandshakeRole::initiator,
                               std::move(channel_options),
                               std::chrono::steady_clock::now() + options.handshake_deadline));
  auto welcome = net::decode<detail::Welcome>(channel->peer_body());
  if (!welcome || welcome->wire != detail::wire_hash()) {
    return fail(ErrorKind::invalid,
                "the parent was built from another version of this library: rebuild both programs");
  }
  auto state = std::make_shared<State>(welcome->proc, welcome->rank, options);
  ProcContext& context = state->context;
  context.rank = static_cast<std::size_t>(welcome->rank);
  context.shape = Shape(welcome->dimensions);
  context.size = context.shape.ranks();
  context.incarnation = welcome->incarnation;
  context.mesh = welcome->mesh;
  state->orphan_grace = Duration(static_cast<std::int64_t>(welcome->orphan_grace_ns));
  state->loop = loop.get();
  state->own_loop = std::move(loop);
  state->channel = std::move(channel);
  return std::unique_ptr<Proc>(new Proc(std::move(state)));
}

// The channel is read from the beginning, so that the parent's end is seen at any time.
Proc::Proc(std::shared_ptr<State> own) : state_(std::move(own)) {
  State* state = state_.get();
  state->node.add_route(parent_proc, state->channel, "the parent process");
  state->channel->start(
      {.on_message = [state](net::Message message) { state->on_message(std::move(message)); },
       .on_early_message =
           [state](net::Message& message) {
             if (!detail::is_reply(message)) return false;
             state->node.receive(parent_proc, std::move(message));
             return true;
           },
       .on_closed = [state](const Error& error) { state->on_closed(error); }});
}

Proc::~Proc() {
  // The loop lives until the actors have ended, so that an orphan whose actor hangs ends all the
  // same.
  state_->node.close();
  (void)state_->channel->flush(std::chrono::steady_clock::now() + flush_wait);
  state_->loop->run([this] { state_->channel.reset(); });
  state_->own_loop->stop();
  state_->hard_end.cancel();
}

void Proc::start() {
  state_->loop->run([this] { state_->start(); });
}

StopReason Proc::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->reason.has_value(); });
  return *state_->reason;
}

bool Proc::stopping() const {
  std::lock_guard lock(state_->mutex);
  return state_->reason.has_value();
}

void Proc::on_stop(std::function<void(StopReason)> function) {
  state_->loop->post([state = state_.get(), function = std::move(function)] {
    std::optional<StopReason> now;
    {
      std::lock_guard lock(state->mutex);
      now = state->reason;
      if (!now) state->told = function;
    }
    if (now) function(*now);
  });
}

const ProcContext& Proc::context() const {
  return state_->context;
}
net::Loop& Proc::loop() {
  return *state_->loop;
}
detail::Node& Proc::node() {
  return state_->node;
}
Duration Proc::call_deadline() const {
  return state_->options.call_deadline;
}

}  // namespace teson::actor
