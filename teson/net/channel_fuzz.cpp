// What a channel makes of the frames of a peer that has proved who it is. The input is a row of frames, each: flags, by how much its sequence is
// off, kind, how many bytes of payload, those bytes; then they are framed as a peer would, checksums and all. The first byte: whether
// the channel is resumable, and whether it has been resumed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/clock.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"
#include "teson/net/frame.h"
#include "teson/net/socket.h"

namespace {

using namespace teson;
using namespace teson::net;

constexpr std::size_t frame_prefix_bytes = 4;

Instant soon() {
  return now() + std::chrono::seconds(5);
}

ChannelOptions options(bool resumable) {
  return {.handshake = {.job_id = "job", .purpose = "fuzz", .secret = "s", .body = {}},
          .payload_bytes_max = 4096,
          .resumable = resumable};
}

/// One end for the channel, the other for its peer, who has shaken hands.
std::pair<Fd, Socket> line() {
  int fds[2];
  TESON_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  return {Fd(fds[0]), Socket(Fd(fds[1]), Address())};
}
void shake_hands(Socket& peer) {
  auto handshake = options(false).handshake;
  handshake.role = HandshakeRole::acceptor;
  TESON_CHECK(run_handshake(peer, handshake, soon()).has_value());
}

std::string frames(std::span<const std::uint8_t> input) {
  std::string text;
  std::uint64_t sequence = 0;
  while (input.size() >= frame_prefix_bytes) {
    const std::size_t size = std::min<std::size_t>(input[3], input.size() - frame_prefix_bytes);
    const auto payload = std::as_bytes(input.subspan(frame_prefix_bytes, size));
    const bool numbered = (input[0] & 12) == 0;
    const FrameHeader header{
        .kind = input[2],
        .flags = input[0],
        .sequence = (numbered ? ++sequence : 0) + static_cast<std::uint64_t>(input[1] % 3),
        .payload_bytes = size,
        .payload_checksum = frame_checksum(payload)};
    const auto bytes = encode_frame_header(header);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text.append(reinterpret_cast<const char*>(payload.data()), payload.size());
    input = input.subspan(frame_prefix_bytes + size);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Loop loop("fuzz-io");
  if (size == 0) return 0;
  const bool resumable = (data[0] & 1) != 0;
  const bool resumed = (data[0] & 3) == 3;
  Latch over;
  auto [end, peer] = line();
  const auto channel =
      Channel::adopt(loop, std::move(end), HandshakeRole::initiator, options(resumable));
  channel->start(
      {.on_message = [](const Message& message) { TESON_CHECK(message.payload.size() <= 4096); },
       .on_cut = [&](const Error&) { channel->close(); },
       .on_closed = [&](const Error&) { over.set(); }});
  shake_hands(peer);
  for (int i = 0; i < 3; ++i)
    (void)channel->send(1, "what the peer may say it has received");
  if (resumed) {
    auto [next, next_peer] = line();
    Thread shaking("peer", [&, &other = next_peer] { shake_hands(other); });
    auto fresh =
        Channel::open(loop, std::move(next), HandshakeRole::initiator, options(true), soon());
    shaking.join();
    TESON_CHECK(fresh.has_value());
    channel->resume(std::move(*fresh));
    peer = std::move(next_peer);
  }
  const std::string text = frames(std::span(data, size).subspan(1));
  (void)peer.send_all(std::as_bytes(std::span(text)), soon());
  ::shutdown(peer.fd(), SHUT_WR);
  over.wait();
  return 0;
}
