#include "teson/comm/handshake_link.h"

#include <array>
#include <span>

#include <poll.h>

namespace teson::comm {

HandshakeLink::HandshakeLink(net::Socket socket, net::HandshakeOptions options, Instant deadline)
    : socket_(std::move(socket)), handshake_(std::move(options)), deadline_(deadline) {}

short HandshakeLink::events() const {
  return static_cast<short>((handshake_.done() ? 0 : POLLIN) |
                            (sent_ < output_.size() ? POLLOUT : 0));
}

Result<bool> HandshakeLink::progress() {
  std::array<std::byte, 512> input;
  while (true) {
    const auto more = handshake_.take_output();
    output_.insert(output_.end(), more.begin(), more.end());
    while (sent_ < output_.size()) {
      TESON_TRY(const std::size_t bytes,
                socket_.send_some(std::span<const std::byte>(output_).subspan(sent_)));
      if (bytes == 0) break;
      sent_ += bytes;
    }
    if (handshake_.done()) return sent_ == output_.size();
    const std::size_t wanted = std::min(handshake_.bytes_wanted(), input.size());
    TESON_TRY(const std::size_t received, socket_.receive_some(std::span(input).first(wanted)));
    if (received == 0) return false;
    TESON_TRY_VOID(handshake_.feed(std::span<const std::byte>(input).first(received)));
  }
}

}  // namespace teson::comm
