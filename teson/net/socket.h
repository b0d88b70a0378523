#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include <sys/types.h>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/net/address.h"

namespace teson::net {

/// A connected stream socket: non-blocking, close-on-exec, TCP_NODELAY, never raises SIGPIPE.
/// Errors name the peer. Threads: one may send while another receives.
///
/// `cancel_fd` of the blocking calls: a descriptor (an eventfd) that ends the call with `aborted`
/// once it is readable; -1: none.
class Socket {
 public:
  Socket() = default;
  /// Takes over a connected stream socket and makes it non-blocking. `endpoint`: as of endpoint().
  Socket(Fd fd, Address peer, Address endpoint = {});

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  /// Gives the descriptor away, for instance to an I/O loop.
  Fd release() { return std::move(fd_); }
  void close() { fd_.reset(); }
  /// The address connected to. For an accepted socket: the remote end (tcp) or the listener's path
  /// (unix).
  const Address& peer() const { return peer_; }
  /// Of a socket that net::connect has connected: where, in numbers, so that it can be reached again without a name being looked up.
  const Address& endpoint() const { return endpoint_; }

  /// Sends what fits now and returns how much; 0: nothing fits. `disconnected` if the peer is gone.
  Result<std::size_t> send_some(std::span<const std::byte> data);
  /// Receives what is there, at most data.size(), and returns how much; 0: nothing now. End of
  /// stream is `disconnected`.
  Result<std::size_t> receive_some(std::span<std::byte> data);
  /// The same over a Unix socket, with the descriptors that came along, added to `descriptors`.
  /// `failed` if this process could not take them all: it has none left.
  Result<std::size_t> receive_some(std::span<std::byte> data, std::deque<Fd>& descriptors);

  /// Sends everything, or ends at `deadline` (`timed_out`).
  Result<void> send_all(std::span<const std::byte> data, Instant deadline, int cancel_fd = -1);
  /// Fills `data`, or ends at `deadline` (`timed_out`) or at the end of the stream
  /// (`disconnected`).
  Result<void> receive_all(std::span<std::byte> data, Instant deadline, int cancel_fd = -1);

 private:
  Fd fd_;
  Address peer_;
  Address endpoint_;
};

/// Who is at the other end of a Unix socket, told by the kernel.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
/// `invalid` for a TCP socket.
Result<PeerCredentials> peer_credentials(const Socket& socket);

struct ListenOptions {
  /// Whether the connections will be authenticated with a job secret. Without one only loopback and
  /// Unix addresses may be listened on: anything else is refused (`invalid`).
  bool has_secret = false;
  int backlog = 256;
};

/// A listening socket. A Unix socket gets mode 0600; a socket file left by a dead process is
/// replaced, that of a living one is refused (`failed`, "in use"). The destructor removes the
/// socket file if it is still ours. Threads: one at a time.
class Listener {
 public:
  static Result<Listener> listen(const Address& address, const ListenOptions& options = {});
  Listener() = default;
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  /// What was bound: port 0 has become the port chosen by the system.
  const Address& address() const { return address_; }
  /// For poll; readable when accept has something.
  int fd() const { return fd_.get(); }
  /// The next connection, or nothing if none waits. A connection to a Unix socket from another user
  /// is closed, logged, and not returned. `overloaded` if descriptors have run out (the connection
  /// stays in the queue: wait before trying again).
  Result<std::optional<Socket>> accept();
  /// Whether a Unix socket's file is still there; true for others.
  bool is_reachable() const;
  /// Stops listening and removes the socket file.
  void close();

 private:
  Fd fd_;
  Address address_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  pid_t owner_ = 0;
};

/// Connects, trying each address that a name stands for. `disconnected`: nobody listens there
/// (refused, no socket file); `timed_out`: no answer by `deadline`; `failed`: anything else.
/// Looking up a name may itself block; numbers and `localhost` do not.
Result<Socket> connect(const Address& address, Instant deadline, int cancel_fd = -1);

/// What every TCP connection of ours wants of the kernel: small messages go at once, and what a dead
/// line has swallowed is sent again within a second of its return, where the kernel can be told so.
void set_tcp_options(int fd);

/// Blocks until `fd` has one of `events` (POLLIN, POLLOUT), the deadline passes (`timed_out`), or
/// cancel_fd is readable (`aborted`).
Result<void> wait_for(int fd, short events, Instant deadline, int cancel_fd = -1);

}  // namespace teson::net
