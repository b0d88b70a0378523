#include "teson/actor/admin.h"

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "teson/base/clock.h"
#include "teson/base/log.h"

namespace teson::actor::detail {

namespace {

/// How long to wait where descriptors have run out.
constexpr Duration accept_pause = std::chrono::milliseconds(100);
constexpr std::size_t read_bytes = 4096;

/// The next line, without its end; nothing if the client has hung up between two. What follows it
/// stays in `buffer`.
Result<std::optional<std::string>> read_line(net::Socket& socket, std::string& buffer,
                                             int cancel_fd) {
  const Instant deadline = now() + AdminServer::idle_max;
  std::size_t looked_at = 0;
  while (true) {
    if (const auto end = buffer.find('\n', looked_at); end != std::string::npos) {
      std::string line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return line;
    }
    looked_at = buffer.size();
    if (buffer.size() > admin_request_bytes_max) {
      return fail(ErrorKind::invalid,
                  fmt::format("expected a line of at most {} bytes", admin_request_bytes_max));
    }
    TESON_TRY_VOID(net::wait_for(socket.fd(), POLLIN, deadline, cancel_fd));
    std::byte bytes[read_bytes];
    const auto got = socket.receive_some(bytes);
    if (!got && got.error().kind == ErrorKind::disconnected && buffer.empty()) return std::nullopt;
    if (!got) return Failure(got.error());
    buffer.append(reinterpret_cast<const char*>(bytes), *got);
  }
}

}  // namespace

Result<std::unique_ptr<AdminServer>> AdminServer::listen(const net::Address& address,
                                                         Answer answer) {
  if (address.family() != net::Address::Family::unix_socket) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a Unix socket to be looked at through, found '{}'",
                            address.to_string()));
  }
  Fd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancel) return fail_errno("eventfd", errno);
  TESON_TRY(auto listener, net::Listener::listen(address));
  return std::unique_ptr<AdminServer>(
      new AdminServer(std::move(listener), std::move(cancel), std::move(answer)));
}

AdminServer::AdminServer(net::Listener listener, Fd cancel, Answer answer)
    : listener_(std::move(listener)), cancel_(std::move(cancel)), answer_(std::move(answer)) {
  thread_ = std::jthread([this] { accept(); });
}

AdminServer::~AdminServer() {
  ::eventfd_write(cancel_.get(), 1);
  thread_.join();
}

void AdminServer::accept() {
  pthread_setname_np(pthread_self(), "teson-admin");
  while (net::wait_for(listener_.fd(), POLLIN, Instant::max(), cancel_.get())) {
    auto accepted = listener_.accept();
    if (accepted && *accepted) {
      take(std::move(**accepted));
    } else if (!accepted) {
      log_warning("admin", "{}", accepted.error().describe());
      (void)net::wait_for(cancel_.get(), POLLIN, now() + accept_pause);
    }
  }
  connections_.clear();
  listener_.close();
}

void AdminServer::take(net::Socket socket) {
  connections_.remove_if([](const Connection& connection) { return connection.done.load(); });
  if (connections_.size() >= connections_max) {
    const std::string line =
        admin_error({ErrorKind::overloaded,
                     fmt::format("{} connections are open: try later", connections_max)}) +
        "\n";
    (void)socket.send_some(std::as_bytes(std::span(line)));
    return;
  }
  Connection& connection = connections_.emplace_back();
  connection.socket = std::move(socket);
  try {
    connection.thread = std::jthread([this, &connection] {
      pthread_setname_np(pthread_self(), "teson-admin");
      serve(connection.socket);
      connection.socket.close();
      connection.done = true;
    });
  } catch (const std::system_error& error) {
    // Whoever looks must not end what is looked at.
    log_warning("admin", "no thread for a connection: {}", error.what());
    connections_.pop_back();
  }
}

void AdminServer::serve(net::Socket& socket) const {
  std::string buffer;
  while (true) {
    auto line = read_line(socket, buffer, cancel_.get());
    if (line && !*line) return;
    const auto answer =
        line ? parse_admin_request(**line).and_then(
                   [&](const AdminRequest& request) { return answer_(request, cancel_.get()); })
             : Result<std::string>(Failure(line.error()));
    const auto sent = send_line(socket, answer ? *answer : admin_error(answer.error()));
    if (!answer || !sent) return;
  }
}

Result<void> AdminServer::send_line(net::Socket& socket, std::string line) const {
  line += '\n';
  return socket.send_all(std::as_bytes(std::span(line)), now() + send_max, cancel_.get());
}

}  // namespace teson::actor::detail
