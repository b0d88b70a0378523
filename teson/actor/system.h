#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "teson/actor/actor.h"
#include "teson/actor/actor_ref.h"
#include "teson/actor/inspect.h"
#include "teson/actor/proc_mesh.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/region.h"
#include "teson/actor/shape.h"
#include "teson/actor/sliceable.h"
#include "teson/base/error.h"
#include "teson/net/address.h"
#include "teson/net/loop.h"
#include "teson/net/tls.h"

namespace teson::actor {

namespace detail {
class Launcher;
}

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
  /// How often host agents are asked for a sign of life, as ProcOptions::heartbeat is for processes.
  /// They are told, and in turn take this owner for gone when it has been silent for five of these.
  Duration host_heartbeat = default_heartbeat;
  /// A host's agent is gone, and with it the host's processes, whose owners are told too; called
  /// on the supervision thread, once a host. Empty: it is logged.
  std::function<void(const std::string& why)> on_host_lost;
  /// From this size on a message to several processes that one host agent has started goes to that
  /// host once; the agent gives it to them.
  std::size_t relay_bytes_min = std::size_t{64} << 10;
  /// What starts the processes of this_host. Null: the operating system.
  std::shared_ptr<detail::Launcher> launcher;
};

inline constexpr int unhandled_exit_code = 114;

/// Where a System is reached by host agents and by processes that are not its children.
struct ListenOptions {
  /// Another than loopback or a Unix socket needs a secret, or TLS.
  net::Address address;
  /// What processes are told to connect to, where that differs (a name, the port behind which it
  /// listens). None: `address`.
  net::Address advertised;
  /// Of the job: agents must have the same.
  std::string secret;
  /// Encrypts what goes over TCP; agents and processes need certificates too. Null: it is not.
  std::shared_ptr<net::Tls> tls;
};

class Host;
class HostMesh;

namespace detail {
struct Runtime;
class AdminServer;
class HostLink;
}  // namespace detail

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

  /// Opens the door for host agents (`teson host --join`) and for processes with tickets. Once. Where
  /// it listens: a port 0 has become a number. Errors: `invalid` for an address that strangers reach
  /// without a secret or TLS, else of binding it.
  Result<net::Address> listen(const ListenOptions& options);
  /// The hosts that have joined, in the order of their joining, once there are so many.
  /// `timed_out`, with how many there are.
  Result<HostMesh> wait_hosts(std::size_t count, Instant deadline);
  /// Connects to an agent that listens (`teson host --listen`). It joins as those do that connect
  /// by themselves.
  Result<void> connect_host(const net::Address& address, const std::string& secret,
                            Instant deadline, std::shared_ptr<net::Tls> tls = {});
  /// A mesh of processes that somebody else starts: srun, mpiexec, a pod. Each is given the ticket
  /// of its rank (ProcMesh::ticket) as the environment variable TESON_PROC, and attaches as a child
  /// would. `invalid` before listen.
  Result<ProcMesh> expect_procs(const Shape& shape, ProcOptions options);

  /// What can be seen of this process, the hosts that have joined and all processes that are owned:
  /// told by their I/O threads, so that a handler that is stuck is seen as busy. Blocks until every
  /// process has answered, at most `deadline`: one that does not, because it is stopped or cannot be
  /// reached, is shown without its actors, and why. Not on the I/O thread, nor in a handler that
  /// runs in place.
  SystemSnapshot inspect(Duration deadline = inspect_deadline);
  /// Messages and handlers of this process and of those it owns, from now on for `length`, as JSON
  /// that Chrome and Perfetto show: a process each, a thread an actor, a slice a handler, an arrow a
  /// message; `trace` of each is its trace_id(). A process keeps its last 65,536 events at most.
  /// Processes that attach meanwhile are there from then on; of one that ends meanwhile nothing is
  /// left. The clocks of several hosts are not aligned.
  /// Blocks, as inspect does. `overloaded` while another trace is being taken.
  Result<std::string> trace(Duration length);
  /// Lets other processes of the same user look, through a Unix socket that only they can reach:
  /// `teson ps unix:/PATH`, `teson trace unix:/PATH`, or a line of JSON (docs/formats/admin.md). A second call moves it, or
  /// makes a socket again that was removed. Errors: `invalid` for another kind of address, else of
  /// binding it.
  Result<void> serve_admin(const net::Address& address);

  /// Makes `actor` an actor of this process, with a thread of its own; others reach it through the
  /// reference, also from child processes that got it as an argument. It lives until it is stopped,
  /// or as long as the System.
  template <typename T>
  ActorRef<T> host(std::string name, std::unique_ptr<T> actor, ActorOptions options = {}) {
    return detail::host_actor(node(), std::move(name), std::move(actor), options);
  }
  /// Ends an actor that this process hosts, as ActorMesh::stop does those of a mesh. `invalid` for any other; `timed_out` if its handler goes
  /// on beyond call_deadline. Not from a handler of its own.
  template <typename T>
  Result<void> stop(ActorRef<T> ref) {
    return node().stop_hosted(ref.proc, ref.actor, call_deadline());
  }
  /// A reference made usable.
  template <typename T>
  Actor<T> actor(ActorRef<T> ref) {
    return {node(), ref, call_deadline()};
  }

 private:
  friend class Host;
  friend class HostMesh;
  detail::Node& node();
  Duration call_deadline() const;
  std::unique_ptr<detail::Runtime> runtime_;
  std::unique_ptr<detail::AdminServer> admin_;
};

/// A machine on which processes can be started: the one that this process runs on, or one whose
/// agent has joined. A light handle to its System.
class Host {
 public:
  /// Of the machine.
  std::string name() const;
  /// Starts one process for each rank of `shape`, which must be valid (Shape::validate). Returns once all are started (not yet attached).
  /// On an error those that were started are ended.
  Result<ProcMesh> spawn_procs(const Shape& shape, ProcOptions options);

 private:
  friend Host this_host(System& system);
  friend class HostMesh;
  Host(System& system, std::shared_ptr<detail::HostLink> link)
      : system_(&system), link_(std::move(link)) {}
  System* system_;
  std::shared_ptr<detail::HostLink> link_;  ///< none: this host
};

/// Machines whose agents have joined, one a rank of a shape. A light handle, as Host.
class HostMesh : public Sliceable<HostMesh> {
 public:
  const Region& region() const { return region_; }
  HostMesh through(Region part) const { return {*system_, hosts_, std::move(part)}; }
  Host host(std::size_t rank) const;

  /// Starts so many processes on every host. The mesh has the dimensions of the hosts, then those of
  /// `per_host`. A process whose host is gone is replaced on the one of these with the fewest.
  Result<ProcMesh> spawn_procs(const Shape& per_host, ProcOptions options) const;

 private:
  friend class System;
  HostMesh(System& system, std::vector<std::shared_ptr<detail::HostLink>> hosts, Region region)
      : system_(&system), hosts_(std::move(hosts)), region_(std::move(region)) {}
  System* system_;
  std::vector<std::shared_ptr<detail::HostLink>> hosts_;  ///< of the whole mesh
  Region region_;
};

Host this_host(System& system);

}  // namespace teson::actor
