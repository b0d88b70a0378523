#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/comm/communicator.h"
#include "teson/net/address.h"

namespace teson::comm {

struct HostTransportOptions {
  /// Where to listen: a Unix socket within one host, tcp (port 0 allowed) between hosts.
  net::Address address;
  std::string job_id;
  std::string secret;          ///< empty: only loopback and Unix addresses
  std::uint64_t instance = 0;  ///< this process's instance number, told to peers
  /// Connections of peers that are ahead of us (their epoch's connect() has not been called here
  /// yet) wait this long, and this many.
  Duration held_time_max = std::chrono::seconds(60);
  std::size_t held_connections_max = 256;
};

/// One epoch's group, as every member is told it.
struct GroupOptions {
  std::uint64_t epoch = 0;
  int rank = 0;
  std::vector<net::Address>
      addresses;  ///< by rank, the own one included; its length is the group's size
  std::vector<std::uint64_t> instances;  ///< by rank; empty: not compared. Another process at an
                                         ///< address is then `disconnected`
  Duration connect_timeout = std::chrono::seconds(10);
  /// Called once a rank when that peer cannot be reached or hangs up while connecting (on the thread
  /// that connects), or when its stream ends without its having left in good order (its
  /// communicator destroyed or aborted; on the communicator's thread): evidence that it died, not
  /// proof. Must be quick, and must not destroy the communicator.
  std::function<void(int rank)> on_peer_lost;
  /// Messages (send) that arrive before their recv are kept up to this many bytes; further ones
  /// wait at their sender.
  std::size_t early_message_bytes_max = std::size_t{64} << 20;
};

/// Makes communicators between processes over Unix or TCP sockets, one for each epoch, each with
/// fresh connections. One object a process, for its whole life; a thread of its own accepts and
/// authenticates connections from the start, so a peer may connect before this process has heard of
/// the epoch. A connection for a past epoch is refused and told so. Threads: connect from one at a
/// time, the aborts from any. The bytes: docs/formats/frame.md.
class HostTransport {
 public:
  static Result<std::unique_ptr<HostTransport>> listen(HostTransportOptions options);
  /// Communicators must have been destroyed before.
  ~HostTransport();

  /// Where peers connect to: as given, port 0 replaced.
  const net::Address& address() const;

  /// Blocks until every rank of the group called connect for the same epoch. Epochs of successful
  /// calls must grow (`invalid`). Errors: `disconnected` naming the rank when a peer is gone
  /// (refused, or hung up): within milliseconds; `timed_out` naming the ranks that did not come;
  /// `aborted` by the calls below, or because a peer has gone on to a newer epoch; `invalid` for a
  /// wrong secret, job, group size. After any error connect may be called again, for the same or a
  /// later epoch.
  Result<std::unique_ptr<Communicator>> connect(GroupOptions options);

  /// Ends a connect that runs now with `error`, within milliseconds. Later ones are not touched.
  void abort_connect(Error error);
  /// Ends with `error` a connect that runs now, every later one, and the communicators, if their
  /// epoch is below `epoch`. So nothing of an older epoch starts or goes on after this call,
  /// whatever was running. Connections for such epochs are refused.
  void abort_below(std::uint64_t epoch, Error error);

  /// Connections that were turned away: not ours, wrong secret or job, a past epoch, too many.
  std::uint64_t refused_connections() const;

 private:
  struct Impl;
  explicit HostTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace teson::comm
