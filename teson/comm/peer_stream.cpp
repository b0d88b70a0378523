#include "teson/comm/peer_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "teson/base/check.h"

namespace teson::comm {
namespace {

Failure stream_failure(const char* what, int error_number) {
  Error error = fail_errno(what, error_number).value();
  if (error.kind != ErrorKind::overloaded) error.kind = ErrorKind::disconnected;
  return fail(std::move(error));
}

}  // namespace

PeerStream::PeerStream(net::Socket socket, int rank, std::uint64_t epoch)
    : socket_(std::move(socket)), rank_(rank), epoch_(epoch) {}

void PeerStream::fill_batch() {
  std::size_t bytes = 0;
  while (batch_.size() < batch_frames_max && bytes < turn_bytes) {
    auto& source = first_queue_.empty() ? queue_ : first_queue_;
    if (source.empty()) return;
    Sending& sending = batch_.emplace_back(Sending{source.front(), {}});
    source.pop_front();
    const OutgoingFrame& frame = sending.frame;
    // The checksum is taken just before sending, so that the kernel's copy finds the payload in the
    // cache.
    sending.header = net::encode_frame_header(
        {static_cast<std::uint16_t>(frame.kind), frame.flags, epoch_, frame.sequence,
         frame.payload.size(),
         frame.checksum ? *frame.checksum : net::frame_checksum(frame.payload)});
    bytes += sending.bytes();
  }
}

void PeerStream::advance(std::size_t sent) {
  batch_sent_ += sent;
  while (!batch_.empty() && batch_sent_ >= batch_.front().bytes()) {
    batch_sent_ -= batch_.front().bytes();
    SentListener* const listener = batch_.front().frame.listener;
    batch_.pop_front();
    if (listener != nullptr) listener->sent(rank_);
  }
}

Result<void> PeerStream::send() {
  std::size_t turn = 0;
  while (can_send() && turn < turn_bytes) {
    if (batch_.empty()) fill_batch();
    std::array<iovec, 2 * batch_frames_max> parts;
    std::size_t count = 0;
    std::size_t wanted = 0;
    std::size_t skip = batch_sent_;
    const auto add = [&](std::span<const std::byte> bytes) {
      const std::size_t skipped = std::min(skip, bytes.size());
      skip -= skipped;
      if (skipped == bytes.size()) return;
      parts[count++] = {const_cast<std::byte*>(bytes.data()) + skipped, bytes.size() - skipped};
      wanted += bytes.size() - skipped;
    };
    for (const Sending& sending : batch_) {
      add(sending.header);
      add(sending.frame.payload);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return stream_failure("send", errno);
    const auto bytes = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    blocked_ = bytes < wanted;
    turn += bytes;
    advance(bytes);
  }
  return {};
}

Result<void> PeerStream::receive(FrameReceiver& receiver, const std::atomic<bool>& stop) {
  std::size_t turn = 0;
  bool drained = false;
  paused_ = false;
  while (open() && !stop.load(std::memory_order_relaxed)) {
    TESON_TRY(const Step step, parse(receiver));
    paused_ = step == Step::paused;
    if (paused_) return {};
    if (step == Step::more) continue;
    if (drained || turn >= turn_bytes) return {};
    const std::size_t room = target_.size() - filled_ + input_bytes;
    TESON_TRY(const std::size_t bytes, read());
    drained = bytes < room;
    if (bytes == 0) return {};
    turn += bytes;
  }
  return {};
}

Result<PeerStream::Step> PeerStream::parse(FrameReceiver& receiver) {
  if (!header_) {
    const std::size_t available = input_end_ - input_begin_;
    if (available < net::frame_header_bytes) return Step::blocked;
    const std::span<const std::byte> input(input_);
    TESON_TRY(header_,
              net::decode_frame_header(input.subspan(input_begin_).first<net::frame_header_bytes>(),
                                       frame_payload_bytes_max));
    input_begin_ += net::frame_header_bytes;
  }
  if (!placed_) {
    TESON_TRY(const Step step, begin_frame(receiver));
    if (step == Step::paused) return step;
  }
  const std::size_t copied = std::min(input_end_ - input_begin_, target_.size() - filled_);
  if (copied > 0) std::memcpy(target_.data() + filled_, input_.data() + input_begin_, copied);
  input_begin_ += copied;
  filled_ += copied;
  if (filled_ < target_.size()) return Step::blocked;
  TESON_TRY_VOID(end_frame(receiver));
  return Step::more;
}

Result<PeerStream::Step> PeerStream::begin_frame(FrameReceiver& receiver) {
  const bool stale = header_->epoch != epoch_;
  if (!stale && header_->kind == static_cast<std::uint16_t>(FrameKind::leave)) {
    peer_left_ = true;
    peer_blamed_ = header_->flags - 1;
    header_.reset();
    return fail(ErrorKind::disconnected, "it left the epoch");
  }
  if (stale || leaving_) {
    discard(header_->payload_bytes);
  } else {
    TESON_TRY(const auto place, receiver.place(rank_, *header_));
    if (!place) return Step::paused;
    TESON_CHECK(place->size() == header_->payload_bytes, place->size(), header_->payload_bytes);
    target_ = *place;
    discarding_ = false;
  }
  filled_ = 0;
  placed_ = true;
  return Step::more;
}

void PeerStream::discard(std::uint64_t bytes) {
  if (!discard_) discard_ = std::make_unique_for_overwrite<std::byte[]>(discard_bytes);
  target_ = {discard_.get(),
             static_cast<std::size_t>(std::min<std::uint64_t>(bytes, discard_bytes))};
  discard_left_ = bytes - target_.size();
  filled_ = 0;
  discarding_ = true;
}

Result<void> PeerStream::end_frame(FrameReceiver& receiver) {
  if (discarding_ && discard_left_ > 0) {
    target_ = target_.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(discard_left_, target_.size())));
    discard_left_ -= target_.size();
    filled_ = 0;
    return {};
  }
  const net::FrameHeader header = *std::exchange(header_, std::nullopt);
  const std::span<std::byte> payload = std::exchange(target_, {});
  filled_ = 0;
  placed_ = false;
  if (discarding_) return {};
  TESON_TRY_VOID(net::check_frame_payload(header, payload));
  return receiver.received(rank_, header);
}

