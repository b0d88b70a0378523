#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/log.h"
#include "teson/base/world.h"
#include "teson/net/endpoint.h"
#include "teson/net/socket.h"

namespace teson::net {
namespace {

constexpr Duration folder_lock_wait_max = std::chrono::seconds(2);
constexpr Duration folder_lock_interval = std::chrono::milliseconds(1);
constexpr int accept_attempts_max = 64;

Failure in_use(const Address& address) {
  return fail(
      ErrorKind::failed,
      fmt::format("{}: address in use by a living process; stop it or choose another address",
                  address.to_string()));
}

Failure listen_failure(const Address& address, const char* call, int error_number) {
  if (error_number == EADDRINUSE) return in_use(address);
  return fail_errno(fmt::format("{} for {}", call, address.to_string()), error_number);
}

/// Holds off other listeners of ours that look at the same folder, so that nobody takes a socket
/// file between bind and listen for a dead one. A folder that cannot be locked (some network file
/// systems) is used without.
Fd lock_folder(const std::filesystem::path& folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Instant give_up = SystemClock().now() + folder_lock_wait_max;
  while (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || SystemClock().now() >= give_up) break;
    (void)wait_for(-1, 0, SystemClock().now() + folder_lock_interval);
  }
  return fd;
}

/// Removes a socket file whose process is dead; refuses anything else at that path.
Result<void> remove_stale(const Address& address, const Endpoint& endpoint) {
  struct stat status{};
  if (::lstat(address.path().c_str(), &status) != 0) return {};
  if (!S_ISSOCK(status.st_mode)) {
    return fail(ErrorKind::invalid,
                fmt::format("{}: the file there is not a socket; choose another path",
                            address.to_string()));
  }
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return fail_errno("socket", errno);
  if (::connect(probe.get(), endpoint.address(), endpoint.bytes) == 0 || errno != ECONNREFUSED)
    return in_use(address);
  if (::unlink(address.path().c_str()) != 0 && errno != ENOENT)
    return listen_failure(address, "removing the stale file", errno);
  return {};
}

Result<void> bind_unix(int fd, const Address& address, const Endpoint& endpoint, int backlog) {
  const Fd lock = lock_folder(std::filesystem::path(address.path()).parent_path());
  // The file takes its mode from the unbound socket, so there is no moment in which it is open to
  // others.
  if (::fchmod(fd, 0600) != 0) return listen_failure(address, "fchmod", errno);
  if (::bind(fd, endpoint.address(), endpoint.bytes) != 0) {
    if (errno != EADDRINUSE) return listen_failure(address, "bind", errno);
    TESON_TRY_VOID(remove_stale(address, endpoint));
    if (::bind(fd, endpoint.address(), endpoint.bytes) != 0)
      return listen_failure(address, "bind", errno);
  }
  if (::chmod(address.path().c_str(), 0600) != 0) return listen_failure(address, "chmod", errno);
  if (::listen(fd, backlog) != 0) return listen_failure(address, "listen", errno);
  return {};
}

Result<void> bind_tcp(int fd, const Address& address, const Endpoint& endpoint, int backlog) {
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, endpoint.address(), endpoint.bytes) != 0)
    return listen_failure(address, "bind", errno);
  if (::listen(fd, backlog) != 0) return listen_failure(address, "listen", errno);
  return {};
}

Address bound_address(int fd) {
  Endpoint bound;
  bound.bytes = sizeof(bound.storage);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes);
  return address_of(bound);
}

}  // namespace

Result<Listener> Listener::listen(const Address& address, const ListenOptions& options) {
  if (World* const world = World::current()) {
    Listener listener;
    listener.fd_ = world->listen(address.to_string());
    if (!listener.fd_)
      return fail_errno(fmt::format("listening at {}", address.to_string()), errno);
    listener.address_ = address;
    return listener;
  }
  TESON_TRY(const auto endpoints, resolve(address));
  const Endpoint& endpoint = endpoints.front();
  if (!options.has_secret && !endpoint.is_loopback()) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "{}: without a job secret only this machine may be listened to; set a secret, or "
            "listen on 127.0.0.1 or a Unix socket",
            address.to_string()));
  }
  Listener listener;
  listener.fd_ = Fd(::socket(endpoint.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.fd_) return fail_errno(fmt::format("socket for {}", address.to_string()), errno);
  if (endpoint.family() != AF_UNIX) {
    TESON_TRY_VOID(bind_tcp(listener.fd(), address, endpoint, options.backlog));
    listener.address_ = bound_address(listener.fd());
    return listener;
  }
  TESON_TRY_VOID(bind_unix(listener.fd(), address, endpoint, options.backlog));
  struct stat status{};
  if (::lstat(address.path().c_str(), &status) == 0) {
    listener.device_ = status.st_dev;
    listener.inode_ = status.st_ino;
    listener.owner_ = ::getpid();
  }
  listener.address_ = address;
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : fd_(std::move(other.fd_)),
      address_(std::move(other.address_)),
      device_(other.device_),
      inode_(other.inode_),
      owner_(std::exchange(other.owner_, 0)) {}

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::move(other.fd_);
  address_ = std::move(other.address_);
  device_ = other.device_;
  inode_ = other.inode_;
  owner_ = std::exchange(other.owner_, 0);
  return *this;
}

Listener::~Listener() {
  close();
}

bool Listener::is_reachable() const {
  if (address_.family() != Address::Family::unix_socket) return true;
  struct stat status{};
  return ::lstat(address_.path().c_str(), &status) == 0 && status.st_dev == device_ &&
         status.st_ino == inode_;
}

void Listener::close() {
  // A forked child must not take the file from its parent, nor this listener from a later one at
  // the same path.
  if (fd_ && owner_ == ::getpid() && is_reachable()) ::unlink(address_.path().c_str());
  owner_ = 0;
  fd_.reset();
}

Result<std::optional<Socket>> Listener::accept() {
  for (int attempt = 0; attempt < accept_attempts_max; ++attempt) {
    Endpoint peer;
    peer.bytes = sizeof(peer.storage);
    Fd fd(::accept4(fd_.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        Error error = fail_errno(fmt::format("{}: accept", address_.to_string()), errno).value();
        error.kind = ErrorKind::overloaded;
        return fail(std::move(error));
      }
      return fail_errno(fmt::format("{}: accept", address_.to_string()), errno);
    }
    const bool is_unix = address_.family() == Address::Family::unix_socket;
    const bool is_named_so = is_unix || World::current() != nullptr;
    Socket socket(std::move(fd), is_named_so ? address_ : address_of(peer));
    if (!is_unix) return socket;
    const auto credentials = peer_credentials(socket);
    if (credentials && credentials->uid == ::geteuid()) return socket;
    log_warning("net", "{}: closed a connection of user {}: only user {} may connect",
                address_.to_string(),
                credentials ? static_cast<std::int64_t>(credentials->uid) : -1, ::geteuid());
  }
  return std::nullopt;
}

}  // namespace teson::net
