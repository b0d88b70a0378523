#pragma once

// What can be seen of a System and of all that it owns (System::inspect).

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "teson/actor/shape.h"
#include "teson/base/clock.h"

namespace teson::actor {

enum class ActorState : std::uint8_t {
  starting,  ///< it is being made
  idle,
  busy,     ///< a handler runs
  failed,   ///< it has ended by an error; its address still says why
  stopped,  ///< its owner has ended it; its address still says so
};
/// "starting", "idle", "busy", "failed", "stopped".
const char* to_text(ActorState state);

/// One actor at one instant. Of those that have ended a process remembers the last 100.
struct ActorSnapshot {
  std::uint64_t actor = 0;  ///< its number in its process
  std::string name;
  std::string class_name;  ///< that it was hosted or spawned as; empty until it is made
  ActorState state = ActorState::starting;
  std::string handler;  ///< the endpoint whose handler runs now
  /// How long it has run, or how long the actor has been being made; to a few milliseconds.
  Duration busy{};
  std::uint64_t trace = 0;             ///< of the message that is handled now
  std::uint64_t mailbox_messages = 0;  ///< that wait; not the one that is handled
  std::uint64_t mailbox_bytes = 0;
  std::uint64_t handled = 0;  ///< messages whose handler has ended, well or not
  /// Messages that no handler took: the mailbox was full, the actor has ended, or they do not fit.
  std::uint64_t refused = 0;
  /// What a handler, or the actor, last failed of; cut after failure_bytes_max. The actor may live.
  std::string last_failure;
  std::uint64_t last_failure_trace = 0;  ///< of the message that it failed at

  static constexpr std::size_t failure_bytes_max = 1024;
};

enum class ProcState : std::uint8_t {
  starting,  ///< it has not attached yet
  running,
  ended,
};
/// "starting", "running", "ended".
const char* to_text(ProcState state);

/// One process of a mesh.
struct ProcSnapshot {
  std::size_t rank = 0;
  std::uint64_t incarnation = 0;
  std::int64_t pid = 0;
  std::string host;  ///< name of its machine
  ProcState state = ProcState::starting;
  std::string exit;       ///< how it has ended
  std::string no_answer;  ///< why there is nothing about its actors, if it has not said
  /// Calls of this process that it has not answered.
  std::int64_t calls_unanswered = 0;
  std::vector<ActorSnapshot> actors;
};

struct MeshSnapshot {
  std::string name;
  std::vector<Dimension> dimensions;
  std::vector<ProcSnapshot> procs;  ///< by rank
};

/// The agent of a machine that has joined.
struct HostSnapshot {
  std::string name;
  std::int64_t pid = 0;       ///< of the agent
  std::string gone;           ///< why, if it is
  std::string no_answer;      ///< as in ProcSnapshot
  std::uint64_t relayed = 0;  ///< large calls for several of its processes that it was given
  std::vector<ActorSnapshot> actors;
};

/// The process that owns a System, the hosts that have joined it, and the meshes it runs.
struct SystemSnapshot {
  std::string host;
  std::int64_t pid = 0;
  std::vector<ActorSnapshot> actors;
  std::vector<HostSnapshot> hosts;
  std::vector<MeshSnapshot>
      meshes;  ///< in the order they were started; not those that were stopped
};

inline constexpr Duration inspect_deadline = std::chrono::seconds(1);

}  // namespace teson::actor
