#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "teson/base/error.h"

namespace teson::net {

/// Where a socket listens or connects, as a value: `unix:/run/teson/a.sock`, `tcp:10.0.0.1:4000`,
/// `tcp:[::1]:0`, `tcp:node7:4000`. Host names are kept as written and looked up when a socket is
/// made. Threads: a plain value.
class Address {
 public:
  enum class Family : std::uint8_t { none, unix_socket, tcp };

  /// What fits into sockaddr_un::sun_path with its final zero.
  static constexpr std::size_t unix_path_bytes_max = 107;
  static constexpr std::size_t host_bytes_max = 253;

  /// No address: family none, empty text.
  Address() = default;

  /// Reads the text form. `invalid` says which part is wrong and shows an example. A Unix path must
  /// be absolute and at most 107 bytes; a port is a number from 0 to 65535 (0: let the system
  /// choose, for listening only).
  static Result<Address> parse(std::string_view text);
  static Result<Address> unix_path(std::string path);
  /// `host`: an IPv4 or IPv6 address (without brackets) or a name.
  static Result<Address> tcp(std::string host, std::uint16_t port);

  Family family() const { return family_; }
  /// unix_socket only.
  const std::string& path() const { return text_; }
  /// tcp only.
  const std::string& host() const { return text_; }
  std::uint16_t port() const { return port_; }

  /// The text that parse reads.
  std::string to_string() const;
  /// True if only this machine can reach it: a Unix socket, 127.0.0.0/8, ::1, or the name
  /// `localhost`. Other names: false.
  bool is_loopback() const;

  bool operator==(const Address&) const = default;

 private:
  Family family_ = Family::none;
  std::uint16_t port_ = 0;
  std::string text_;  ///< path or host
};

}  // namespace teson::net
