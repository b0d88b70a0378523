#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "teson/base/error.h"

namespace teson::torchft {

/// The defaults are those of torchft's command line, except that only this machine can reach the
/// port.
struct Options {
  std::string bind = "127.0.0.1:29510";  ///< "host:port"; port 0 takes a free one; "[::]:29510" or
                                         ///< "0.0.0.0:29510" for every interface
  std::size_t min_replicas = 1;
  std::int64_t join_timeout_ms =
      60'000;  ///< how long a majority waits for heartbeating members that did not ask yet
  std::int64_t quorum_tick_ms = 100;  ///< a pending quorum is looked at again at least this often
  std::int64_t heartbeat_timeout_ms = 5'000;  ///< silent for longer: does not count
  /// The last quorum id in use, so that ids stay new through a restart of the lighthouse; 0 for a
  /// fresh one.
  std::int64_t quorum_id = 0;
  /// Called at each quorum with a new id, before any member hears of it, so that the id can be kept
  /// for a restart (keep the largest: threads may overtake each other). Must be quick and must not
  /// call the server.
  std::function<void(std::int64_t quorum_id, std::size_t members)> on_quorum;
};

struct Status {
  std::int64_t quorum_id = 0;
  std::size_t members = 0;     ///< of the last quorum
  std::size_t waiting = 0;     ///< calls that wait for the next one
  std::size_t heartbeats = 0;  ///< members that are remembered, silent ones included
  std::string reason;          ///< why the next quorum is or is not formed
};

/// torchft's lighthouse: the service torchft.LighthouseService over plaintext gRPC, for unmodified
/// torchft clients. The rules are in teson/quorum/torchft_quorum.h. A waiting call holds no thread;
/// one that is cancelled, passes its deadline or loses its connection takes part no longer. The
/// port has no authentication, as torchft's has none: bind it where only the job can reach it.
/// Threads: all functions from any.
class Server {
 public:
  /// Listens and serves. Fails with `invalid` (an option) or `failed` (cannot listen: the port is
  /// in use, no such address).
  static Result<std::unique_ptr<Server>> start(Options options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// "http://host:port", as TORCHFT_LIGHTHOUSE wants it. The host is the one that was bound, or
  /// this machine's name if all were.
  std::string address() const;
  int port() const;
  Status status() const;

  /// Answers every waiting call with UNAVAILABLE and stops listening; at most about a second.
  /// Further calls do nothing.
  void shutdown();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace teson::torchft
