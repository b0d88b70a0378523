#pragma once

// One encrypted connection; not for use outside net/.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <openssl/ssl.h>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/net/handshake.h"
#include "teson/net/socket.h"

namespace teson::net {

/// What OpenSSL says went wrong on this thread; empties its list.
std::string openssl_errors();

/// Carries bytes between a TCP socket, encrypted, and a local one, plain. Holds at most two
/// buffers' worth: a slow end holds up the other. One thread, on which SIGPIPE is blocked.
class TlsTunnel {
 public:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  using SslPtr = std::unique_ptr<SSL, Free>;
  /// Told once, how the handshake has ended.
  using Proven = std::function<void(const Result<void>&)>;

  TlsTunnel(SslPtr ssl, HandshakeRole role, Socket encrypted, Fd plain, Proven proven);
  /// Tells `proven`, if it has not been told.
  ~TlsTunnel();
  TlsTunnel(const TlsTunnel&) = delete;
  TlsTunnel& operator=(const TlsTunnel&) = delete;

  /// Does what can be done now. False: the connection has ended, at either side.
  bool step();
  /// The plain end was closed: what it has said is still carried, for last_words_max.
  void plain_closed() { plain_closed_ = true; }
  /// When to step at the latest.
  std::optional<Instant> deadline() const { return give_up_; }

  int encrypted_fd() const { return encrypted_.fd(); }
  int plain_fd() const { return plain_.get(); }
  /// For poll, after a step; 0: not at all, for its end would be told again and again.
  short encrypted_events() const;
  short plain_events() const;

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{64} << 10;
  struct Bytes {
    std::array<std::byte, buffer_bytes> data;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool empty() const { return begin == end; }
    std::span<std::byte> held() { return std::span(data).subspan(begin, end - begin); }
    void consume(std::size_t bytes);
  };
  enum class Moved : std::uint8_t { some, nothing, ended };

  Moved shake_hands();
  Moved read_encrypted();
  Moved write_plain();
  Moved read_plain();
  Moved write_encrypted();
  /// What the result of an SSL call means for the poll, and for the connection.
  Moved judge(int result);
  std::string reason_of_failure() const;
  void tell(const Result<void>& result);

  SslPtr ssl_;
  Socket encrypted_;
  Fd plain_;
  Proven proven_;
  Bytes incoming_;
  Bytes outgoing_;
  bool ready_ = false;
  bool plain_closed_ = false;
  std::optional<Instant> give_up_;
  bool wants_to_read_ = true;    ///< the last SSL calls did, of the encrypted socket
  bool wants_to_write_ = false;  ///< the same
};

}  // namespace teson::net
