#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "teson/actor/proc_options.h"
#include "teson/actor/restart_budget.h"

namespace teson::actor {

/// Which processes of a mesh are started again when one of them has died.
enum class Strategy : std::uint8_t {
  one_for_one,   ///< that one
  rest_for_one,  ///< that one and those of higher rank, which depend on it
  all_for_one,   ///< all of them, which cannot go on without each other
  escalate,      ///< none: it is for the owner's owner to deal with
};

/// The end of supervision: a death that no restart follows.
struct GivenUp {
  std::string mesh;
  ProcExit exit;    ///< the last death
  std::string why;  ///< "restarted 5 times within 60 s"

  /// "mesh 'workers' is given up, restarted 5 times within 60 s; the last: rank 1 (pid …) …"
  std::string describe() const;
};

/// How ProcMesh::supervise keeps a mesh alive. All functions are called on the System's supervision
/// thread; an empty one stands for nothing to say.
struct Supervision {
  Strategy strategy = Strategy::one_for_one;
  /// Counted for each rank by one_for_one, else for the mesh as a whole. Deaths while a restart is
  /// already on its way are part of it and count once.
  RestartPolicy restarts{};
  /// Every death that was not asked for, before anything is done about it.
  std::function<void(const ProcExit&)> on_exit{};
  /// These ranks have just been started again.
  std::function<void(const std::vector<std::size_t>& ranks)> on_restart{};
  /// No restart follows; the rest of the mesh runs on. Empty: the failure is unhandled
  /// (SystemOptions::on_unhandled).
  std::function<void(const GivenUp&)> on_give_up{};
};

}  // namespace teson::actor
