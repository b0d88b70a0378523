#pragma once

#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include "teson/base/error.h"
#include "teson/net/address.h"

namespace teson::net {

/// A socket address in the system's form.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool is_loopback() const;
};

/// What an address stands for; a name may stand for several endpoints (at most endpoints_max are
/// returned). Looking up a name may block.
Result<std::vector<Endpoint>> resolve(const Address& address);
inline constexpr std::size_t endpoints_max = 8;

/// An IPv4 or IPv6 endpoint as an address with a number for its host.
Address address_of(const Endpoint& endpoint);

}  // namespace teson::net
