#pragma once

// The tree along which large calls go from their owner to many processes; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "teson/actor/wire.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/payload.h"

namespace teson::actor::detail {

class HostLink;
class RemoteProc;
struct Runtime;

/// A large call to several processes of a host goes there once: to its agent, which gives it to them
/// through shared memory. Its place among other messages is announced to each over its own
/// connection, so that order holds; and each says that it has it, so that one that the agent cannot
/// reach gets it from here. Threads: any, unless said otherwise.
class Relays {
 public:
  explicit Relays(Runtime& runtime) : runtime_(runtime) {}

  using Procs = std::span<const std::shared_ptr<RemoteProc>>;
  using Sent = std::function<void(std::size_t place, Result<void>)>;
  /// Sends a call to each, as RemoteProc::send, but not where the pointer is null; `sent` is told
  /// each result, in any order.
  void send(Procs procs, const net::Payload& call, const Sent& sent);

  /// Loop's thread: a process has a call.
  void taken(std::uint64_t proc, std::uint64_t number);
  /// Loop's thread: its agent cannot give it anything any more.
  void repair(std::uint64_t proc);
  /// A process is gone.
  void forget(std::uint64_t proc);
  /// Calls that somebody has not got yet.
  std::size_t in_flight() const;

 private:
  struct InFlight {
    net::Payload call;
    std::set<std::uint64_t> procs;  ///< that do not have it yet
    const HostLink* host = nullptr;
  };
  struct Load {
    std::size_t calls = 0;
    std::size_t bytes = 0;
  };
  using InFlights = std::map<std::uint64_t, InFlight>;
  /// By way of an agent, to those of `procs` at these places. False: too much is on its way there.
  bool relay(HostLink& host, Procs procs, std::span<const std::size_t> places,
             const net::Payload& call, const Sent& sent);
  /// Under mutex_: announces a call to them; who has been told.
  std::vector<std::uint64_t> announce(Procs procs, std::span<const std::size_t> places,
                                      const Announced& call, const Sent& sent);
  /// Under mutex_.
  bool has_room(const HostLink& host, std::size_t bytes) const;
  /// Under mutex_. The one that follows.
  InFlights::iterator remove(InFlights::iterator one, std::uint64_t proc);

  Runtime& runtime_;
  mutable Mutex mutex_;
  std::uint64_t next_ = 1;
  InFlights in_flight_;
  std::map<const HostLink*, Load> loads_;
};

}  // namespace teson::actor::detail
