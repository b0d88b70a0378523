#include "teson/net/handshake.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/core.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"
#include "teson/net/socket.h"

namespace teson::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "hellos are written as they lie in memory");

constexpr std::uint32_t magic = 0x484E5354;  // "TSNH"
constexpr std::size_t proof_bytes = 32;
constexpr std::size_t shown_bytes_max = 64;
constexpr std::string_view proof_label = "teson handshake proof";

/// The fixed first part of a hello; strings and body follow.
struct Prefix {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t role;
  std::uint8_t has_secret;
  std::uint16_t job_id_bytes;
  std::uint16_t purpose_bytes;
  std::uint32_t body_bytes;
  std::uint64_t nonce[2];
};
static_assert(sizeof(Prefix) == 32);

std::string printable(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min(bytes.size(), shown_bytes_max))) {
    const char c = static_cast<char>(byte);
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text + (bytes.size() > shown_bytes_max ? "…" : "");
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Prefix prefix_of(std::span<const std::byte> hello) {
  Prefix prefix;
  std::memcpy(&prefix, hello.data(), sizeof(prefix));
  return prefix;
}

std::array<std::byte, proof_bytes> proof_of(std::string_view secret,
                                            std::span<const std::byte> prover_hello,
                                            std::span<const std::byte> verifier_hello) {
  std::vector<std::byte> text;
  const auto append = [&text](std::span<const std::byte> part) {
    text.insert(text.end(), part.begin(), part.end());
  };
  append(as_bytes(proof_label));
  append(prover_hello);
  append(verifier_hello);
  return hmac_sha256(secret, text);
}

Failure refuse(std::string message) {
  return fail(ErrorKind::invalid, "handshake: " + std::move(message));
}

}  // namespace

Handshake::Handshake(HandshakeOptions options)
    : options_(std::move(options)), wanted_(sizeof(Prefix)) {
  TESON_CHECK(options_.job_id.size() <= job_id_bytes_max, options_.job_id.size());
  TESON_CHECK(options_.purpose.size() <= purpose_bytes_max, options_.purpose);
  TESON_CHECK(options_.body.size() <= handshake_body_bytes_max, options_.body.size());
  const Prefix prefix{magic,
                      handshake_version,
                      static_cast<std::uint8_t>(options_.role),
                      !options_.secret.empty(),
                      static_cast<std::uint16_t>(options_.job_id.size()),
                      static_cast<std::uint16_t>(options_.purpose.size()),
                      static_cast<std::uint32_t>(options_.body.size()),
                      {entropy64(), entropy64()}};
  const auto append = [this](std::span<const std::byte> part) {
    hello_.insert(hello_.end(), part.begin(), part.end());
  };
  append(std::as_bytes(std::span(&prefix, 1)));
  append(as_bytes(options_.job_id));
  append(as_bytes(options_.purpose));
  append(options_.body);
  output_ = hello_;
}

Result<void> Handshake::feed(std::span<const std::byte> data) {
  TESON_CHECK(data.size() <= bytes_wanted(), data.size(), bytes_wanted());
  input_.insert(input_.end(), data.begin(), data.end());
  while (!done_ && input_.size() == wanted_)
    TESON_TRY_VOID(advance());
  return {};
}

Result<void> Handshake::advance() {
  switch (stage_) {
    case Stage::prefix:
      return read_prefix();
    case Stage::strings:
      return read_strings();
    case Stage::proof:
      break;
  }
  return read_proof();
}

Result<void> Handshake::read_prefix() {
  const Prefix peer = prefix_of(input_);
  if (peer.magic != magic) {
    return refuse(
        fmt::format("expected magic {:#010x}, found {:#010x}: the peer is not a program of ours",
                    magic, peer.magic));
  }
  if (peer.version != handshake_version) {
    return refuse(fmt::format(
        "protocol version differs: {} here, {} at the peer; run the same build at both ends",
        handshake_version, peer.version));
  }
  if (peer.role > 1 || peer.role == static_cast<std::uint8_t>(options_.role)) {
    return refuse(fmt::format(
        "role differs: expected the other end of role {}, found {}; the connection was reflected",
        static_cast<int>(options_.role), peer.role));
  }
  if (peer.job_id_bytes > job_id_bytes_max || peer.purpose_bytes > purpose_bytes_max ||
      peer.body_bytes > handshake_body_bytes_max) {
    return refuse(
        fmt::format("the peer announces a job id of {} bytes, a purpose of {}, a body of {}; at "
                    "most {}, {}, {} are accepted",
                    peer.job_id_bytes, peer.purpose_bytes, peer.body_bytes, job_id_bytes_max,
                    purpose_bytes_max, handshake_body_bytes_max));
  }
  wanted_ += peer.job_id_bytes + peer.purpose_bytes + peer.body_bytes;
  stage_ = Stage::strings;
  return {};
}

Result<void> Handshake::read_strings() {
  const Prefix peer = prefix_of(input_);
  const std::span<const std::byte> all(input_);
  const auto job_id = all.subspan(sizeof(Prefix), peer.job_id_bytes);
  const auto purpose = all.subspan(sizeof(Prefix) + peer.job_id_bytes, peer.purpose_bytes);
  const auto body = all.subspan(sizeof(Prefix) + peer.job_id_bytes + peer.purpose_bytes);
  if (!std::ranges::equal(job_id, as_bytes(options_.job_id))) {
    return refuse(fmt::format(
        "job id differs: '{}' here, '{}' at the peer; one of the two has an address of another job",
        printable(as_bytes(options_.job_id)), printable(job_id)));
  }
  if (!std::ranges::equal(purpose, as_bytes(options_.purpose))) {
    return refuse(
        fmt::format("purpose differs: '{}' here, '{}' at the peer; one of the two has the address "
                    "of another service",
                    printable(as_bytes(options_.purpose)), printable(purpose)));
  }
  if ((peer.has_secret != 0) != !options_.secret.empty()) {
    return refuse(fmt::format(
        "secret differs: {} here, {} at the peer; give both ends the job's secret",
        options_.secret.empty() ? "none" : "one", peer.has_secret != 0 ? "one" : "none"));
  }
  peer_body_.assign(body.begin(), body.end());
  peer_hello_ = std::exchange(input_, {});
  const auto proof = proof_of(options_.secret, hello_, peer_hello_);
  output_.insert(output_.end(), proof.begin(), proof.end());
  wanted_ = proof_bytes;
  stage_ = Stage::proof;
  return {};
}

Result<void> Handshake::read_proof() {
  const auto expected = proof_of(options_.secret, peer_hello_, hello_);
  if (!equal_constant_time(input_, expected)) {
    return refuse(
        "secret differs: the peer's proof does not match; give both ends the job's secret");
  }
  done_ = true;
  return {};
}

Result<std::vector<std::byte>> run_handshake(Socket& socket, HandshakeOptions options,
                                             Instant deadline, int cancel_fd) {
  if (options.secret.empty() && !socket.peer().is_loopback()) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "{}: without a job secret only this machine may be connected to; set the secret",
            socket.peer().to_string()));
  }
  Handshake handshake(std::move(options));
  std::vector<std::byte> input;
  while (true) {
    TESON_TRY_VOID(socket.send_all(handshake.take_output(), deadline, cancel_fd));
    if (handshake.done()) return handshake.peer_body();
    input.resize(handshake.bytes_wanted());
    TESON_TRY_VOID(socket.receive_all(input, deadline, cancel_fd));
    if (Result<void> fed = handshake.feed(input); !fed)
      return fail(fed.error().in(socket.peer().to_string()));
  }
}

}  // namespace teson::net
