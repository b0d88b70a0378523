#pragma once

#include <cstdint>

namespace teson::actor {

/// Names an actor of type T, wherever it lives: a plain value that can be an argument, a reply, or
/// part of one. Bind it with System::actor or Proc::actor to use it. In this version an actor is
/// reachable from its own process, its parent and its children.
template <typename T>
struct ActorRef {
  std::uint64_t proc = 0;   ///< 0: the process that owns the System
  std::uint64_t actor = 0;  ///< 0: no actor
  explicit operator bool() const { return actor != 0; }
  bool operator==(const ActorRef&) const = default;
};

}  // namespace teson::actor
