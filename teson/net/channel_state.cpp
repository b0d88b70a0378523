#include "teson/net/channel_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::net {

namespace {

constexpr std::size_t staging_bytes = 64 << 10;
/// What one turn of the loop reads from a channel before others get theirs.
constexpr std::size_t read_turn_bytes = 4 << 20;

std::string name_of(const Address& peer) {
  return peer.family() == Address::Family::none ? "the peer" : peer.to_string();
}

}  // namespace

Channel::State::State(Loop& loop, Socket socket, HandshakeRole role, ChannelOptions options)
    : loop_(loop), socket_(std::move(socket)), options_(std::move(options)) {
  options_.handshake.role = role;
}

void Channel::State::set_open(std::vector<std::byte> peer_body) {
  peer_body_ = std::move(peer_body);
  stage_ = Stage::open;
  std::lock_guard lock(mutex_);
  may_write_ = true;
}

void Channel::State::start(ChannelCallbacks callbacks) {
  auto shared = std::make_shared<const ChannelCallbacks>(std::move(callbacks));
  loop_.post([self = shared_from_this(), shared = std::move(shared)] {
    TESON_CHECK(!self->callbacks_ && "a channel is started once");
    self->callbacks_ = shared;
    self->begin();
  });
}

void Channel::State::begin() {
  if (stage_ == Stage::ended) {
    std::optional<Error> error;
    {
      std::lock_guard lock(mutex_);
      error = closed_;
    }
    const auto callbacks = std::exchange(callbacks_, nullptr);
    if (callbacks->on_closed) callbacks->on_closed(*error);
  } else if (stage_ == Stage::open) {
    const auto callbacks = callbacks_;
    if (callbacks->on_open) callbacks->on_open();
    if (stage_ == Stage::open) read_from(read_turn_bytes);
  } else {
    authenticate([this](const Result<void>& result) {
      if (result) begin();
    });
  }
}

void Channel::State::authenticate(std::function<void(const Result<void>&)> done) {
  TESON_CHECK(loop_.on_loop_thread() && stage_ == Stage::fresh);
  stage_ = Stage::handshake;
  authenticated_ = std::move(done);
  handshake_ = std::make_unique<Handshake>(options_.handshake);
  deadline_ = loop_.after(options_.handshake_deadline, [this] {
    finish(
        {ErrorKind::timed_out,
         fmt::format("handshake with {}: no proof in {:.0f} ms; it is silent, or not one of ours",
                     name_of(peer()), to_ms(options_.handshake_deadline))});
  });
  watch_ = loop_.watch(socket_.fd());
  step_handshake();
}

void Channel::State::step_handshake() {
  const auto self = shared_from_this();
  auto result = run_handshake_step();
  if (!result) return finish(std::move(result).error().in("handshake with " + name_of(peer())));
  if (!handshake_->done()) {
    watch_.when_readable([this] { step_handshake(); });
    return;
  }
  deadline_.cancel();
  std::vector<std::byte> body = handshake_->peer_body();
  handshake_.reset();
  set_open(std::move(body));
  {
    // What was sent before the channel was open.
    std::lock_guard lock(mutex_);
    if (!queue_.empty() && !write_armed_) arm_write_locked();
  }
  handshake_ended({});
}

void Channel::State::handshake_ended(const Result<void>& result) {
  if (const auto done = std::exchange(authenticated_, nullptr)) done(result);
}

Result<void> Channel::State::run_handshake_step() {
  const auto send_output = [&]() -> Result<void> {
    const auto output = handshake_->take_output();
    if (output.empty()) return {};
    // A handshake fits into any socket buffer, which nothing else has used yet.
    TESON_TRY(const std::size_t sent, socket_.send_some(output));
    if (sent != output.size()) {
      return fail(ErrorKind::failed,
                  fmt::format("expected room for {} bytes in the socket buffer, found {}",
                              output.size(), sent));
    }
    return {};
  };
  std::vector<std::byte> bytes;
  while (true) {
    TESON_TRY_VOID(send_output());
    if (handshake_->done()) return {};
    bytes.resize(handshake_->bytes_wanted());
    TESON_TRY(const std::size_t received, socket_.receive_some(bytes));
    if (received == 0) return {};
    if (auto fed = handshake_->feed(std::span(bytes).first(received)); !fed) {
      (void)send_output();
      return fed;
    }
  }
}

