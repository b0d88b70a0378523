#pragma once

// The socket at which a System can be looked at; not for use outside actor/.

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "teson/actor/admin_request.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/net/address.h"
#include "teson/net/socket.h"

namespace teson::actor::detail {

/// Answers lines with lines (docs/formats/admin.md) at a Unix socket of mode 0600, to processes of
/// the same user only. A thread that accepts, and one for each connection, so that a slow answer
/// or a silent client holds up nobody else. Threads: any.
class AdminServer {
 public:
  static constexpr std::size_t connections_max = 8;
  /// From one answer, or from the connection, to the end of the next request.
  static constexpr Duration idle_max = std::chrono::seconds(5);
  /// How long the client may take to read an answer.
  static constexpr Duration send_max = std::chrono::seconds(30);

  /// One line without its end. Runs on the connection's thread; `cancel_fd` becomes readable when
  /// the server ends.
  using Answer = std::function<Result<std::string>(const AdminRequest& request, int cancel_fd)>;

  /// `invalid`: not a Unix socket; else as of net::Listener::listen.
  static Result<std::unique_ptr<AdminServer>> listen(const net::Address& address, Answer answer);
  /// Waits for answers that are being made.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

 private:
  struct Connection {
    net::Socket socket;  ///< its thread's
    std::atomic<bool> done{false};
    std::jthread thread;
  };
  AdminServer(net::Listener listener, Fd cancel, Answer answer);
  void accept();
  void take(net::Socket socket);
  void serve(net::Socket& socket) const;
  Result<void> send_line(net::Socket& socket, std::string line) const;

  net::Listener listener_;  ///< the accepting thread's
  const Fd cancel_;
  const Answer answer_;
  std::list<Connection> connections_;  ///< the accepting thread's
  std::jthread thread_;
};

}  // namespace teson::actor::detail
