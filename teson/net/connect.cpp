#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "teson/base/world.h"
#include "teson/net/endpoint.h"
#include "teson/net/socket.h"

namespace teson::net {
namespace {

/// A full queue of a Unix listener cannot be waited for by poll: it is tried again at this
/// interval.
constexpr Duration unix_queue_interval = std::chrono::milliseconds(2);

Failure connect_failure(const Address& address, int error_number) {
  if (error_number == ECONNREFUSED || error_number == ENOENT) {
    return fail(ErrorKind::disconnected,
                fmt::format("{}: connection refused: nobody listens there", address.to_string()));
  }
  if (error_number == ETIMEDOUT)
    return fail(ErrorKind::timed_out, fmt::format("{}: no answer", address.to_string()));
  return fail_errno(fmt::format("connecting to {}", address.to_string()), error_number);
}

Result<void> connect_unix(int fd, const Endpoint& endpoint, const Address& address,
                          Instant deadline, int cancel_fd) {
  const SystemClock clock;
  while (::connect(fd, endpoint.address(), endpoint.bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return connect_failure(address, errno);
    const Instant now = clock.now();
    if (now >= deadline) {
      return fail(ErrorKind::timed_out,
                  fmt::format("{}: the listener accepts no connections", address.to_string()));
    }
    const auto waited = wait_for(-1, 0, std::min(deadline, now + unix_queue_interval), cancel_fd);
    if (waited.error().kind != ErrorKind::timed_out)
      return fail(waited.error().in(address.to_string()));
  }
  return {};
}

Result<void> connect_tcp(int fd, const Endpoint& endpoint, const Address& address, Instant deadline,
                         int cancel_fd) {
  set_tcp_options(fd);
  if (::connect(fd, endpoint.address(), endpoint.bytes) == 0) return {};
  if (errno != EINPROGRESS && errno != EINTR) return connect_failure(address, errno);
  if (auto ready = wait_for(fd, POLLOUT, deadline, cancel_fd); !ready)
    return fail(ready.error().in(address.to_string()));
  int problem = 0;
  socklen_t length = sizeof(problem);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &length);
  if (problem != 0) return connect_failure(address, problem);
  return {};
}

/// A TCP port of the ephemeral range that nobody listens on can connect to itself (simultaneous
/// open).
bool connected_to_itself(int fd) {
  Endpoint own;
  Endpoint peer;
  own.bytes = peer.bytes = sizeof(own.storage);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.bytes);
  ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes);
  return address_of(own) == address_of(peer);
}

Result<Socket> connect_endpoint(const Endpoint& endpoint, const Address& address, Instant deadline,
                                int cancel_fd) {
  Fd fd(::socket(endpoint.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(fmt::format("socket for {}", address.to_string()), errno);
  if (endpoint.family() == AF_UNIX) {
    TESON_TRY_VOID(connect_unix(fd.get(), endpoint, address, deadline, cancel_fd));
  } else {
    TESON_TRY_VOID(connect_tcp(fd.get(), endpoint, address, deadline, cancel_fd));
    if (connected_to_itself(fd.get())) return connect_failure(address, ECONNREFUSED);
  }
  const bool named = endpoint.family() != AF_UNIX;
  return Socket(std::move(fd), address, named ? address_of(endpoint) : address);
}

}  // namespace

Result<Socket> connect(const Address& address, Instant deadline, int cancel_fd) {
  if (address.family() == Address::Family::tcp && address.port() == 0) {
    return fail(ErrorKind::invalid,
                fmt::format("{}: port 0 is for listening; give the listener's bound port",
                            address.to_string()));
  }
  if (World* const world = World::current()) {
    Fd fd = world->connect(address.to_string());
    if (!fd) return connect_failure(address, errno);
    return Socket(std::move(fd), address, address);
  }
  TESON_TRY(const auto endpoints, resolve(address));
  Error last;
  for (const Endpoint& endpoint : endpoints) {
    auto socket = connect_endpoint(endpoint, address, deadline, cancel_fd);
    if (socket || socket.error().kind == ErrorKind::aborted) return socket;
    last = std::move(socket).error();
  }
  return fail(std::move(last));
}

}  // namespace teson::net
