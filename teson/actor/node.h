#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "teson/actor/actor_table.h"
#include "teson/actor/announced.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/inspect.h"
#include "teson/actor/local_actor.h"
#include "teson/actor/pending.h"
#include "teson/actor/reply_path.h"
#include "teson/actor/routes.h"
#include "teson/actor/serial_thread.h"
#include "teson/actor/trace_ring.h"
#include "teson/actor/wire.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"

namespace teson::actor {

/// An actor has ended because a handler failed with nobody waiting for the reply, or because it
/// could not be constructed.
struct ActorFailure {
  std::uint64_t proc = 0;  ///< 0: the process that owns the System
  std::string where;  ///< "rank 1 (pid 4711, host 'node3') of mesh 'workers'", or "this process"
  std::uint64_t actor = 0;
  std::string name;
  Error error;
};

/// A cast that no handler has taken: the actor does not exist, has ended or is of another version,
/// or its mailbox is full.
struct UndeliveredCast {
  std::uint64_t proc = 0;  ///< that it was sent to; 0: the process that owns the System
  std::string where;       ///< as in ActorFailure
  std::uint64_t actor = 0;
  Error error;
};

namespace detail {

/// What is done about one where the program has said nothing.
void log_undelivered(const UndeliveredCast& lost);

/// One process's part in the runtime, the same in parent and child: its actors, the calls it waits
/// for, its channels to other procs. Threads: any, unless said otherwise.
class Node {
 public:
  struct Hooks {
    std::function<void(const ActorFailure&)> actor_failed;
    std::function<void(const UndeliveredCast&)> undelivered;
    std::function<void()> stop_asked;
    /// Of the owner: a process has what came to it by way of its host's agent.
    std::function<void(std::uint64_t proc, std::uint64_t number)> relay_taken;
  };
  /// `rank`: of this process in its mesh. `first_actor`: where the numbers of actors that this
  /// process starts itself begin; those its parent asks for must not meet them.
  Node(std::uint64_t self, std::size_t rank, std::uint64_t first_actor, MailboxLimits limits,
       Hooks hooks);
  /// close() has been called.
  ~Node();

  std::uint64_t self() const { return self_; }
  PendingTable& pending() { return *pending_; }

  Routes& routes() { return routes_; }
  /// A process has ended: who waits for it is told why, in this process and in those that have sent to it through this one.
  void lose(std::uint64_t proc, const Error& why);
  /// The owner is gone, and with it the way to all others.
  void lose_owner(const Error& why);
  /// Loop's thread, or one that reads in its stead: a message over the channel of `from`.
  void receive(std::uint64_t from, net::Message message);

  /// Sends one call or cast to an actor. Errors: `disconnected` without a route, or as of
  /// Channel::send; for an actor of this process as of ActorTable::push.
  Result<void> send(std::uint64_t proc, const net::Payload& payload, bool awaited);
  /// A call to one actor, to be sent.
  std::shared_ptr<PendingCall> begin_call(std::uint64_t proc, Instant deadline);

  std::uint64_t next_actor_id();
  void host(std::uint64_t id, std::string name, LocalActor::Make make, ActorOptions options);
  /// As of System::stop.
  Result<void> stop_hosted(std::uint64_t proc, std::uint64_t actor, Duration deadline);

  /// How to make the actors of a class that a parent may ask for.
  using Factory = std::function<Result<std::unique_ptr<Behaviour>>(
      std::span<const std::byte> arguments, const MeshPlace& place)>;
  struct Served {
    std::uint64_t interface = 0;
    std::string class_name;
    Factory factory;
    ActorOptions options;
  };
  void serve(std::uint64_t class_hash, Served served);

  /// Its actors, by number, and the last that have ended. Waits for no handler.
  std::vector<ActorSnapshot> inspect() const { return actors_.snapshots(); }
  TraceRing& trace_ring() { return trace_ring_; }
  /// What the ring has, the handlers that run now, and what the actors are called.
  TraceReport end_trace();

  /// Ends the actors (waiting for running handlers) and fails what waits. Idempotent. Not from an
  /// actor's or the loop's thread.
  void close();

 private:
  void take(std::uint64_t from, net::Message message);
  Result<void> deliver(std::uint64_t from, const CallHeader& header, net::Buffer buffer,
                       bool in_place);
  void receive_call(std::uint64_t from, net::Buffer payload);
  void receive_reply(std::uint64_t from, net::Buffer payload);
  void receive_spawn(std::uint64_t from, net::Buffer payload);
  Result<Served> served(const SpawnRequest& request) const;
  void receive_actor_failed(std::uint64_t from, const net::Buffer& payload);
  void receive_undelivered(std::uint64_t from, const net::Buffer& payload);
  void receive_stop_actor(std::uint64_t from, const net::Buffer& payload);
  void receive_inspect(std::uint64_t from, const net::Buffer& payload);
  void receive_ended(const net::Buffer& payload);
  void receive_announced(std::uint64_t from, const net::Buffer& payload);
  void receive_relayed(std::uint64_t number, net::Buffer payload);
  static Result<void> check_relayed(const Announced& call, std::size_t bytes);
  void receive_relay_taken(std::uint64_t from, const net::Buffer& payload);
  void tell_relay_taken(std::uint64_t number);
  /// What one process says to another.
  void pass_on(std::uint64_t from, std::uint64_t to, net::Message message);
  /// `as`: who it is that refuses, where this process speaks for another.
  void refuse(std::uint64_t from, const CallHeader& header, const Error& error,
              std::uint64_t as = owner_proc);
  void tell_undelivered(std::uint64_t from, std::uint64_t actor, const Error& error,
                        std::uint64_t as = owner_proc);
  void tell_owner(std::uint64_t owner, std::uint64_t actor, const std::string& name,
                  const Error& error);
  Result<void> start_actor(std::uint64_t id, std::string name, std::uint64_t owner,
                           SpawnPlace place, LocalActor::Make make, ActorOptions options);
  void reply(std::uint64_t proc, std::uint64_t call, net::PayloadWriter reply);
  void send_reply(std::uint64_t proc, std::uint64_t call, const net::Payload& reply);

  const std::uint64_t self_;
  const std::size_t rank_;
  const MailboxLimits limits_;
  const Hooks hooks_;
  TraceRing trace_ring_;
  const std::shared_ptr<ReplyOutlet> outlet_;
  const std::shared_ptr<PendingTable> pending_;
  ActorTable actors_;

  Routes routes_;
  AnnouncedCalls announced_;  ///< loop's thread

  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Served> served_;
  std::uint64_t next_actor_;
  bool closed_ = false;
  std::unique_ptr<SerialThread> late_replies_;  ///< made when first needed
};

/// The payload of a call or cast to a slice (an encoded RegionLayout; empty: all that was spawned);
/// the arguments follow.
net::PayloadWriter call_payload(std::uint64_t actor, std::uint64_t call, EndpointId endpoint,
                                std::string_view slice = {});

}  // namespace detail
}  // namespace teson::actor
