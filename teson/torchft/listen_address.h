#pragma once

#include <string>
#include <string_view>

#include "teson/base/error.h"

namespace teson::torchft {

/// Where to listen, as "host:port" or "[v6]:port".
struct ListenAddress {
  std::string host;  ///< brackets of an IPv6 address included
  int port = 0;      ///< 0: any free one
  bool every_interface = false;
};

Result<ListenAddress> parse_listen_address(std::string_view text);

/// Whether this process could listen there now. Fails with the system's reason, in words for the
/// user.
Result<void> probe(const ListenAddress& address);

/// The host that others can use for what listens there: the one that was named; for every interface
/// this machine's name, or "localhost" if that name does not resolve.
std::string advertised_host(const ListenAddress& address);

}  // namespace teson::torchft
