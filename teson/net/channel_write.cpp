// The sending half of a channel.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "teson/net/channel_state.h"
#include "teson/net/codec.h"

namespace teson::net {

namespace {

constexpr std::size_t messages_per_call_max = 64;
/// What is written in one go before the loop, and other senders, get their turn.
constexpr std::size_t write_turn_bytes = 4 << 20;

}  // namespace

Result<void> ChannelState::send(std::uint16_t kind, Payload payload, std::uint64_t epoch) {
  if (payload.size() > options_.payload_bytes_max) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a message of at most {} bytes, found {}; send it in parts",
                            options_.payload_bytes_max, payload.size()));
  }
  FrameHeader header{.kind = kind, .epoch = epoch};
  if (payload.block() && takes_descriptors_) {
    std::lock_guard lock(mutex_);
    if (can_lend_locked(payload.size())) return lend_locked(header, payload);
  }
  header.payload_checksum = frame_checksum(payload.bytes());
  std::lock_guard lock(mutex_);
  TESON_TRY_VOID(check_room_locked(payload.size()));
  queue_locked(header, std::move(payload));
  return {};
}

void ChannelState::send_note(std::uint16_t kind, Payload payload, std::uint64_t epoch) {
  const FrameHeader header{
      .kind = kind, .epoch = epoch, .payload_checksum = frame_checksum(payload.bytes())};
  std::lock_guard lock(mutex_);
  if (!closed_) queue_locked(header, std::move(payload));
}

Result<void> ChannelState::check_room_locked(std::size_t payload_bytes) const {
  if (closed_) return Failure(*closed_);
  const bool full =
      queued_bytes_ + frame_header_bytes + payload_bytes > options_.outgoing_bytes_max ||
      queue_.size() >= options_.outgoing_messages_max;
  if (keeps_too_much_locked()) {
    return fail(ErrorKind::overloaded,
                fmt::format("the peer has not said of {} bytes that it has received them (at most "
                            "{}); try later",
                            kept_bytes_, options_.outgoing_bytes_max));
  }
  if (queue_.empty() || !full) return {};
  return fail(ErrorKind::overloaded,
              fmt::format("{} bytes in {} messages already wait to be sent (at most {} bytes, {} "
                          "messages); the receiver is too slow, try later",
                          queued_bytes_, queue_.size(), options_.outgoing_bytes_max,
                          options_.outgoing_messages_max));
}

bool ChannelState::keeps_too_much_locked() const {
  return !kept_.empty() && kept_bytes_ - kept_.back().size() > options_.outgoing_bytes_max;
}

bool ChannelState::can_lend_locked(std::size_t bytes) const {
  return lent_.size() < options_.lent_messages_max &&
         lent_bytes_ + bytes <= options_.lent_bytes_max;
}

Result<void> ChannelState::lend_locked(FrameHeader header, const Payload& payload) {
  Payload size(encode(std::uint64_t{payload.size()}));
  TESON_TRY_VOID(check_room_locked(size.size()));
  // The bytes themselves need no checksum: nothing carries them anywhere.
  header.flags = frame_shared;
  header.payload_checksum = frame_checksum(size.bytes());
  lent_[sent_sequence_ + 1] = payload;
  lent_bytes_ += payload.size();
  queue_locked(header, std::move(size), payload);
  return {};
}

void ChannelState::give_back(std::uint64_t sequence) {
  Payload payload(encode(sequence));
  const FrameHeader header{.flags = frame_returned,
                           .payload_checksum = frame_checksum(payload.bytes())};
  std::lock_guard lock(mutex_);
  // No bound holds it up: there are never more of these than the peer may lend.
  if (!closed_) queue_locked(header, std::move(payload));
}

void ChannelState::queue_locked(FrameHeader header, Payload payload, Payload lent) {
  header.sequence = ++sent_sequence_;
  header.payload_bytes = payload.size();
  append_locked(
      {encode_frame_header(header), std::move(payload), std::move(lent), header.sequence});
}

void ChannelState::append_locked(Outgoing frame) {
  queued_bytes_ += frame.size();
  sent_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  write_on_locked();
}

void ChannelState::append_note_locked(Outgoing frame) {
  const auto place = queue_.begin() + (front_sent_ > 0 ? 1 : 0);
  if (place != queue_.end() && place->sequence == 0) {
    *place = std::move(frame);  // which says more than the one before
  } else {
    queued_bytes_ += frame.size();
    sent_bytes_ += frame.size();
    queue_.insert(place, std::move(frame));
  }
  write_on_locked();
}

void ChannelState::write_on_locked() {
  if (!may_write_ || write_armed_) return;
  // An error here is not the channel's end yet: the peer's last words may still lie in the socket. The loop reads them.
  if (!write_locked() || !queue_.empty()) arm_write_locked();
}

