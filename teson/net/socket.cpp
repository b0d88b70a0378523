#include "teson/net/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "teson/base/clock.h"
#include "teson/base/world.h"

namespace teson::net {
namespace {

/// How many descriptors one receive can take.
constexpr std::size_t descriptors_per_call = 16;
/// TCP_RTO_MAX_MS of newer headers: how long the kernel waits at most before it sends again what was
/// not acknowledged. A line that was dead for a while and is whole again is in use again after it.
constexpr int tcp_rto_max_ms = 44;
constexpr int repeat_ms_max = 1000;

Failure gone(const Address& peer, std::string_view what) {
  return fail(ErrorKind::disconnected, fmt::format("{}: {}", peer.to_string(), what));
}

bool means_gone(int error_number) {
  return error_number == EPIPE || error_number == ECONNRESET || error_number == ECONNABORTED ||
         error_number == ETIMEDOUT || error_number == ENOTCONN || error_number == EHOSTUNREACH ||
         error_number == ENETUNREACH;
}

Failure io_failure(const Address& peer, const char* call, int error_number) {
  Error error = fail_errno(fmt::format("{}: {}", peer.to_string(), call), error_number).value();
  if (means_gone(error_number)) error.kind = ErrorKind::disconnected;
  return fail(std::move(error));
}

}  // namespace

Socket::Socket(Fd fd, Address peer, Address endpoint)
    : fd_(std::move(fd)), peer_(std::move(peer)), endpoint_(std::move(endpoint)) {
  if (!fd_) return;
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  ::fcntl(fd_.get(), F_SETFD, FD_CLOEXEC);
  if (peer_.family() == Address::Family::tcp) set_tcp_options(fd_.get());
}

void set_tcp_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Refused by kernels before 6.15, where a line is tried again after ever longer times.
  ::setsockopt(fd, IPPROTO_TCP, tcp_rto_max_ms, &repeat_ms_max, sizeof(repeat_ms_max));
}

Result<std::size_t> Socket::send_some(std::span<const std::byte> data) {
  while (true) {
    const ssize_t sent = ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return io_failure(peer_, "send", errno);
  }
}

Result<std::size_t> Socket::receive_some(std::span<std::byte> data) {
  while (true) {
    const ssize_t received = ::recv(fd_.get(), data.data(), data.size(), MSG_DONTWAIT);
    if (received > 0 || data.empty())
      return static_cast<std::size_t>(std::max<ssize_t>(received, 0));
    if (received == 0) return gone(peer_, "the peer closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return io_failure(peer_, "receive", errno);
  }
}

Result<std::size_t> Socket::receive_some(std::span<std::byte> data, std::deque<Fd>& descriptors) {
  if (data.empty()) return std::size_t{0};
  alignas(cmsghdr) char control[CMSG_SPACE(descriptors_per_call * sizeof(int))];
  iovec part{data.data(), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t received = -1;
  do {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    received = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    return io_failure(peer_, "receive", errno);
  }
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= one->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(one) + at, sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return fail(ErrorKind::failed,
                fmt::format("{}: a descriptor that came along could not be taken; this process has "
                            "too few (ulimit -n)",
                            peer_.to_string()));
  }
  if (received == 0) return gone(peer_, "the peer closed the connection");
  return static_cast<std::size_t>(received);
}

Result<void> Socket::send_all(std::span<const std::byte> data, Instant deadline, int cancel_fd) {
  while (!data.empty()) {
    TESON_TRY(const std::size_t sent, send_some(data));
    data = data.subspan(sent);
    if (sent == 0) {
      if (auto ready = wait_for(fd(), POLLOUT, deadline, cancel_fd); !ready)
        return fail(ready.error().in(peer_.to_string()));
    }
  }
  return {};
}

Result<void> Socket::receive_all(std::span<std::byte> data, Instant deadline, int cancel_fd) {
  while (!data.empty()) {
    TESON_TRY(const std::size_t received, receive_some(data));
    data = data.subspan(received);
    if (received == 0) {
      if (auto ready = wait_for(fd(), POLLIN, deadline, cancel_fd); !ready)
        return fail(ready.error().in(peer_.to_string()));
    }
  }
  return {};
}

Result<PeerCredentials> peer_credentials(const Socket& socket) {
  if (socket.peer().family() != Address::Family::unix_socket) {
    return fail(ErrorKind::invalid, fmt::format("{}: only a Unix socket knows its peer's user",
                                                socket.peer().to_string()));
  }
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return io_failure(socket.peer(), "reading the peer's credentials", errno);
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

Result<void> wait_for(int fd, short events, Instant deadline, int cancel_fd) {
  while (true) {
    pollfd waits[2] = {{fd, events, 0}, {cancel_fd, POLLIN, 0}};
    const int ready = poll_until(waits, deadline);
    if (ready < 0 && errno != EINTR) return fail_errno("poll", errno);
    if (ready > 0 && waits[1].revents != 0)
      return fail(ErrorKind::aborted, "the wait was cancelled");
    if (ready > 0) return {};
    if (ready == 0 && now() >= deadline)
      return fail(ErrorKind::timed_out, "no answer from the peer before the deadline");
  }
}

}  // namespace teson::net
