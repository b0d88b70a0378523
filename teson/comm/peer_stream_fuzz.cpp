#include <algorithm>
#include <vector>

#include <sys/socket.h>

#include "teson/comm/message_box.h"
#include "teson/comm/peer_stream.h"

namespace {

/// Takes messages only, as a communicator without a running collective does.
class Receiver final : public teson::comm::FrameReceiver {
 public:
  teson::Result<std::optional<std::span<std::byte>>> place(
      int rank, const teson::net::FrameHeader& header) override {
    return box_.place(rank, header);
  }
  teson::Result<void> received(int rank, const teson::net::FrameHeader& header) override {
    return box_.received(rank, header);
  }

 private:
  teson::comm::MessageBox box_{1, std::size_t{1} << 20};
};

}  // namespace

/// The input is what a peer sends after the handshake.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson;
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return 0;
  const net::Address address = net::Address::unix_path("/fuzz").value();
  net::Socket writer(Fd{fds[0]}, address);
  comm::PeerStream stream(net::Socket(Fd{fds[1]}, address), 0, 0);
  Receiver receiver;
  const std::atomic<bool> stop = false;
  auto rest = std::as_bytes(std::span(data, size));
  while (!rest.empty()) {
    const auto sent = writer.send_some(rest.first(std::min<std::size_t>(rest.size(), 50000)));
    if (!sent || *sent == 0) break;
    rest = rest.subspan(*sent);
    if (!stream.receive(receiver, stop) || stream.paused()) break;
  }
  return 0;
}
