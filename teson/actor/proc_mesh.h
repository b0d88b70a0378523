#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "teson/actor/actor_ref.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/node.h"
#include "teson/actor/pending.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/shape.h"
#include "teson/base/check.h"
#include "teson/base/error.h"

namespace teson::actor {

namespace detail {

class MeshState;
class RemoteProc;

/// A call that is registered but not yet sent, and the processes it goes to: a slot each.
struct BegunCall {
  std::shared_ptr<PendingCall> pending;
  std::vector<std::shared_ptr<RemoteProc>> procs;

  /// Sends the payload; slots that cannot be reached are completed with the reason.
  void send(std::string payload) const;
};

/// Some ranks' actors of one spawn, without their type.
struct Targets {
  std::shared_ptr<MeshState> mesh;
  std::vector<std::size_t> ranks;
  std::uint64_t actor = 0;
  Duration deadline{};

  BegunCall begin() const;
  /// The first error; the others have been sent to all the same.
  Result<void> send_cast(std::string payload) const;
  std::uint64_t proc_of(std::size_t rank) const;
  Result<std::vector<std::size_t>> slice(std::string_view dimension, std::size_t index) const;
};

}  // namespace detail

/// Actors of type T, one in each of some processes of a mesh. A light handle: copyable, outlives
/// its mesh (calls are then `disconnected`), stays valid when ranks are replaced. Threads: any.
/// Messages of one thread arrive at each actor in the order sent, over calls, casts and slices
/// alike.
template <typename T>
class ActorMesh {
 public:
  explicit ActorMesh(detail::Targets targets) : targets_(std::move(targets)) {}

  std::size_t size() const { return targets_.ranks.size(); }
  /// The ranks, in the proc mesh, that it holds.
  const std::vector<std::size_t>& ranks() const { return targets_.ranks; }
  /// The actor of one rank. The rank must be among ranks().
  ActorMesh at(std::size_t rank) const {
    TESON_CHECK(std::find(ranks().begin(), ranks().end(), rank) != ranks().end(), rank);
    return ActorMesh({targets_.mesh, {rank}, targets_.actor, targets_.deadline});
  }
  /// Those whose coordinate along `dimension` is `index`. `invalid` if there are none.
  Result<ActorMesh> slice(std::string_view dimension, std::size_t index) const {
    TESON_TRY(auto some, targets_.slice(dimension, index));
    return ActorMesh({targets_.mesh, std::move(some), targets_.actor, targets_.deadline});
  }
  /// The same actors, with another deadline for their calls.
  ActorMesh within(Duration deadline) const {
    return ActorMesh({targets_.mesh, targets_.ranks, targets_.actor, deadline});
  }
  /// The actor of one rank as a value, in its present incarnation.
  ActorRef<T> ref(std::size_t rank) const { return {targets_.proc_of(rank), targets_.actor}; }

  /// Calls every actor; wait() of the result gives one Result a rank.
  template <auto Method, typename... Args>
  [[nodiscard]] Call<ReplyOf<Method>> call(const Args&... args) const {
    return Call<ReplyOf<Method>>(start<Method>(args...));
  }
  /// Calls the only actor of a mesh of one.
  template <auto Method, typename... Args>
  [[nodiscard]] CallOne<ReplyOf<Method>> call_one(const Args&... args) const {
    TESON_CHECK(size() == 1, size());
    return CallOne<ReplyOf<Method>>(start<Method>(args...));
  }
  /// Sends to every actor without replies. An error (the first) means that some were not reached;
  /// success does not mean that it was handled. If a handler fails, its actor ends and
  /// SystemOptions::on_actor_failure is told.
  template <auto Method, typename... Args>
  Result<void> cast(const Args&... args) const {
    return targets_.send_cast(payload<Method>(0, args...));
  }

 private:
  template <auto Method, typename... Args>
  std::string payload(std::uint64_t call, const Args&... args) const {
    std::string bytes =
        detail::call_payload(targets_.actor, call, detail::endpoint_id<T, Method>());
    detail::encode_arguments<typename detail::MethodTraits<decltype(Method)>::Arguments>(bytes,
                                                                                         args...);
    return bytes;
  }
  template <auto Method, typename... Args>
  std::shared_ptr<detail::PendingCall> start(const Args&... args) const {
    auto begun = targets_.begin();
    begun.send(payload<Method>(begun.pending->id(), args...));
    return std::move(begun.pending);
  }

  detail::Targets targets_;
};

/// Processes that this process has started and owns, one a rank of a shape. Owner: whoever holds
/// it; the destructor stops them as stop() does, so none is left. It must go before its System.
/// Threads: any, except that stop, replace and the destructor must not run in callbacks on the I/O
/// thread.
class ProcMesh {
 public:
  ProcMesh(ProcMesh&&) noexcept;
  ProcMesh& operator=(ProcMesh&&) noexcept;
  ~ProcMesh();

  const Shape& shape() const;
  std::size_t size() const;
  pid_t pid(std::size_t rank) const;
  std::uint64_t incarnation(std::size_t rank) const;
  /// How the rank's present process ended, if it has.
  std::optional<ProcExit> exit_of(std::size_t rank) const;

  /// Starts an actor of class T in every process, with T's spawn arguments. The processes must name
  /// T by Proc::serve<T>. Does not wait: calls may follow at once, and say why if it failed (so
  /// does on_actor_failure). What was spawned is spawned again in processes that replace others.
  template <typename T, typename... Args>
  ActorMesh<T> spawn(const std::string& name, const Args&... args) {
    std::string bytes;
    detail::encode_arguments<typename detail::SpawnArguments<T>::type>(bytes, args...);
    return ActorMesh<T>(spawn_all(detail::hash_text(detail::class_name<T>()), interface_hash<T>(),
                                  std::string(detail::class_name<T>()), name, std::move(bytes)));
  }

  /// Waits until every process has attached. `timed_out` or, at once, `disconnected` naming the
  /// first rank that ended instead.
  Result<void> wait_attached(Instant deadline) const;

  /// Called for each process that ends without having been asked to, on the System's supervision
  /// thread, which no busy mailbox delays. One that has ended before this call is told too. The
  /// handler may call replace, kill and anything else of this mesh, except its destructor.
  void on_failure(std::function<void(const ProcExit&)> handler);

  /// Sends a signal to one process. `disconnected` if it has ended.
  Result<void> kill(std::size_t rank, int signal);
  /// Starts a new process in the place of one, which is killed if it still runs; the incarnation
  /// counts up. Returns once the process is started; its actors are spawned again, messages sent
  /// meanwhile wait for it to attach. `aborted` after stop; else as of the first start.
  Result<void> replace(std::size_t rank);
  /// The same later, on the supervision thread, for a rank that has died (see RestartBudget);
  /// `done` is then called there with the outcome. Nothing happens, and `done` is not called, if
  /// the rank runs by then, or the mesh has been stopped. One delayed replacement a rank: a second
  /// takes the place of the first.
  void replace_after(std::size_t rank, Duration delay,
                     std::function<void(const Result<void>&)> done = {});
  /// Ends all: asks (Proc::wait returns), after stop_grace SIGTERM, after term_grace SIGKILL.
  /// Returns when all have ended. Idempotent.
  void stop();

 private:
  friend class Host;
  explicit ProcMesh(std::shared_ptr<detail::MeshState> state);
  detail::Targets spawn_all(std::uint64_t class_hash, std::uint64_t interface,
                            std::string class_name, std::string name, std::string arguments);
  std::shared_ptr<detail::MeshState> state_;
};

}  // namespace teson::actor
