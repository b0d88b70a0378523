#pragma once

#include <cstddef>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/handshake.h"
#include "teson/net/socket.h"

namespace teson::comm {

/// A connection whose handshake is under way, driven by poll. One thread.
class HandshakeLink {
 public:
  HandshakeLink(net::Socket socket, net::HandshakeOptions options, Instant deadline);

  int fd() const { return socket_.fd(); }
  const net::Address& peer() const { return socket_.peer(); }
  /// What poll should wait for.
  short events() const;
  Instant deadline() const { return deadline_; }
  /// Goes on as far as it can; true when done and all is sent.
  Result<bool> progress();
  /// When done.
  const std::vector<std::byte>& peer_body() const { return handshake_.peer_body(); }
  net::Socket take_socket() { return std::move(socket_); }

 private:
  net::Socket socket_;
  net::Handshake handshake_;
  Instant deadline_;
  std::vector<std::byte> output_;
  std::size_t sent_ = 0;
};

}  // namespace teson::comm
