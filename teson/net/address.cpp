#include "teson/net/address.h"

#include <charconv>
#include <utility>

#include <arpa/inet.h>
#include <fmt/core.h>

namespace teson::net {
namespace {

constexpr std::string_view examples =
    "write unix:/run/job/a.sock, tcp:10.0.0.1:4000 or tcp:[::1]:4000";
constexpr std::size_t shown_bytes_max = 80;

std::string quoted(std::string_view text) {
  return fmt::format("'{}{}'", text.substr(0, shown_bytes_max),
                     text.size() > shown_bytes_max ? "…" : "");
}

bool is_ipv6(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

Result<std::uint16_t> parse_port(std::string_view digits, std::string_view address) {
  unsigned port = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || problem != std::errc{} || end != digits.data() + digits.size() ||
      port > 65535) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "address {}: expected a port from 0 to 65535 after the last colon, found {}; {}",
            quoted(address), quoted(digits), examples));
  }
  return static_cast<std::uint16_t>(port);
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  if (text.starts_with("unix:")) return unix_path(std::string(text.substr(5)));
  if (!text.starts_with("tcp:")) {
    return fail(
        ErrorKind::invalid,
        fmt::format("address {}: expected unix: or tcp: at its start; {}", quoted(text), examples));
  }
  const std::string_view rest = text.substr(4);
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find("]:");
    if (end == std::string_view::npos) {
      return fail(ErrorKind::invalid,
                  fmt::format("address {}: expected ']:port' after an IPv6 address; {}",
                              quoted(text), examples));
    }
    std::string host(rest.substr(1, end - 1));
    if (!is_ipv6(host)) {
      return fail(ErrorKind::invalid, fmt::format("address {}: {} is not an IPv6 address; {}",
                                                  quoted(text), quoted(host), examples));
    }
    TESON_TRY(const std::uint16_t port, parse_port(rest.substr(end + 2), text));
    return tcp(std::move(host), port);
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) {
    return fail(ErrorKind::invalid, fmt::format("address {}: expected a port after the host; {}",
                                                quoted(text), examples));
  }
  if (rest.find(':') != colon) {
    return fail(ErrorKind::invalid,
                fmt::format("address {}: an IPv6 address must stand in brackets; {}", quoted(text),
                            examples));
  }
  TESON_TRY(const std::uint16_t port, parse_port(rest.substr(colon + 1), text));
  return tcp(std::string(rest.substr(0, colon)), port);
}

Result<Address> Address::unix_path(std::string path) {
  if (!path.starts_with('/') || path.size() == 1 || path.ends_with('/')) {
    return fail(ErrorKind::invalid,
                fmt::format("socket path {}: expected the absolute path of a file; {}",
                            quoted(path), examples));
  }
  if (path.size() > unix_path_bytes_max) {
    return fail(ErrorKind::invalid, fmt::format("socket path {} has {} bytes, the system allows "
                                                "{}: choose a folder with a shorter name",
                                                quoted(path), path.size(), unix_path_bytes_max));
  }
  if (path.find('\0') != std::string::npos) {
    return fail(ErrorKind::invalid,
                "socket path with a zero byte: expected the absolute path of a file");
  }
  Address address;
  address.family_ = Family::unix_socket;
  address.text_ = std::move(path);
  return address;
}

Result<Address> Address::tcp(std::string host, std::uint16_t port) {
  const bool printable =
      host.find_first_of(" \t\r\n/[]") == std::string::npos && host.find('\0') == std::string::npos;
  if (host.empty() || host.size() > host_bytes_max || !printable ||
      (host.find(':') != std::string::npos && !is_ipv6(host))) {
    return fail(ErrorKind::invalid,
                fmt::format("host {}: expected a name or a numeric address of at most {} bytes; {}",
                            quoted(host), host_bytes_max, examples));
  }
  Address address;
  address.family_ = Family::tcp;
  address.text_ = std::move(host);
  address.port_ = port;
  return address;
}

std::string Address::to_string() const {
  switch (family_) {
    case Family::none:
      return {};
    case Family::unix_socket:
      return "unix:" + text_;
    case Family::tcp:
      break;
  }
  return text_.find(':') == std::string::npos ? fmt::format("tcp:{}:{}", text_, port_)
                                              : fmt::format("tcp:[{}]:{}", text_, port_);
}

bool Address::is_loopback() const {
  if (family_ == Family::unix_socket) return true;
  if (family_ != Family::tcp) return false;
  if (text_ == "localhost") return true;
  in_addr four;
  if (inet_pton(AF_INET, text_.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six;
  return inet_pton(AF_INET6, text_.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six) != 0;
}

}  // namespace teson::net
