// How a resumable channel outlives its connections.

#include <array>
#include <cstring>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/net/channel_state.h"
#include "teson/net/codec.h"

namespace teson::net {

namespace {

/// What is received before the peer is told that it need not keep it.
constexpr std::uint64_t untold_messages_max = 64;
constexpr std::size_t untold_bytes_max = 256 << 10;
/// Connections in a row that have brought no message, after which damage is taken for what the peer has sent.
constexpr int barren_max = 8;

FrameHeader note(std::uint16_t flags, std::span<const std::byte> payload) {
  return {
      .flags = flags, .payload_bytes = payload.size(), .payload_checksum = frame_checksum(payload)};
}

}  // namespace

void ChannelState::lose_connection(Error error, std::uint64_t connection) {
  if (stage_ != Stage::open || connection != connection_) return;
  const auto self = shared_from_this();
  reclaim();
  // What is damaged again and again, though it was sent anew, has not been damaged on its way.
  if (received_sequence_ > resumed_at_) barren_ = 0;
  if (error.kind == ErrorKind::invalid) ++barren_;
  const bool resumable = error.kind == ErrorKind::disconnected ||
                         (error.kind == ErrorKind::invalid && barren_ < barren_max);
  const auto callbacks = callbacks_;
  if (!options_.resumable || !resumable || peer_ended_ || !callbacks)
    return finish(std::move(error));
  suspend();
  {
    std::lock_guard lock(mutex_);
    cut_ = error;
  }
  if (callbacks->on_cut) callbacks->on_cut(error);
}

void ChannelState::suspend() {
  reclaim();
  stage_ = Stage::cut;
  watch_.cancel();
  gate_.reset();
  write_watch_.cancel();
  write_fd_.reset();
  staging_from_ = staging_to_ = 0;
  filling_header_.reset();
  filling_ = Buffer();
  std::lock_guard lock(mutex_);
  may_write_ = false;
  write_armed_ = false;
  front_sent_ = 0;
  // What they say is said anew when it is resumed.
  std::erase_if(queue_, [this](const Outgoing& frame) {
    if (frame.sequence != 0) return false;
    queued_bytes_ -= frame.size();
    sent_bytes_ -= frame.size();
    return true;
  });
  socket_.close();
}

Socket ChannelState::give_socket() {
  TESON_CHECK(!callbacks_ && "what is resumed over is not started");
  if (stage_ != Stage::open) return {};
  stage_ = Stage::ended;
  watch_.cancel();
  std::lock_guard lock(mutex_);
  may_write_ = false;
  closed_ = {ErrorKind::aborted, "its connection belongs to another channel"};
  return std::move(socket_);
}

void ChannelState::resume(ChannelState& fresh) {
  if (!options_.resumable || (stage_ != Stage::open && stage_ != Stage::cut)) return;
  if (Socket socket = fresh.give_socket()) resume_over(std::move(socket));
}

void ChannelState::resume_over(Socket socket) {
  if (stage_ == Stage::open) suspend();
  ++connection_;
  resumed_at_ = received_sequence_;
  received_untold_ = 0;
  received_untold_bytes_ = 0;
  awaits_peer_ = true;
  stage_ = Stage::open;
  const std::string payload = encode(received_sequence_);
  const auto bytes = std::as_bytes(std::span(payload));
  const FrameHeaderBytes header = encode_frame_header(note(frame_received, bytes));
  std::array<std::byte, frame_header_bytes + sizeof(received_sequence_)> frame;
  TESON_CHECK(header.size() + bytes.size() == frame.size());
  std::memcpy(frame.data(), header.data(), header.size());
  std::memcpy(frame.data() + header.size(), bytes.data(), bytes.size());
  Result<std::size_t> sent = 0;
  {
    std::lock_guard lock(mutex_);
    socket_ = std::move(socket);
    if (!cut_) cut_ = {ErrorKind::disconnected, peer_name() + ": the peer has not resumed it"};
    // It fits into any socket buffer, which nothing but a handshake has used.
    sent = socket_.send_some(frame);
  }
  if (sent != frame.size())
    return lose_connection({ErrorKind::disconnected, "the connection that was to resume it ended"});
  begin_reading();
}

Result<void> ChannelState::take_note(const FrameHeader& header, const Buffer& payload) {
  if (header.flags == frame_ended) {
    peer_ended_ = true;
    return fail(ErrorKind::disconnected, "the peer closed the connection");
  }
  if (header.flags == frame_received) {
    TESON_TRY(const auto received, decode<std::uint64_t>(payload.bytes()));
    return take_received(received);
  }
  return fail(ErrorKind::invalid,
              fmt::format("expected the flags {} or {}{}, found {}", frame_received, frame_ended,
                          awaits_peer_ ? " first" : " outside the sequence", header.flags));
}

Result<void> ChannelState::take_received(std::uint64_t received) {
  const bool resumed = std::exchange(awaits_peer_, false);
  std::deque<Outgoing> done;  // ends after the lock
  std::lock_guard lock(mutex_);
  if (received < acknowledged_ || received > sent_sequence_) {
    return fail(ErrorKind::invalid,
                fmt::format("expected that {} to {} messages have been received, found {}",
                            acknowledged_, sent_sequence_, received));
  }
  acknowledged_ = received;
  while (!kept_.empty() && kept_.front().sequence <= received) {
    kept_bytes_ -= kept_.front().size();
    done.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
  if (!resumed) return {};
  cut_.reset();
  for (auto& lost : kept_ | std::views::reverse) {
    queued_bytes_ += lost.size();
    queue_.push_front(std::move(lost));
  }
  kept_.clear();
  kept_bytes_ = 0;
  may_write_ = true;
  queue_.empty() ? drained_.notify_all() : arm_write_locked();
  loop_.post([self = shared_from_this(), connection = connection_] {
    const auto callbacks = self->callbacks_;
    const bool still = self->stage_ == Stage::open && self->connection_ == connection;
    if (still && callbacks && callbacks->on_resumed) callbacks->on_resumed();
  });
  return {};
}

void ChannelState::count_received(std::size_t bytes) {
  received_untold_bytes_ += frame_header_bytes + bytes;
  if (++received_untold_ < untold_messages_max && received_untold_bytes_ < untold_bytes_max) return;
  received_untold_ = 0;
  received_untold_bytes_ = 0;
  Payload received(encode(received_sequence_));
  const FrameHeader header = note(frame_received, received.bytes());
  std::lock_guard lock(mutex_);
  if (!closed_ && may_write_)
    append_note_locked({encode_frame_header(header), std::move(received), {}, 0});
}

void ChannelState::say_ended_locked() {
  // Behind a part of a message it would not be understood: the peer then learns it by waiting.
  if (!options_.resumable || !may_write_ || front_sent_ != 0) return;
  (void)socket_.send_some(encode_frame_header(note(frame_ended, {})));
}

}  // namespace teson::net
