#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::actor {

inline constexpr Duration default_heartbeat = std::chrono::seconds(2);

/// Which process of a mesh, and which life of it: each replacement counts one up, from 0.
struct ProcPlace {
  std::size_t rank = 0;
  std::uint64_t incarnation = 0;
};

/// How the processes of a mesh are started and ended. The functions are called once for each
/// process that is started, on the thread that spawns or replaces; an empty one stands for nothing
/// to say.
struct ProcOptions {
  std::string name = "procs";       ///< of the mesh, for messages
  std::filesystem::path program{};  ///< empty: this program itself
  std::function<std::vector<std::string>(const ProcPlace&)> arguments{};
  std::function<std::map<std::string, std::string>(const ProcPlace&)>
      environment{};  ///< added to the inherited one
  std::function<std::filesystem::path(const ProcPlace&)>
      log_file{};  ///< output and errors, appended; empty: inherited
  std::filesystem::path working_folder{};

  /// From the start to Proc::attach; a process that has not attached by then is killed.
  Duration attach_deadline = std::chrono::seconds(60);
  /// From asking to end to SIGTERM, and from there to SIGKILL.
  Duration stop_grace = std::chrono::seconds(5);
  Duration term_grace = std::chrono::seconds(2);
  /// How long a child whose parent is gone may clean up before it ends itself hard.
  Duration orphan_grace = std::chrono::milliseconds(500);
  /// How often the owner asks for a sign of life. One that has given none for two of these intervals
  /// is ended: it was stopped, its I/O thread is blocked, or its machine cannot be reached. Zero:
  /// only the end of its process or its connection counts.
  Duration heartbeat = default_heartbeat;
  /// Also let the kernel kill the child when its parent dies. Off only in tests of orphan_grace.
  bool parent_death_signal = true;
};

/// The end of one process of a mesh.
struct ProcExit {
  std::size_t rank = 0;
  std::uint64_t incarnation = 0;
  pid_t pid = 0;
  std::string host;    ///< name of the machine it ran on
  int exit_code = -1;  ///< -1: a signal ended it, or it is not known how it ended
  int signal = 0;      ///< 0: it ended itself
  bool core_dumped = false;
  bool expected = false;  ///< it had been asked to end, by stop or replace
  std::string cause;      ///< why we ended it ourselves ("did not attach in 60 s"), or empty
  std::vector<std::string> last_lines;  ///< of its log file, at most 10
  Instant instant;                      ///< when this process learned of it

  /// "rank 1 (pid 4711, host 'node3') of mesh 'workers' was ended by signal 11 (SIGSEGV), core
  /// dumped; last lines of its log: …"
  std::string describe(const std::string& mesh) const;
};

}  // namespace teson::actor
