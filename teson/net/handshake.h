#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::net {

class Socket;

/// Which end of the connection this is: it opened it, or it listened.
enum class HandshakeRole : std::uint8_t { initiator = 0, acceptor = 1 };

inline constexpr std::uint16_t handshake_version = 1;
inline constexpr std::size_t job_id_bytes_max = 128;
inline constexpr std::size_t purpose_bytes_max = 32;
inline constexpr std::size_t handshake_body_bytes_max = 4096;

struct HandshakeOptions {
  HandshakeRole role = HandshakeRole::initiator;
  std::string job_id;  ///< both ends must have the same; at most job_id_bytes_max
  std::string
      purpose;  ///< what the connection is for ("comm", "quorum", "actor"): the same at both ends
  std::string secret;  ///< the job's secret, never sent; empty only on loopback and Unix sockets
  std::vector<std::byte>
      body;  ///< what else the peer shall learn at once (authenticated with the rest); bounded
};

/// The handshake that opens every connection of ours, as a pure state machine over bytes, so that
/// blocking sockets and an I/O loop can both drive it:
///
///     Handshake handshake(options);
///     while (!handshake.done()) {
///       send(handshake.take_output());
///       bytes = receive exactly handshake.bytes_wanted();
///       handshake.feed(bytes)          // an Error: send take_output() if any, close
///     }
///     send(handshake.take_output());
///
/// Both ends send a hello at once (magic, version, role, job id, purpose, body, a fresh 16-byte
/// nonce); on the other's hello each sends a proof, HMAC-SHA-256 under the job secret over role,
/// own hello and peer's hello. So a proof can be neither replayed (nonces) nor reflected (roles).
/// It authenticates the peer at the start of the connection; it does not encrypt or protect what
/// follows. It takes one round trip. Byte layout: docs/formats/frame.md.
///
/// Errors of feed are `invalid` and name what differs: magic (not one of ours), version, role, job
/// id, purpose, secret, or a length over its bound; no more than the bounds above is ever asked
/// for. After an error the object is spent. One thread.
class Handshake {
 public:
  /// The options are checked by TESON_CHECK: bounds are the caller's promise. The nonce comes from
  /// the operating system.
  explicit Handshake(HandshakeOptions options);

  /// How many bytes feed wants next, exactly; 0 once done. Never reads beyond the handshake.
  std::size_t bytes_wanted() const { return done_ ? 0 : wanted_ - input_.size(); }
  /// Takes at most bytes_wanted() bytes; fewer are kept until the rest comes.
  Result<void> feed(std::span<const std::byte> data);
  /// What must be sent to the peer now; empty if nothing. Each byte is given out once.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }

  /// The peer has proved that it knows the secret. What take_output still holds must yet be sent.
  bool done() const { return done_; }
  /// The peer's body. Only when done.
  const std::vector<std::byte>& peer_body() const { return peer_body_; }

 private:
  enum class Stage : std::uint8_t { prefix, strings, proof };
  Result<void> advance();
  Result<void> read_prefix();
  Result<void> read_strings();
  Result<void> read_proof();

  HandshakeOptions options_;
  std::vector<std::byte> hello_;
  std::vector<std::byte> peer_hello_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<std::byte> peer_body_;
  std::size_t wanted_ = 0;
  Stage stage_ = Stage::prefix;
  bool done_ = false;
};

/// Runs a handshake over a socket until done, an error, `deadline` (`timed_out`), or cancel_fd
/// (`aborted`). Returns the peer's body. A peer that hangs up is `disconnected`. Without a secret
/// the socket's peer must be a loopback or Unix address (`invalid`).
Result<std::vector<std::byte>> run_handshake(Socket& socket, HandshakeOptions options,
                                             Instant deadline, int cancel_fd = -1);

}  // namespace teson::net
