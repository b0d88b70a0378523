#pragma once

// The tree along which large calls go from their owner to many processes; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "teson/actor/serial_thread.h"
#include "teson/actor/wire.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/loop.h"
#include "teson/net/payload.h"

namespace teson::actor::detail {

class HostLink;
class RemoteProc;
struct Runtime;

/// A large call to several processes of a host goes there once: to its agent, which gives it to them
/// through shared memory. Its place among other messages is announced to each over its own
/// connection, so that order holds; and each says that it has it, so that one that the agent does not
/// reach gets it from here. Threads: any, unless said otherwise.
class Relays {
 public:
  /// What may be on its way through an agent; what is beyond goes to each process itself. One call
  /// alone may be larger than many together: what is asked of the agent meanwhile waits behind them.
  static constexpr std::size_t in_flight_max = 32;
  static constexpr std::size_t in_flight_bytes_max = std::size_t{64} << 20;
  static constexpr std::size_t call_bytes_max = std::size_t{128} << 20;

  explicit Relays(Runtime& runtime) : runtime_(runtime) {}

  using Procs = std::span<const std::shared_ptr<RemoteProc>>;
  using Sent = std::function<void(std::size_t place, Result<void>)>;
  /// Sends a call to each, as RemoteProc::send, but not where the pointer is null; `sent` is told
  /// each result, in any order.
  void send(Procs procs, const net::Payload& call, const Sent& sent);

  /// Loop's thread: a process has a call.
  void taken(std::uint64_t proc, std::uint64_t number);
  /// Its agent cannot give it anything any more.
  void repair(std::uint64_t proc);
  /// A process is gone.
  void forget(std::uint64_t proc);
  /// Nothing is sent again from then on. Once, before the loop's end.
  void stop();

 private:
  struct InFlight {
    net::Payload call;
    std::set<std::uint64_t> procs;  ///< that do not have it yet
    HostLink* host = nullptr;
    std::uint64_t sent = 0;  ///< bytes to the agent, this call's among them; 0: it went straight
    std::optional<Instant> arrived;  ///< when it was seen that the agent's machine has it
  };
  struct Load {
    std::size_t calls = 0;
    std::size_t bytes = 0;
  };
  struct Again {
    std::uint64_t proc;
    std::uint64_t number;
    net::Payload call;
  };
  using InFlights = std::map<std::uint64_t, InFlight>;
  /// By way of an agent, to those of `procs` at these places. False: too much is on its way there.
  bool relay(HostLink& host, Procs procs, std::span<const std::size_t> places,
             const net::Payload& call, const Sent& sent);
  /// Under mutex_.
  bool has_room(const HostLink& host, std::size_t bytes) const;
  /// Under mutex_: one more of a call's processes needs nothing. The call that follows.
  InFlights::iterator remove(InFlights::iterator one, std::uint64_t proc,
                             std::vector<net::Payload>& ended);
  /// A call that its agent will not get. It counts as on its way until its processes have it.
  void send_again(std::uint64_t number);
  /// On a thread of its own: that is much work for others.
  void send_again(std::vector<Again> calls);
  /// Loop's thread: looks after what is on its way, again and again while there is something.
  void look();

  Runtime& runtime_;
  Mutex mutex_;
  std::uint64_t next_ = 1;
  InFlights in_flight_;
  std::map<const HostLink*, Load> loads_;
  std::map<std::uint64_t, int>
      late_;  ///< of processes: looks since the last receipt that found it missing
  bool looking_ = false;
  bool stopped_ = false;
  std::unique_ptr<SerialThread> again_;  ///< made when first needed
  net::Timer timer_;                     ///< loop's thread
};

}  // namespace teson::actor::detail
