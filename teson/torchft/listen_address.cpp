#include "teson/torchft/listen_address.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "teson/base/fd.h"
#include "teson/base/log.h"

namespace teson::torchft {

Result<ListenAddress> parse_listen_address(std::string_view text) {
  const auto wrong = [&] {
    return fail(ErrorKind::invalid,
                fmt::format("bind address: expected host:port or [v6]:port with a port of at most "
                            "65535, found '{:.100}'",
                            text));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong();
  const auto host = text.substr(0, colon);
  const auto digits = text.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find_first_of(":/[] ") != std::string_view::npos) return wrong();
  int port = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < 0 || port > 65535)
    return wrong();
  return ListenAddress{std::string(host), port, host == "0.0.0.0" || host == "[::]"};
}

Result<void> probe(const ListenAddress& address) {
  const auto& host = address.host;
  const auto bare = host.front() == '[' ? host.substr(1, host.size() - 2) : host;
  const auto listening = [&](std::string_view why) {
    return fail(
        ErrorKind::failed,
        fmt::format(
            "cannot listen on '{}:{}': {}; expected a free port and an address of this machine",
            host, address.port, why));
  };
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(bare.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      error != 0)
    return listening(::gai_strerror(error));
  int reason = 0;
  bool bound = false;
  for (const auto* each = found; each != nullptr && !bound; each = each->ai_next) {
    const Fd socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
    const int on = 1;
    if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bound = socket && ::bind(socket.get(), each->ai_addr, each->ai_addrlen) == 0;
    if (!bound) reason = errno;
  }
  ::freeaddrinfo(found);
  if (!bound) return listening(std::generic_category().message(reason));
  return {};
}

std::string advertised_host(const ListenAddress& address) {
  if (!address.every_interface) return address.host;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.data(), nullptr, nullptr, &found) != 0) {
    log_warning(
        "torchft",
        "this machine's name '{}' does not resolve; members on other machines need its address",
        name.data());
    return "localhost";
  }
  ::freeaddrinfo(found);
  return name.data();
}

}  // namespace teson::torchft
