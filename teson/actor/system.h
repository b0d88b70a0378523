#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "teson/actor/actor.h"
#include "teson/actor/actor_ref.h"
#include "teson/actor/proc_mesh.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/shape.h"
#include "teson/base/error.h"
#include "teson/net/loop.h"

namespace teson::actor {

struct SystemOptions {
  /// Of calls that do not say within().
  Duration call_deadline = std::chrono::seconds(60);
  /// Of the actors of this process.
  MailboxLimits mailbox;
  /// An actor of this process or of a child has ended by an error; called on the supervision
  /// thread. Empty: that is unhandled.
  std::function<void(const ActorFailure&)> on_actor_failure;
  /// A cast sent from this process did not reach a handler; called on the supervision thread.
  /// Empty: it is logged.
  std::function<void(const UndeliveredCast&)> on_undelivered;
  /// A failure of an actor or a process that nobody has dealt with; called on the supervision
  /// thread with the whole story. Empty: it is written to the log and ends this process with
  /// unhandled_exit_code, and so climbs to its own owner, if it has one.
  std::function<void(const std::string& chain)> on_unhandled;
};

inline constexpr int unhandled_exit_code = 114;

namespace detail {
struct Runtime;
}

/// The actor runtime of the process that owns the others: its I/O loop, its actors, its supervision
/// thread, and the thread from which processes are started. Made in main, handed down; several may
/// live in one process. All meshes must go before it.
class System {
 public:
  explicit System(SystemOptions options = {});
  /// Ends the actors of this process: waits for running handlers.
  ~System();
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  /// The I/O loop, for channels and timers beside the actors.
  net::Loop& loop();

  /// Makes `actor` an actor of this process, with a thread of its own; others reach it through the
  /// reference, also from child processes that got it as an argument. It lives as long as the
  /// System.
  template <typename T>
  ActorRef<T> host(std::string name, std::unique_ptr<T> actor, ActorOptions options = {}) {
    return detail::host_actor(node(), std::move(name), std::move(actor), options);
  }
  /// A reference made usable.
  template <typename T>
  Actor<T> actor(ActorRef<T> ref) {
    return {node(), ref, call_deadline()};
  }

 private:
  friend class Host;
  detail::Node& node();
  Duration call_deadline() const;
  std::unique_ptr<detail::Runtime> runtime_;
};

/// A machine on which processes can be started; for now the one that this process runs on. A light
/// handle to its System.
class Host {
 public:
  /// Starts one process for each rank of `shape`, which must be valid (Shape::validate). Returns once all are started (not yet attached).
  /// On an error those that were started are ended.
  Result<ProcMesh> spawn_procs(const Shape& shape, ProcOptions options);

 private:
  friend Host this_host(System& system);
  explicit Host(System& system) : system_(&system) {}
  System* system_;
};

Host this_host(System& system);

}  // namespace teson::actor
