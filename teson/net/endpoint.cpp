#include "teson/net/endpoint.h"

#include <cstddef>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>

#include "teson/base/check.h"

namespace teson::net {
namespace {

Endpoint unix_endpoint(const std::string& path) {
  TESON_CHECK(path.size() <= Address::unix_path_bytes_max, path.size());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());
  Endpoint endpoint;
  endpoint.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  std::memcpy(&endpoint.storage, &name, sizeof(name));
  return endpoint;
}

Failure lookup_failure(const Address& address, int problem) {
  const bool later = problem == EAI_AGAIN || problem == EAI_MEMORY;
  return fail(later ? ErrorKind::failed : ErrorKind::invalid,
              fmt::format("{}: looking up the host: {}; check the name or write a numeric address",
                          address.to_string(), ::gai_strerror(problem)));
}

}  // namespace

bool Endpoint::is_loopback() const {
  if (family() == AF_UNIX) return true;
  const Address address = address_of(*this);
  return address.is_loopback();
}

Result<std::vector<Endpoint>> resolve(const Address& address) {
  if (address.family() == Address::Family::unix_socket)
    return std::vector<Endpoint>{unix_endpoint(address.path())};
  if (address.family() == Address::Family::none)
    return fail(ErrorKind::invalid, "no address was given");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int problem =
      ::getaddrinfo(address.host().c_str(), std::to_string(address.port()).c_str(), &hints, &found);
  if (problem != 0) return lookup_failure(address, problem);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* one = found; one != nullptr && endpoints.size() < endpoints_max;
       one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    Endpoint& endpoint = endpoints.emplace_back();
    endpoint.bytes = one->ai_addrlen;
    std::memcpy(&endpoint.storage, one->ai_addr, one->ai_addrlen);
  }
  if (endpoints.empty()) return lookup_failure(address, EAI_NONAME);
  return endpoints;
}

Address address_of(const Endpoint& endpoint) {
  char text[INET6_ADDRSTRLEN] = "";
  std::uint16_t port = 0;
  if (endpoint.family() == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &endpoint.storage, sizeof(four));
    ::inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
    port = ntohs(four.sin_port);
  } else {
    sockaddr_in6 six{};
    std::memcpy(&six, &endpoint.storage, sizeof(six));
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
      ::inet_ntop(AF_INET, six.sin6_addr.s6_addr + 12, text, sizeof(text));
    } else {
      ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
    }
    port = ntohs(six.sin6_port);
  }
  return Address::tcp(text, port).value_or(Address{});
}

}  // namespace teson::net