void Channel::State::arm_read() {
  if (!watch_.active()) watch_ = loop_.watch(socket_.fd());
  watch_.when_readable([this] { read_from(read_turn_bytes); });
}

void Channel::State::read_from(std::size_t budget) {
  const auto self = shared_from_this();
  std::size_t total = 0;
  while (stage_ == Stage::open && total < budget) {
    auto received = receive();
    if (!received) return finish(std::move(received).error());
    if (*received == 0) break;
    total += *received;
    const bool drained = drained_socket_;
    if (auto taken = take_frames(); !taken)
      return finish(std::move(taken).error().in("message from " + name_of(peer())));
    if (drained) break;
  }
  if (stage_ == Stage::open) arm_read();
}

Result<std::size_t> Channel::State::receive() {
  if (!filling_header_) {
    if (staging_.empty()) staging_.resize(staging_bytes);
    if (staging_from_ > 0) {
      std::memmove(staging_.data(), staging_.data() + staging_from_, staging_to_ - staging_from_);
      staging_to_ -= staging_from_;
      staging_from_ = 0;
    }
  }
  std::size_t& end = filling_header_ ? filled_ : staging_to_;
  const auto room = filling_header_ ? filling_.bytes().subspan(filled_)
                                    : std::span(staging_).subspan(staging_to_);
  TESON_TRY(const std::size_t received, socket_.receive_some(room));
  end += received;
  drained_socket_ = received < room.size();
  return received;
}

Result<void> Channel::State::take_frames() {
  if (filling_header_) {
    if (filled_ < filling_.size()) return {};
    const FrameHeader header = *std::exchange(filling_header_, std::nullopt);
    return deliver(header, std::exchange(filling_, Buffer()));
  }
  while (stage_ == Stage::open && staging_to_ - staging_from_ >= frame_header_bytes) {
    const std::span<const std::byte> staged(staging_.data() + staging_from_,
                                            staging_to_ - staging_from_);
    TESON_TRY(const FrameHeader header,
              decode_frame_header(staged.first<frame_header_bytes>(), options_.payload_bytes_max));
    const auto rest = staged.subspan(frame_header_bytes);
    const auto size = static_cast<std::size_t>(header.payload_bytes);
    Buffer payload(size);
    const std::size_t here = std::min(size, rest.size());
    if (here > 0) std::memcpy(payload.bytes().data(), rest.data(), here);
    staging_from_ += frame_header_bytes + here;
    if (here < size) {
      filling_header_ = header;
      filling_ = std::move(payload);
      filled_ = here;
      return {};
    }
    TESON_TRY_VOID(deliver(header, std::move(payload)));
  }
  return {};
}

Result<void> Channel::State::deliver(const FrameHeader& header, Buffer payload) {
  TESON_TRY_VOID(check_frame_payload(header, payload.bytes()));
  if (header.sequence != received_sequence_ + 1) {
    return fail(ErrorKind::invalid,
                fmt::format("expected sequence {}, found {}; a message was lost or repeated",
                            received_sequence_ + 1, header.sequence));
  }
  received_sequence_ = header.sequence;
  const auto callbacks = callbacks_;
  if (callbacks && callbacks->on_message) {
    callbacks->on_message({header.kind, header.epoch, header.sequence, std::move(payload)});
  }
  return {};
}

void Channel::State::detach() {
  loop_.run([this] {
    callbacks_.reset();
    authenticated_ = nullptr;
    finish({ErrorKind::aborted, "the channel was dropped here"});
  });
}

void Channel::State::finish(Error error) {
  if (stage_ == Stage::ended) return;
  const auto self = shared_from_this();
  stage_ = Stage::ended;
  deadline_.cancel();
  watch_.cancel();
  write_watch_.cancel();
  write_fd_.reset();
  {
    std::lock_guard lock(mutex_);
    // close() may have said why already.
    if (!closed_) closed_ = std::move(error);
    error = *closed_;
    may_write_ = false;
    queue_.clear();
    queued_bytes_ = 0;
    socket_.close();
  }
  drained_.notify_all();
  filling_ = Buffer();
  handshake_ended(Failure(error));
  const auto callbacks = std::exchange(callbacks_, nullptr);
  if (callbacks && callbacks->on_closed) callbacks->on_closed(error);
}

}  // namespace teson::net
