#include "teson/net/tls_tunnel.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>

#include "teson/base/log.h"

namespace teson::net {

namespace {

/// How long a connection that was closed here may take to bring what was said before.
constexpr Duration last_words_max = std::chrono::seconds(10);

}  // namespace

std::string openssl_errors() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    const char* const reason = ERR_reason_error_string(code);
    if (!text.empty()) text += ", ";
    text += reason == nullptr ? fmt::format("error {:x}", code) : reason;
  }
  return text.empty() ? "no reason given" : text;
}

TlsTunnel::TlsTunnel(SslPtr ssl, HandshakeRole role, Socket encrypted, Fd plain, Proven proven)
    : ssl_(std::move(ssl)),
      encrypted_(std::move(encrypted)),
      plain_(std::move(plain)),
      proven_(std::move(proven)) {
  SSL_set_fd(ssl_.get(), encrypted_.fd());
  if (role == HandshakeRole::initiator) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

TlsTunnel::~TlsTunnel() {
  tell(fail(ErrorKind::disconnected,
            encrypted_.peer().to_string() + ": the connection ended before the TLS handshake did"));
}

void TlsTunnel::Bytes::consume(std::size_t bytes) {
  begin += bytes;
  if (begin == end) begin = end = 0;
}

bool TlsTunnel::step() {
  wants_to_read_ = wants_to_write_ = false;
  if (plain_closed_) {
    const Instant now = SystemClock().now();
    if (!give_up_) give_up_ = now + last_words_max;
    if (!ready_ || now >= *give_up_) return false;
  }
  while (true) {
    if (!ready_) {
      const Moved moved = shake_hands();
      if (moved == Moved::ended) return false;
      if (moved == Moved::nothing) return true;
    }
    Moved in = incoming_.empty() && !plain_closed_ ? read_encrypted() : Moved::nothing;
    // What came before the end is still handed on.
    if (!incoming_.empty() && write_plain() == Moved::some) in = Moved::some;
    if (in == Moved::ended) return false;
    const Moved out = outgoing_.empty() ? read_plain() : Moved::nothing;
    const Moved written = outgoing_.empty() ? Moved::nothing : write_encrypted();
    if (written == Moved::ended) return false;
    if (out == Moved::ended) {
      SSL_shutdown(ssl_.get());
      return false;
    }
    if (in != Moved::some && out != Moved::some && written != Moved::some) return true;
  }
}

short TlsTunnel::encrypted_events() const {
  int events = wants_to_write_ ? POLLOUT : 0;
  if (wants_to_read_) events |= POLLIN;
  return static_cast<short>(events);
}

short TlsTunnel::plain_events() const {
  if (!ready_) return POLLRDHUP;
  int events = incoming_.empty() ? 0 : POLLOUT;
  if (outgoing_.empty()) events |= POLLIN;
  return static_cast<short>(events);
}

TlsTunnel::Moved TlsTunnel::shake_hands() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    ready_ = true;
    tell({});
    return Moved::some;
  }
  return judge(result);
}

TlsTunnel::Moved TlsTunnel::read_encrypted() {
  ERR_clear_error();
  const int result =
      SSL_read(ssl_.get(), incoming_.data.data(), static_cast<int>(incoming_.data.size()));
  if (result <= 0) return judge(result);
  incoming_.end = static_cast<std::size_t>(result);
  return Moved::some;
}

TlsTunnel::Moved TlsTunnel::write_encrypted() {
  ERR_clear_error();
  const auto bytes = outgoing_.held();
  const int result = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  if (result <= 0) return judge(result);
  outgoing_.consume(static_cast<std::size_t>(result));
  return Moved::some;
}

TlsTunnel::Moved TlsTunnel::write_plain() {
  const auto bytes = incoming_.held();
  const ssize_t sent =
      ::send(plain_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return Moved::nothing;
  plain_closed_ = sent < 0;
  incoming_.consume(plain_closed_ ? bytes.size() : static_cast<std::size_t>(sent));
  return Moved::some;
}

TlsTunnel::Moved TlsTunnel::read_plain() {
  const ssize_t received =
      ::recv(plain_.get(), outgoing_.data.data(), outgoing_.data.size(), MSG_DONTWAIT);
  if (received == 0) return Moved::ended;
  if (received < 0) return errno == EAGAIN || errno == EINTR ? Moved::nothing : Moved::ended;
  outgoing_.end = static_cast<std::size_t>(received);
  return Moved::some;
}

TlsTunnel::Moved TlsTunnel::judge(int result) {
  const int why = SSL_get_error(ssl_.get(), result);
  if (why == SSL_ERROR_WANT_READ) {
    wants_to_read_ = true;
    return Moved::nothing;
  }
  if (why == SSL_ERROR_WANT_WRITE) {
    wants_to_write_ = true;
    return Moved::nothing;
  }
  // A peer that is killed says no farewell; what it says before is whole, for frames are.
  const bool said = why == SSL_ERROR_SSL;
  const std::string reason = said ? reason_of_failure() : "the peer closed the connection";
  const auto error = fail(said ? ErrorKind::invalid : ErrorKind::disconnected,
                          fmt::format("{}: TLS: {}", encrypted_.peer().to_string(), reason));
  // That the peer does not take our proof comes after our part of the handshake.
  if (said && ready_ && reason != "unexpected eof while reading")
    log_warning("net", "{}", error.value().message);
  tell(error);
  return Moved::ended;
}

std::string TlsTunnel::reason_of_failure() const {
  std::string reason = openssl_errors();
  const long proof = SSL_get_verify_result(ssl_.get());
  if (proof != X509_V_OK) reason += fmt::format(" ({})", X509_verify_cert_error_string(proof));
  if (reason.find("wrong version") != std::string::npos) reason += " (the peer speaks no TLS)";
  return reason;
}

void TlsTunnel::tell(const Result<void>& result) {
  if (const auto proven = std::exchange(proven_, nullptr)) proven(result);
}

}  // namespace teson::net