Result<std::size_t> PeerStream::read() {
  // Little is left in input_ here: less than a header, or nothing while a payload is being filled.
  std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
  input_end_ -= input_begin_;
  input_begin_ = 0;
  const std::size_t payload_left = target_.size() - filled_;
  iovec parts[2] = {{target_.data() + filled_, payload_left},
                    {input_.data() + input_end_, input_bytes - input_end_}};
  while (true) {
    const ssize_t bytes = ::readv(socket_.fd(), parts, 2);
    if (bytes == 0) return fail(ErrorKind::disconnected, "it closed the connection");
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::size_t{0};
    if (bytes < 0) return stream_failure("receive", errno);
    const auto into_payload = std::min(static_cast<std::size_t>(bytes), payload_left);
    filled_ += into_payload;
    input_end_ += static_cast<std::size_t>(bytes) - into_payload;
    return static_cast<std::size_t>(bytes);
  }
}

void PeerStream::leave(int blamed) {
  if (std::exchange(leaving_, true)) return;
  first_queue_.clear();
  queue_.clear();
  if (batch_sent_ > 0) {
    OutgoingFrame& frame = batch_.front().frame;
    rest_.assign(frame.payload.begin(), frame.payload.end());
    frame.payload = rest_;
    batch_.resize(1);
  } else {
    batch_.clear();
  }
  for (Sending& sending : batch_)
    sending.frame.listener = nullptr;
  if (placed_ && !discarding_) discard(target_.size() - filled_);
  queue_.push_back({.kind = FrameKind::leave, .flags = static_cast<std::uint16_t>(blamed + 1)});
}

}  // namespace teson::comm
