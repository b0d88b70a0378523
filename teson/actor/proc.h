#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "teson/actor/actor.h"
#include "teson/actor/actor_ref.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/local_actor.h"
#include "teson/actor/mesh_place.h"
#include "teson/actor/node.h"
#include "teson/actor/proc_options.h"
#include "teson/base/error.h"
#include "teson/net/loop.h"
#include "teson/net/redial.h"

namespace teson::actor {

namespace detail {
struct Welcome;
class AgentActor;
}  // namespace detail

/// Where a process stands in the mesh it was started for; given to the maker of an actor, where
/// that actor stands in the mesh it was spawned in.
struct ProcContext : MeshPlace {
  /// 0: the first process of this rank; each replacement counts one up.
  std::uint64_t incarnation = 0;
  std::string mesh;  ///< the name of the mesh of processes
};

/// Why a process should end.
enum class StopReason : std::uint8_t { asked, parent_gone };

struct AttachOptions {
  Duration call_deadline = std::chrono::seconds(60);  ///< of calls that do not say within()
  MailboxLimits mailbox;
  Duration handshake_deadline = std::chrono::seconds(10);
};

/// The side of a ProcMesh's process: a child, or one that has a ticket (ProcMesh::ticket) in its
/// environment. In main, before other threads:
///
///     TESON_TRY(auto proc, actor::Proc::attach());
///     proc->serve<Worker>([](const actor::ProcContext& context, std::string greeting) {
///       return std::make_unique<WorkerActor>(context.rank, std::move(greeting));
///     });
///     proc->start();
///     …                   // own work on own threads
///     proc->wait();       // then leave main
///
/// When the parent is gone, wait() returns and whatever user threads still do is cut off after the
/// mesh's orphan_grace: the process ends hard, with exit code orphan_exit_code. Usually the kernel
/// has killed it before. Threads: any, once started.
class Proc {
 public:
  static constexpr int orphan_exit_code = 113;

  /// Whether this process was started by a ProcMesh.
  static bool is_child();
  /// Joins the mesh that this process was started for. `invalid` if it was started otherwise, by
  /// another build of this library, or with a ticket that its owner refuses (another process has used
  /// it, or nobody is expected with it any more); `disconnected` if the parent is gone already. What the parent
  /// passed in the environment is removed from it. An owner on the network that wants TLS gets it
  /// with the files that the environment names (TlsFiles::from_environment).
  static Result<std::unique_ptr<Proc>> attach(AttachOptions options = {});
  /// Ends the actors (waiting for running handlers), then the connection.
  ~Proc();
  Proc(const Proc&) = delete;
  Proc& operator=(const Proc&) = delete;

  const ProcContext& context() const;
  net::Loop& loop();

  /// Lets the parent spawn actors of class T here. `factory(const ProcContext&, arguments…)` gets
  /// T's spawn arguments and returns a unique_ptr to T or to a class derived from it, or a Result
  /// of one; it runs on the new actor's thread. Before start().
  template <typename T, typename F>
  void serve(F factory, ActorOptions options = {}) {
    using Arguments = typename detail::SpawnArguments<T>::type;
    using Made = Result<std::unique_ptr<detail::Behaviour>>;
    auto make = [factory = std::move(factory), own = context()](std::span<const std::byte> bytes,
                                                                const MeshPlace& place) -> Made {
      TESON_TRY(auto arguments, net::decode<Arguments>(bytes));
      ProcContext context = own;
      static_cast<MeshPlace&>(context) = place;
      Result<std::unique_ptr<T>> made = std::apply(
          [&](auto&... args) { return factory(context, std::move(args)...); }, arguments);
      if (!made) return Failure(std::move(made).error());
      return std::make_unique<detail::TypedBehaviour<T>>(std::move(*made));
    };
    node().serve(
        detail::hash_text(detail::class_name<T>()),
        {interface_hash<T>(), std::string(detail::class_name<T>()), std::move(make), options});
  }

  /// Begins to take messages. Once.
  void start();
  /// Waits until the parent asks this process to end, or is gone.
  StopReason wait();
  bool stopping() const;
  /// Called once on the I/O thread when wait() would return; at once if it would now. Must be
  /// short.
  void on_stop(std::function<void(StopReason)> function);

  /// Makes `actor` an actor of this process, as System::host does.
  template <typename T>
  ActorRef<T> host(std::string name, std::unique_ptr<T> actor, ActorOptions options = {}) {
    return detail::host_actor(node(), std::move(name), std::move(actor), options);
  }
  /// As System::stop.
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
  friend class HostServer;
  friend class detail::AgentActor;
  struct State;
  explicit Proc(std::shared_ptr<State> state);
  static Result<std::unique_ptr<Proc>> attach_by_ticket(const std::string& text,
                                                        const AttachOptions& options);
  /// The connections of a process.
  struct Lines {
    std::shared_ptr<net::Channel> owner;
    std::optional<net::Dial> again{};       ///< how to reach the owner, where it may be cut
    std::shared_ptr<net::Channel> agent{};  ///< that has started it, if one has
  };
  static std::unique_ptr<Proc> make(const detail::Welcome& welcome, std::unique_ptr<net::Loop> loop,
                                    Lines lines, const AttachOptions& options);
  /// A process that serves an owner over a channel of `loop`, and lives on without it. `heartbeat`:
  /// the owner's, of which it may miss a few. `dial`: how to reach the owner; else it connects.
  static std::unique_ptr<Proc> over(net::Loop& loop, std::unique_ptr<net::Channel> channel,
                                    std::uint64_t self, Duration heartbeat,
                                    std::optional<net::Dial> dial);
  /// Loop's thread: the owner has connected again.
  void resume(std::unique_ptr<net::Channel> fresh);
  /// As if the owner had asked.
  void stop();
  /// Of a host agent: called on the loop's thread with what is for its processes.
  void on_relay(std::function<void(net::Message)> function);
  detail::Node& node();
  Duration call_deadline() const;
  std::shared_ptr<State> state_;
};

}  // namespace teson::actor