Result<std::size_t> ChannelState::write_some_locked() {
  std::array<iovec, 2 * messages_per_call_max> parts;
  std::size_t count = 0;
  std::size_t skip = front_sent_;
  for (std::size_t i = 0; i < std::min(queue_.size(), messages_per_call_max); ++i) {
    // A descriptor goes with the first byte of its frame, so that frame begins a call.
    if (i > 0 && queue_[i].lent.block()) break;
    const auto add = [&](std::span<const std::byte> bytes) {
      const std::size_t drop = std::min(skip, bytes.size());
      skip -= drop;
      if (bytes.size() > drop)
        parts[count++] = {const_cast<std::byte*>(bytes.data()) + drop, bytes.size() - drop};
    };
    add(queue_[i].header);
    add(queue_[i].payload.bytes());
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (const auto& lent = queue_.front().lent.block(); lent && front_sent_ == 0) {
    const int descriptor = lent->fd();
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  }
  while (true) {
    const ssize_t sent = ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return fail_errno("sending", errno);
  }
}

Result<void> ChannelState::write_locked() {
  std::size_t turn = 0;
  while (!queue_.empty() && turn < write_turn_bytes) {
    TESON_TRY(const std::size_t sent, write_some_locked());
    if (sent == 0) return {};
    turn += sent;
    std::size_t gone = front_sent_ + sent;
    while (!queue_.empty() && gone >= queue_.front().size()) {
      gone -= queue_.front().size();
      pop_sent_locked();
    }
    front_sent_ = gone;
  }
  if (queue_.empty()) drained_.notify_all();
  return {};
}

void ChannelState::pop_sent_locked() {
  Outgoing& sent = queue_.front();
  queued_bytes_ -= sent.size();
  if (options_.resumable && sent.sequence != 0) {
    kept_bytes_ += sent.size();
    kept_.push_back(std::move(sent));
  }
  queue_.pop_front();
}

void ChannelState::arm_write_locked() {
  write_armed_ = true;
  loop_.post([self = shared_from_this()] {
    if (self->stage_ == Stage::open) self->watch_for_room();
  });
}

void ChannelState::watch_for_room() {
  if (!write_fd_) {
    write_fd_ = Fd(::fcntl(socket_.fd(), F_DUPFD_CLOEXEC, 0));
    if (!write_fd_) return finish(fail_errno("watching for room to send", errno).value());
    write_watch_ = loop_.watch(write_fd_.get());
  }
  write_watch_.when_writable([this] { write_ready(); });
}

void ChannelState::write_ready() {
  const auto self = shared_from_this();
  Result<void> written;
  bool more = false;
  {
    std::lock_guard lock(mutex_);
    // Not before the peer has said where a resumed channel goes on.
    if (may_write_) written = write_locked();
    more = may_write_ && !queue_.empty();
    write_armed_ = more;
  }
  if (!written) {
    // All that the peer said before it went is delivered first; reading normally finds the end itself.
    reclaim();
    if (callbacks_) read_from(options_.payload_bytes_max);
    return lose_connection({ErrorKind::disconnected, written.error().message});
  }
  if (more) return watch_for_room();
  write_watch_.cancel();
  write_fd_.reset();
}

Result<void> ChannelState::flush(Instant deadline) {
  std::unique_lock lock(mutex_);
  const auto drained = [&] { return (queue_.empty() && !cut_) || closed_; };
  if (!drained_.wait_until(lock, deadline, drained)) {
    return fail(ErrorKind::timed_out, fmt::format("{} bytes still wait to be sent", queued_bytes_));
  }
  if (closed_) return Failure(*closed_);
  return {};
}

void ChannelState::close() {
  Error error{ErrorKind::aborted, "the channel was closed here"};
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    // Who gives up a channel that is cut learns why it was.
    closed_ = error = cut_.value_or(error);
  }
  drained_.notify_all();
  loop_.post([self = shared_from_this(), error] { self->finish(error); });
}

ChannelProgress ChannelState::progress() const {
  std::lock_guard lock(mutex_);
  ChannelProgress progress{.received = received_bytes_.load(std::memory_order_relaxed),
                           .sent = sent_bytes_};
  if (closed_) return progress;
  int on_its_way = 0;
  ::ioctl(socket_.fd(), SIOCOUTQ, &on_its_way);
  auto waiting = queued_bytes_ - front_sent_ + static_cast<std::size_t>(on_its_way);
  if (!may_write_) waiting += kept_bytes_;
  progress.taken = sent_bytes_ - std::min<std::uint64_t>(sent_bytes_, waiting);
  return progress;
}

std::size_t ChannelState::outgoing_bytes() const {
  std::lock_guard lock(mutex_);
  return queued_bytes_;
}

}  // namespace teson::net
