#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "teson/actor/actor_options.h"
#include "teson/actor/behaviour.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/handler_frame.h"
#include "teson/actor/inspect.h"
#include "teson/actor/trace_ring.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"

namespace teson::actor::detail {

/// An actor of this process. Its handlers run one at a time, in the order of arrival: whoever has
/// the turn runs them. That is the actor's thread, or, where they run in place, the thread that
/// brings a message to an idle actor, for that one message. A handler that fails with somebody
/// waiting for the reply fails that call; without, or if its reply was a port's, the actor ends.
/// From then on messages get its error; its own thread destroys its object, refuses what still
/// waits, and ends. So it does when its owner wishes that it end, after what was sent before.
class LocalActor {
 public:
  struct Hooks {
    /// The Result of a call, encoded behind reply_header_bytes of room.
    std::function<void(std::uint64_t proc, std::uint64_t call, net::PayloadWriter reply)> reply;
    /// A cast from `proc` that no handler takes.
    std::function<void(std::uint64_t proc, const Error&)> undelivered;
    /// The actor has ended: a handler without anybody waiting has failed, or the construction.
    std::function<void(const Error&)> failed;
    /// It has ended, whichever way. Its thread then refuses what still waits, and joins whom this
    /// gives: the one that has ended before it, for no thread can wait for its own end.
    std::function<std::shared_ptr<LocalActor>()> ended;
    /// For replies that come later.
    std::shared_ptr<ReplyOutlet> outlet;
    /// What its handlers do; outlives it. None: nobody wants to know.
    TraceRing* trace = nullptr;
  };
  using Make = std::function<Result<std::unique_ptr<Behaviour>>()>;

  /// `make` runs on the actor's thread, before any handler.
  LocalActor(std::string name, SpawnPlace place, MailboxLimits limits, ActorOptions options,
             Make make, Hooks hooks);
  /// stop() or join() has been called.
  ~LocalActor();

  /// Takes a message; may run its handler before it returns if `in_place`, and the actor's options,
  /// allow it. `overloaded`: the mailbox is full, which does not hold up a stop; `disconnected`: it
  /// has ended. Threads: any.
  Result<void> push(Envelope envelope, bool in_place);
  /// What an envelope of the mailbox has awaited; nothing: it will not come, and its place is given
  /// up. False: there is no such envelope any more. Threads: any.
  bool fill(std::uint64_t number, std::optional<net::Buffer> buffer);
  /// The process ends: drops what was not yet begun, waits for the handler that runs. Once.
  void stop();
  /// Waits for the end of its thread, which is near. Once.
  void join() { thread_.join(); }
  /// Why it has ended; once it has.
  Error why() const;
  /// All but its number. Threads: any; waits for no handler.
  ActorSnapshot snapshot() const;
  /// Its handler that runs now.
  std::optional<TraceEvent> running() const;
  TracedActor traced() const;

 private:
  void run(const Make& make);
  /// Under mutex_: the first message can be handled.
  bool ready() const { return !mailbox_.empty() && mailbox_.front().awaits == 0; }
  void construct(const Make& make);
  /// Under mutex_: the turn is taken for a message, which outlives it, and given back.
  void begin_turn(const Envelope* envelope);
  void end_turn(bool handled);
  /// With the lock, which it lets go.
  void end(std::unique_lock<Mutex> lock);
  /// With the turn. Whether a handler has run.
  bool handle(const Envelope& envelope);
  bool dispatch(const Envelope& envelope);
  void refuse(const Envelope& envelope, const Error& error);
  void answer(const Envelope& envelope, const Result<void>& result);
  void note_failure(const Error& error, std::uint64_t trace);
  void die(const Error& error);

  const std::string name_;
  const SpawnPlace place_;
  const MailboxLimits limits_;
  const ActorOptions options_;
  const Hooks hooks_;
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Envelope> mailbox_;
  std::size_t mailbox_bytes_ = 0;
  bool stopping_ = false;
  bool turn_taken_ = true;  ///< a handler runs; first of all the actor is made
  Instant turn_since_;
  const Envelope* handled_now_ = nullptr;
  std::optional<ClassNames> names_;  ///< once it is made
  std::uint64_t handled_ = 0;
  std::uint64_t refused_ = 0;
  bool failed_ = false;
  std::optional<Error> ended_;  ///< what messages are told from then on
  std::string last_failure_;
  std::uint64_t last_failure_trace_ = 0;
  std::unique_ptr<Behaviour> behaviour_;  ///< whoever has the turn
  Thread thread_;
};

/// Whether a handler of an actor that runs in place is on this thread.
bool must_not_wait();

}  // namespace teson::actor::detail
