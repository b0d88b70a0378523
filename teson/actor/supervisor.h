#pragma once

// What ProcMesh::supervise does; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "teson/actor/restart_budget.h"
#include "teson/actor/supervision.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::actor::detail {

class MeshState;

/// Supervision thread only.
class Supervisor : public std::enable_shared_from_this<Supervisor> {
 public:
  /// What a supervisor does to its mesh. None of it is called after the mesh has been stopped.
  class Mesh {
   public:
    virtual ~Mesh() = default;
    virtual std::string name() const = 0;
    virtual std::size_t size() const = 0;
    virtual std::uint64_t incarnation(std::size_t rank) const = 0;
    /// Ends a process, as something that was wanted.
    virtual void end(std::size_t rank) = 0;
    /// Starts it again, in the next incarnation.
    virtual Result<void> replace(std::size_t rank) = 0;
    /// Calls `function` after a while; one function a key.
    virtual void later(std::size_t key, Duration delay, std::function<void()> function) = 0;
    virtual void unhandled(const std::string& chain) = 0;
  };

  /// Both must outlive it.
  Supervisor(Mesh& mesh, Supervision supervision, const Clock& clock);

  void ended(const ProcExit& exit);

 private:
  /// The ranks from `first` to `last` are to be started again.
  struct Round {
    std::size_t first = 0;
    std::size_t last = 0;
    ProcExit cause;
  };
  Round round_of(const ProcExit& exit) const;
  /// Of budget, delay and round: one for each rank, or one for the mesh.
  std::size_t key_of(std::size_t rank) const;
  void begin(Round round);
  void restart(std::size_t key);
  void give_up(const ProcExit& exit, const std::string& why);

  Mesh& mesh_;
  const Supervision supervision_;
  RestartBudget budget_;
  std::map<std::size_t, Round> rounds_;  ///< that wait for their delay
  bool given_up_ = false;
};

}  // namespace teson::actor::detail
