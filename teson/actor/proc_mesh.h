#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "teson/actor/actor_mesh.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/region.h"
#include "teson/actor/sliceable.h"
#include "teson/actor/supervision.h"
#include "teson/base/error.h"

namespace teson::actor {

/// Some processes of a mesh, in some arrangement: where actors can be spawned. A light handle:
/// copyable, owns nothing, outlives its mesh (calls to what it spawns are then `disconnected`).
/// Threads: any.
class ProcView : public Sliceable<ProcView> {
 public:
  const Region& region() const { return region_; }
  /// Some of its processes, arranged as in `part`. Every rank of it must be in region().
  ProcView through(Region part) const { return {state_, std::move(part)}; }

  /// Starts an actor of class T in every process, with T's spawn arguments. The processes must name
  /// T by Proc::serve<T>. Does not wait: calls may follow at once, and say why if it failed (so
  /// does on_actor_failure). What was spawned is spawned again in processes that replace others.
  /// The ranks, coordinates and size that the actors see are those of this view.
  template <typename T, typename... Args>
  ActorMesh<T> spawn(const std::string& name, const Args&... args) const {
    std::string bytes;
    detail::encode_arguments<typename detail::SpawnArguments<T>::type>(bytes, args...);
    return ActorMesh<T>(spawn_all(detail::hash_text(detail::class_name<T>()), interface_hash<T>(),
                                  std::string(detail::class_name<T>()), name, std::move(bytes)));
  }

 private:
  friend class ProcMesh;
  ProcView(std::shared_ptr<detail::MeshState> state, Region region)
      : state_(std::move(state)), region_(std::move(region)) {}
  detail::Targets spawn_all(std::uint64_t class_hash, std::uint64_t interface,
                            std::string class_name, std::string name, std::string arguments) const;

  std::shared_ptr<detail::MeshState> state_;
  Region region_;
};

/// Processes that this process has started and owns, one a rank of a shape. Owner: whoever holds
/// it; the destructor stops them as stop() does, so none is left. It must go before its System.
/// Threads: any, except that stop, replace and the destructor must not run in callbacks on the I/O
/// thread.
class ProcMesh : public Sliceable<ProcMesh, ProcView> {
 public:
  ProcMesh(ProcMesh&&) noexcept;
  ProcMesh& operator=(ProcMesh&&) noexcept;
  ~ProcMesh();

  const Region& region() const;
  ProcView through(Region part) const { return {state_, std::move(part)}; }
  pid_t pid(std::size_t rank) const;
  std::uint64_t incarnation(std::size_t rank) const;
  /// Of a mesh that somebody else starts (System::expect_procs): what the rank's present or next
  /// process needs as TESON_PROC; it holds secrets. Empty for others. Each is good for one process:
  /// replace makes a new one.
  std::string ticket(std::size_t rank) const;
  /// How the rank's present process ended, if it has.
  std::optional<ProcExit> exit_of(std::size_t rank) const;

  /// Actors in all processes; see ProcView::spawn.
  template <typename T, typename... Args>
  ActorMesh<T> spawn(const std::string& name, const Args&... args) {
    return through(region()).template spawn<T>(name, args...);
  }

  /// Waits until every process has attached. `timed_out` or, at once, `disconnected` naming the
  /// first rank that ended instead.
  Result<void> wait_attached(Instant deadline) const;

  /// Called for each process that ends without having been asked to, on the System's supervision
  /// thread, which no busy mailbox delays. One that has ended before this call is told too. The
  /// handler may call replace, kill and anything else of this mesh, except its destructor. If it
  /// throws, both failures are unhandled; so is a death for which there is no handler within a
  /// second (SystemOptions::on_unhandled).
  void on_failure(std::function<void(const ProcExit&)> handler);

  /// Keeps the mesh alive: starts again what dies, as `supervision` says. Takes the place of
  /// on_failure's handler.
  void supervise(Supervision supervision);

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
  friend class detail::MeshState;
  explicit ProcMesh(std::shared_ptr<detail::MeshState> state);
  std::shared_ptr<detail::MeshState> state_;
};

}  // namespace teson::actor
