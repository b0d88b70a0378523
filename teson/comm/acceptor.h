#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include "teson/base/fd.h"
#include "teson/comm/greeting.h"
#include "teson/comm/handshake_link.h"
#include "teson/comm/host_transport.h"
#include "teson/net/socket.h"

namespace teson::comm {

/// A peer's authenticated connection that waits for its epoch.
struct Arrival {
  net::Socket socket;
  Greeting greeting;
  Instant since;
};

/// The listening half of a HostTransport: accepts, authenticates and keeps connections, on its own
/// thread. Threads: any.
class Acceptor {
 public:
  /// Handshakes at once; a further connection takes the place of the oldest.
  static constexpr std::size_t pending_max = 64;
  static constexpr Duration handshake_time_max = std::chrono::seconds(5);

  static Result<std::unique_ptr<Acceptor>> start(const HostTransportOptions& options);
  ~Acceptor();

  const net::Address& address() const { return address_; }
  /// Connections for this epoch, in the order in which they came.
  std::vector<Arrival> take(std::uint64_t epoch);
  /// Refuses connections for epochs below `epoch`, those already here included. Listens again if
  /// somebody removed the socket's file.
  void refuse_below(std::uint64_t epoch);
  /// Readable when connections came since the last take.
  int arrival_fd() const { return arrived_.get(); }
  std::uint64_t refused() const { return refused_; }

 private:
  Acceptor(HostTransportOptions options, net::Listener listener, Fd wake, Fd arrived);
  void run();
  int wait_ms(Instant now);
  void poll_once();
  void listen_again();
  void accept_all();
  void progress(std::list<HandshakeLink>::iterator link);
  void complete(HandshakeLink& link);
  void arrive(net::Socket socket, const Greeting& greeting);
  void expire(Instant now);
  void refuse(net::Socket& socket, const Error& reason);

  const HostTransportOptions options_;
  net::Listener listener_;  ///< the thread's own, as all without a lock below
  const net::Address address_;
  Fd wake_;
  Fd arrived_;
  std::list<HandshakeLink> pending_;
  std::vector<pollfd> polled_;
  bool is_short_ = false;   ///< of descriptors, since the last connection
  Instant accept_again_{};  ///< after descriptors ran out
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> refused_ = 0;
  std::mutex mutex_;
  std::deque<Arrival> held_;  ///< under mutex_
  std::uint64_t floor_ = 0;   ///< under mutex_
  std::jthread thread_;
};

/// The acceptor's answers to a greeting; best effort. The kind of a refusal's error travels with it.
void send_welcome(net::Socket& socket, std::uint64_t epoch);
void send_refusal(net::Socket& socket, std::uint64_t epoch, const Error& why);
inline constexpr std::size_t notice_bytes_max = 512;

}  // namespace teson::comm
