#pragma once

#include <cstddef>
#include <cstdint>

namespace teson::actor {

/// What one actor's mailbox may hold. One message is always taken by an empty mailbox.
struct MailboxLimits {
  std::size_t messages_max = 16384;
  std::size_t bytes_max = std::size_t{1} << 30;
};

/// On which thread an actor's handlers run; one at a time, and in the order of arrival, either way.
enum class Handlers : std::uint8_t {
  /// One of the actor's own: handlers may take their time, block, call others and wait.
  own_thread,
  /// The one that brings the message, if the actor is idle: the caller's if it lives in the same
  /// process, else the I/O thread. Saves a change of threads each way, which is most of what a
  /// call costs. For handlers that take microseconds and never wait: no call of others ends before
  /// its handler does, whatever its deadline, and a wait for a reply is refused as `invalid`.
  in_place,
};

/// How an actor is run by the process that it lives in.
struct ActorOptions {
  Handlers handlers = Handlers::own_thread;
};

}  // namespace teson::actor
