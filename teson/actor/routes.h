#pragma once

// The ways of messages to other processes; not for use outside actor/.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "teson/actor/wire.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"

namespace teson::actor::detail {

/// The process that owns a System, among its processes.
inline constexpr std::uint64_t owner_proc = 0;

/// Calls that went to a proc and have not been answered.
using CallCount = std::atomic<std::int64_t>;

/// The processes of a System form a star: its owner has a channel to each, and passes on what they say to each other. The epoch of a
/// message on such a channel names the process at the far end of its way: where it is going on the way to the owner, where it comes from
/// on the way from it; 0: the owner itself. Messages from one process to another all go one way, so their order holds. Threads: any.
class Routes {
 public:
  /// `self`: this process; any but the owner sends what has no route of its own through the owner.
  explicit Routes(std::uint64_t self) : self_(self) {}

  /// There will be a route to it; until then messages are held back. `where`: what messages call it. `unanswered`, if there is one, counts
  /// the calls of this process (send_call); whoever gives it counts the replies.
  void expect(std::uint64_t proc, std::string where, std::shared_ptr<CallCount> unanswered = {});
  struct Route {
    std::shared_ptr<net::Channel> channel;
    std::string where;
    std::shared_ptr<CallCount> unanswered{};
    bool is_private = false;  ///< for this process alone: nothing is passed on to it
  };
  /// What was held back goes first.
  void add(std::uint64_t proc, Route route);
  /// `why`: what later messages to it are told; remembered for the last ends_kept of them. Returns who has sent to it through this process.
  std::set<std::uint64_t> remove(std::uint64_t proc, std::optional<Error> why);
  /// Removes all.
  void clear();

  /// The channel that messages to a process take now.
  struct Way {
    std::shared_ptr<const Route> route;
    std::uint64_t peer = 0;  ///< the epoch of messages there
    explicit operator bool() const { return route != nullptr; }
  };
  Way to(std::uint64_t proc) const;

  /// `from`: who has sent it, where this process passes it on. Errors: `disconnected` with why there is no way; `overloaded` also if too
  /// much is held back; else as of Channel::send.
  Result<void> send(std::uint64_t proc, Kind kind, net::Payload payload,
                    std::uint64_t from = owner_proc);
  /// A call of this process, which is counted.
  Result<void> send_call(std::uint64_t proc, net::Payload payload);

  std::string where(std::uint64_t proc) const;
  /// Why there is no way to it.
  Error gone(std::uint64_t proc) const;

 private:
  struct Held {
    Kind kind;
    net::Payload payload;
    std::uint64_t from;
  };
  /// A process that has not attached yet.
  struct Expected {
    std::string where;
    std::shared_ptr<CallCount> unanswered;
    std::vector<Held> held;
    std::size_t bytes = 0;
  };
  /// `call`: of this process.
  Result<void> send(std::uint64_t proc, Held message, bool call);
  Way way_locked(std::uint64_t proc) const;
  Error gone_locked(std::uint64_t proc) const;
  static Result<void> hold_back(Expected& expected, Held held);

  const std::uint64_t self_;
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Route>> routes_;
  std::unordered_map<std::uint64_t, Expected> expected_;
  std::unordered_map<std::uint64_t, std::set<std::uint64_t>> senders_;  ///< by receiver
  std::deque<std::pair<std::uint64_t, Error>> ends_;                    ///< of procs, the last ones
};

}  // namespace teson::actor::detail
