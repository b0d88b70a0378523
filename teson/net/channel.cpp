#include "teson/net/channel.h"

#include <utility>

#include "teson/base/check.h"
#include "teson/net/channel_state.h"
#include "teson/net/socket.h"

namespace teson::net {

Channel::Channel(std::shared_ptr<State> state) : state_(std::move(state)) {}
Channel::~Channel() {
  state_->detach();
}

Result<std::unique_ptr<Channel>> Channel::connect(Loop& loop, const Address& address,
                                                  ChannelOptions options, Instant deadline,
                                                  int cancel_fd) {
  TESON_TRY(Socket socket, net::connect(address, deadline, cancel_fd));
  return open(loop, std::move(socket), HandshakeRole::initiator, std::move(options), deadline,
              cancel_fd);
}

Result<std::unique_ptr<Channel>> Channel::open(Loop& loop, Fd fd, HandshakeRole role,
                                               ChannelOptions options, Instant deadline,
                                               int cancel_fd) {
  return open(loop, Socket(std::move(fd), Address()), role, std::move(options), deadline,
              cancel_fd);
}

Result<std::unique_ptr<Channel>> Channel::open(Loop& loop, Socket socket, HandshakeRole role,
                                               ChannelOptions options, Instant deadline,
                                               int cancel_fd) {
  TESON_CHECK(!loop.on_loop_thread());
  if (options.tls) {
    TESON_TRY(socket, options.tls->wrap(std::move(socket), role, deadline, cancel_fd));
  }
  HandshakeOptions handshake = options.handshake;
  handshake.role = role;
  TESON_TRY(auto body, run_handshake(socket, std::move(handshake), deadline, cancel_fd));
  auto state = std::make_shared<State>(loop, std::move(socket), role, std::move(options));
  state->set_open(std::move(body));
  return std::unique_ptr<Channel>(new Channel(std::move(state)));
}

std::unique_ptr<Channel> Channel::adopt(Loop& loop, Fd fd, HandshakeRole role,
                                        ChannelOptions options, const Address& peer) {
  return std::unique_ptr<Channel>(new Channel(
      std::make_shared<State>(loop, Socket(std::move(fd), peer), role, std::move(options))));
}

void Channel::start(ChannelCallbacks callbacks) {
  state_->start(std::move(callbacks));
}

Result<void> Channel::send(std::uint16_t kind, std::string payload, std::uint64_t epoch) {
  return state_->send(kind, Payload(std::move(payload)), epoch);
}
Result<void> Channel::send(std::uint16_t kind, Payload payload, std::uint64_t epoch) {
  return state_->send(kind, std::move(payload), epoch);
}
void Channel::send_note(std::uint16_t kind, Payload payload, std::uint64_t epoch) {
  state_->send_note(kind, std::move(payload), epoch);
}
Result<void> Channel::flush(Instant deadline) {
  return state_->flush(deadline);
}
void Channel::close() {
  state_->close();
}
void Channel::resume(std::unique_ptr<Channel> fresh) {
  // On the loop's thread, and there it ends too.
  const auto shared = std::make_shared<std::unique_ptr<Channel>>(std::move(fresh));
  state_->loop().post([state = state_, shared] { state->resume(*(*shared)->state_); });
}
const std::vector<std::byte>& Channel::peer_body() const {
  return state_->peer_body();
}
const Address& Channel::peer() const {
  return state_->peer();
}
const Address& Channel::endpoint() const {
  return state_->endpoint();
}
void ChannelReader::read_until(Instant deadline, const std::function<bool()>& done,
                               int wake_fd) const {
  state_->read_until(deadline, done, wake_fd);
}
ChannelProgress Channel::progress() const {
  return state_->progress();
}
std::size_t Channel::outgoing_bytes() const {
  return state_->outgoing_bytes();
}

}  // namespace teson::net
