#pragma once

// The insides of a ProcMesh; not for use outside actor/.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "teson/actor/pending.h"
#include "teson/actor/proc_mesh.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/region.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/runtime.h"
#include "teson/actor/shape.h"
#include "teson/actor/supervisor.h"
#include "teson/base/thread.h"
#include "teson/net/loop.h"

namespace teson::actor::detail {

/// Where the processes of a mesh run.
struct Placement {
  /// As many ranks after one another on each; none: on this host.
  std::vector<std::shared_ptr<HostLink>> hosts;
  /// Somebody else starts them.
  bool guests = false;
};

class MeshState : public std::enable_shared_from_this<MeshState>, private Supervisor::Mesh {
 public:
  MeshState(Runtime& runtime, Shape shape, ProcOptions options, Placement placement);
  ~MeshState() override;

  const Region& region() const { return region_; }
  static Result<ProcMesh> make(Runtime& runtime, const Shape& shape, ProcOptions options,
                               Placement placement);
  Result<void> start_all();
  std::string ticket(std::size_t rank) const;
  std::shared_ptr<RemoteProc> proc(std::size_t rank) const;

  Targets spawn(SpawnRequest request, std::string arguments, Region region);
  Result<void> wait_attached(Instant deadline) const;
  void on_failure(std::function<void(const ProcExit&)> handler);
  void supervise(Supervision supervision);
  Result<void> replace(std::size_t rank) override;
  void replace_after(std::size_t rank, Duration delay,
                     std::function<void(const Result<void>&)> done);
  /// Ends all processes; from then on nothing of the runtime is used.
  void stop();

  struct Members {
    std::string name;
    Shape shape;
    std::vector<std::shared_ptr<RemoteProc>> procs;  ///< by rank
  };
  /// Nothing once it is being stopped.
  std::optional<Members> members() const;

  BegunCall begin(const Targets& targets) const;
  /// To the rank that is alive and has the fewest calls unanswered; to any if none is alive.
  BegunCall begin_choice(const Targets& targets);
  Result<void> send_cast(const Targets& targets, const net::Payload& payload) const;
  /// As ActorMesh::stop.
  Result<void> stop_actors(const Targets& targets);

 private:
  /// What must be spawned again in a replacement.
  struct Recipe {
    SpawnRequest request;
    std::string arguments;
    Region region;
    std::shared_ptr<std::set<std::size_t>> stopped;  ///< as in Targets
  };
  // For a supervisor.
  std::string name() const override { return options_.name; }
  std::size_t size() const override { return shape_.ranks(); }
  std::uint64_t incarnation(std::size_t rank) const override;
  void end(std::size_t rank) override;
  void later(std::size_t key, Duration delay, std::function<void()> function) override;
  void unhandled(const std::string& chain) override;

  /// To some ranks of the targets.
  BegunCall begin_locked(const Targets& targets, const Region& region) const;
  std::size_t least_busy_locked(const Targets& targets) const;
  std::vector<std::shared_ptr<RemoteProc>> procs_locked(const Region& region) const;
  Error mesh_stopped() const;
  /// What is told of an actor that was stopped.
  Error stopped_error(std::size_t rank) const;
  Result<std::shared_ptr<RemoteProc>> start(std::size_t rank, std::uint64_t incarnation);
  Result<std::shared_ptr<HostLink>> host_for(std::size_t rank) const;
  void wake() const;
  void replace_dead(std::size_t rank, const std::function<void(const Result<void>&)>& done);
  void ended(const ProcExit& exit);
  void tell(const ProcExit& exit);
  void later_locked(std::size_t key, Duration delay, std::function<void()> function);
  /// A failure that nobody has asked to hear of for a while.
  void give_up_untold();
  static void send_recipe(RemoteProc& proc, const Recipe& recipe);

  Runtime& runtime_;
  const Shape shape_;
  const Region region_{shape_};
  const ProcOptions options_;
  const Placement placement_;

  mutable Mutex mutex_;
  mutable Condition changed_;
  std::vector<std::shared_ptr<RemoteProc>> procs_;
  std::map<std::size_t, std::string> tickets_;  ///< of guests, by rank
  std::vector<Recipe> recipes_;
  std::function<void(const ProcExit&)> on_failure_;
  std::vector<ProcExit> untold_;               ///< failures before there was a handler
  std::map<std::size_t, net::Timer> delayed_;  ///< by rank; others from the number of ranks on
  std::size_t next_choice_ = 0;                ///< the rank whose turn it is
  bool stopped_ = false;
  bool all_ended_ = false;  ///< stop has done its work
  Mutex replace_mutex_;     ///< one replacement at a time
};

}  // namespace teson::actor::detail
