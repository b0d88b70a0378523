#include <algorithm>

#include "teson/base/check.h"
#include "teson/net/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::net;
  Handshake handshake({.role = HandshakeRole::acceptor,
                       .job_id = "job",
                       .purpose = "comm",
                       .secret = "s",
                       .body = {}});
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size));
  while (!rest.empty()) {
    TESON_CHECK(!handshake.done());
    const std::size_t bytes = std::min(handshake.bytes_wanted(), rest.size());
    if (!handshake.feed(rest.first(bytes))) break;
    (void)handshake.take_output();
    rest = rest.subspan(bytes);
  }
  return 0;
}
