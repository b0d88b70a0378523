#pragma once

// The insides of a Proc; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <unistd.h>

#include "teson/actor/node.h"
#include "teson/actor/proc.h"
#include "teson/actor/wire.h"
#include "teson/base/clock.h"
#include "teson/base/log.h"
#include "teson/base/thread.h"
#include "teson/base/world.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"
#include "teson/net/resumption.h"

namespace teson::actor {

struct Proc::State {
  /// What may arrive between attach and start.
  static constexpr std::size_t held_messages_max = 16384;
  /// Where the numbers of actors begin that a child starts itself: far from those its parent counts.
  static constexpr std::uint64_t first_own_actor = std::uint64_t{1} << 63;
  /// Beats of the owner that may be missed.
  static constexpr int silent_beats_max = 5;

  State(std::uint64_t self, std::size_t rank, const AttachOptions& attach_options)
      : options(attach_options),
        node(self, rank, first_own_actor, attach_options.mailbox,
             {.actor_failed = [this](const ActorFailure& failure) { climb(failure); },
              .undelivered = detail::log_undelivered,
              .stop_asked = [this] { stop(StopReason::asked); }}) {}

  void on_message(net::Message message) {
    if (message.kind == static_cast<std::uint16_t>(detail::Kind::ping)) {
      (void)channel->send(static_cast<std::uint16_t>(detail::Kind::pong), std::string());
      return;
    }
    if (message.kind == static_cast<std::uint16_t>(detail::Kind::admission))
      return on_admission(message.payload);
    if (relay && (message.kind == static_cast<std::uint16_t>(detail::Kind::relay_to) ||
                  message.kind == static_cast<std::uint16_t>(detail::Kind::relayed)))
      return relay(std::move(message));
    // What can be seen is told by this thread, and before there are actors.
    if (started || message.kind == static_cast<std::uint16_t>(detail::Kind::inspect))
      return node.receive(detail::owner_proc, std::move(message));
    if (held.size() < held_messages_max) return held.push_back(std::move(message));
    log_error("actor", "more than {} messages came from the parent before Proc::start: giving up",
              held_messages_max);
    channel->close();
  }

  /// What the owner sends by way of the agent. Its end is for the owner to deal with.
  void listen_to_agent() {
    if (!agent) return;
    agent->start({.on_message = [this](net::Message message) {
      if (message.kind == static_cast<std::uint16_t>(detail::Kind::relayed))
        node.receive(detail::owner_proc, std::move(message));
    }});
  }

  void on_admission(const net::Buffer& payload) {
    auto said = net::decode<Result<void>>(payload.bytes());
    {
      std::lock_guard lock(mutex);
      admission = said ? std::move(*said) : Failure(std::move(said).error().in("the admission"));
    }
    changed.notify_all();
  }

  /// What the owner says of the ticket.
  Result<void> wait_admission(Instant deadline) {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, deadline, [&] { return admission || reason; })) {
      return fail(ErrorKind::timed_out,
                  "the owner has not said by the deadline whether it takes this process");
    }
    if (admission) return *admission;
    return fail(ErrorKind::disconnected,
                "the connection to the owner has ended before it has said whether it takes this "
                "process; the owner may be gone");
  }

  /// What an actor dies of that this process hosts is for its owner to deal with.
  void climb(const ActorFailure& failure) {
    const detail::ActorFailed failed{failure.actor, failure.name, failure.error};
    (void)node.routes().send(detail::owner_proc, detail::Kind::actor_failed,
                             net::Payload(net::encode(failed)));
  }

  void start() {
    started = true;
    for (auto& message : held)
      node.receive(detail::owner_proc, std::move(message));
    held.clear();
  }

  /// Where the connection may break without an end: the owner is gone if it is silent.
  void watch_owner() {
    if (heartbeat <= Duration::zero()) return;
    const auto before = std::exchange(received, channel->progress().received);
    silent_beats = received > before ? 0 : silent_beats + 1;
    if (silent_beats >= silent_beats_max) {
      log_error("actor", "the owner has been silent for {:.1f} s: it counts as gone",
                silent_beats * to_seconds(heartbeat));
      return channel->close();
    }
    owner_watch = loop->after(heartbeat, [this] { watch_owner(); });
  }

  void set_loop(net::Loop& its_loop, std::optional<net::Dial> dial) {
    loop = &its_loop;
    resumption.emplace(its_loop, std::move(dial));
  }

  void on_closed(const Error& error) {
    owner_watch.cancel();
    resumption->cancel();
    if (error.kind == ErrorKind::invalid)
      log_error("actor", "the connection to the owner has ended: {}", error.message);
    node.lose_owner(error.in("the parent process"));
    // What user threads do may never end: this process does. The I/O thread is not theirs.
    if (ends_when_orphaned)
      hard_end = loop->after(orphan_grace, [] { exit_at_once(orphan_exit_code); });
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
  Duration heartbeat{};  ///< of an owner across the network; 0: its socket ends with it
  bool ends_when_orphaned = true;
  net::Loop* loop = nullptr;
  std::shared_ptr<net::Channel> channel;
  std::shared_ptr<net::Channel> agent;  ///< whose process this is, if it is one's
  detail::Node node;
  net::Timer hard_end;
  net::Timer owner_watch;
  std::optional<net::Resumption> resumption;  ///< loop's thread
  int silent_beats = -1;                      ///< loop's thread; at the start it was heard
  std::uint64_t received = 0;                 ///< loop's thread; bytes until the last beat
  bool started = false;                       ///< loop's thread
  std::vector<net::Message> held;             ///< loop's thread; what came before start
  std::function<void(net::Message)> relay;    ///< loop's thread; of a host agent
  Mutex mutex;
  Condition changed;
  std::optional<Result<void>> admission;  ///< of a process with a ticket, once it is told
  std::optional<StopReason> reason;
  std::function<void(StopReason)> told;
  std::unique_ptr<net::Loop> own_loop;  ///< none: another's
};

}  // namespace teson::actor
