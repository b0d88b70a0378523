#pragma once

#include <cstdint>

namespace teson::actor {

/// Names an actor of type T, wherever it lives: a plain value that can be an argument, a reply, or
/// part of one. Bind it with System::actor or Proc::actor to use it. It means the same actor in every
/// process of its System: in the owner, and in all the processes the owner has started or let in.
/// Between two of these messages go by way of the owner, in order.
template <typename T>
struct ActorRef {
  std::uint64_t proc = 0;   ///< 0: the process that owns the System
  std::uint64_t actor = 0;  ///< 0: no actor
  explicit operator bool() const { return actor != 0; }
  bool operator==(const ActorRef&) const = default;
};

}  // namespace teson::actor
