#pragma once

#include <memory>
#include <string>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/handshake.h"
#include "teson/net/socket.h"

namespace teson::net {

/// PEM files of one process.
struct TlsFiles {
  std::string certificate;  ///< its own, with those between it and the authority
  std::string key;          ///< of the certificate
  std::string authority;    ///< whose certificates are trusted, no others
  /// From TESON_TLS_CERT, TESON_TLS_KEY and TESON_TLS_CA. All empty: none is set. `invalid`, by
  /// name, if some are set and others not.
  static Result<TlsFiles> from_environment();
};

/// TLS 1.3 for connections over TCP: both ends prove by a certificate of the job's authority that
/// they belong to it, and nobody between them reads or changes anything. Names in certificates are
/// not compared with addresses: whoever the authority has signed is in, so it should sign for this
/// job alone.
///
/// Encryption runs on a thread of its own, which everything that is made from one Tls shares; what
/// wrap returns is an ordinary socket to that thread. Threads: any. Must not be dropped on a thread
/// that its connections' end waits for.
class Tls {
 public:
  /// Reads the files. `invalid`: one is missing, damaged, or does not fit the others.
  static Result<std::shared_ptr<Tls>> load(const TlsFiles& files);
  /// load(from_environment()); null if the environment names none.
  static Result<std::shared_ptr<Tls>> from_environment();
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Encrypts what goes through a connected socket, if that is over TCP; another is returned as it
  /// is. The initiator waits for the other end's proof:
  /// `invalid` if it is none, `timed_out`, or `aborted` by cancel_fd. The acceptor gets its socket
  /// at once; a peer without a proof is closed then, and logged.
  Result<Socket> wrap(Socket socket, HandshakeRole role, Instant deadline, int cancel_fd = -1);

 private:
  class Pump;
  Tls();
  std::unique_ptr<Pump> pump_;
};

}  // namespace teson::net
