// The receiving half of a channel.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "teson/base/check.h"
#include "teson/base/clock.h"
#include "teson/base/world.h"
#include "teson/net/channel_state.h"
#include "teson/net/codec.h"

namespace teson::net {

namespace {

constexpr std::size_t staging_bytes = 64 << 10;
/// What one turn of the loop reads from a channel before others get theirs.
constexpr std::size_t read_turn_bytes = 4 << 20;
/// How long a thread that reads in the loop's stead looks before it sleeps: a call to another process
/// of the host, and its answer.
constexpr Duration spin_max = std::chrono::microseconds(50);

/// Waits until one of two descriptors is readable, or the deadline: which of them are.
std::pair<bool, bool> poll_both(int first, int second, Instant deadline) {
  pollfd fds[2] = {{.fd = first, .events = POLLIN, .revents = 0},
                   {.fd = second, .events = POLLIN, .revents = 0}};
  if (poll_until(fds, deadline) <= 0) return {false, false};
  return {fds[0].revents != 0, fds[1].revents != 0};
}

}  // namespace

/// Memory that the peer has lent us, until nobody looks at it any more.
struct ChannelState::Borrowed {
  Borrowed(SharedMemory lent, std::weak_ptr<ChannelState> lender, std::uint64_t message)
      : memory(std::move(lent)), channel(std::move(lender)), sequence(message) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    // Not here: this may be the end of a payload that another channel, under its lock, has sent on.
    if (const auto open = channel.lock())
      open->loop().post([open, sequence = sequence] { open->give_back(sequence); });
  }

  const SharedMemory memory;
  const std::weak_ptr<ChannelState> channel;
  const std::uint64_t sequence;
};

void ChannelState::begin_reading() {
  if (auto opened = gate_.open(socket_.fd()); !opened) return finish(std::move(opened).error());
  watch_ = loop_.watch(gate_.fd());
  {
    std::lock_guard lock(reader_mutex_);
    lendable_ = true;
  }
  read_from(read_turn_bytes);
}

void ChannelState::arm_read() {
  watch_.when_readable([this] { read_from(read_turn_bytes); });
}

void ChannelState::read_from(std::size_t budget) {
  const auto self = shared_from_this();
  {
    std::lock_guard lock(reader_mutex_);
    if (reader_ == Reader::thread) {
      loop_waits_ = false;
      return;
    }
    reader_ = Reader::loop;
  }
  deliver_handed_over();
  read_on_loop(budget);
  std::lock_guard lock(reader_mutex_);
  reader_ = Reader::none;
}

void ChannelState::read_on_loop(std::size_t budget) {
  std::size_t total = 0;
  while (stage_ == Stage::open && total < budget) {
    auto received = read_once();
    if (!received) return lose_connection(std::move(received).error());
    if (*received == 0 || drained_socket_) break;
    total += *received;
  }
  if (stage_ == Stage::open) arm_read();
}

Result<std::size_t> ChannelState::receive() {
  if (!filling_header_) {
    if (staging_.empty()) staging_.resize(staging_bytes);
    if (staging_from_ > 0) {
      std::memmove(staging_.data(), staging_.data() + staging_from_, staging_to_ - staging_from_);
      staging_to_ -= staging_from_;
      staging_from_ = 0;
    }
  }
  std::size_t& end = filling_header_ ? filled_ : staging_to_;
  const auto room =
      filling_header_ ? filling_.room().subspan(filled_) : std::span(staging_).subspan(staging_to_);
  TESON_TRY(const std::size_t received, takes_descriptors_
                                            ? socket_.receive_some(room, descriptors_)
                                            : socket_.receive_some(room));
  if (descriptors_.size() > options_.lent_messages_max) {
    return fail(ErrorKind::invalid,
                fmt::format("expected at most {} descriptors on their way, found {}",
                            options_.lent_messages_max, descriptors_.size()));
  }
  end += received;
  received_bytes_.fetch_add(received, std::memory_order_relaxed);
  drained_socket_ = received < room.size();
  return received;
}

Result<void> ChannelState::take_frames() {
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
    if (here > 0) std::memcpy(payload.room().data(), rest.data(), here);
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

Result<void> ChannelState::deliver(const FrameHeader& header, Buffer payload) {
  TESON_TRY_VOID(check_frame_payload(header, payload.bytes()));
  if (options_.resumable && (awaits_peer_ || header.sequence == 0 || header.flags != 0))
    return take_note(header, payload);
  if (header.sequence != received_sequence_ + 1) {
    return fail(ErrorKind::invalid,
                fmt::format("expected sequence {}, found {}; a message was lost or repeated",
                            received_sequence_ + 1, header.sequence));
  }
  received_sequence_ = header.sequence;
  if (options_.resumable) count_received(payload.size());
  if (header.flags == frame_returned) return take_back(payload);
  if (header.flags != 0) {
    TESON_TRY(payload, open_shared(header, payload));
  }
  const auto callbacks = callbacks_;
  if (!callbacks || !callbacks->on_message) return {};
  Message message{header.kind, header.epoch, header.sequence, std::move(payload)};
  if (loop_.on_loop_thread()) {
    callbacks->on_message(std::move(message));
  } else {
    deliver_early(*callbacks, std::move(message));
  }
  return {};
}

Result<Buffer> ChannelState::open_shared(const FrameHeader& header, const Buffer& payload) {
  if (header.flags != frame_shared) {
    return fail(ErrorKind::invalid, fmt::format("expected the flags {} or {}, found {}",
                                                frame_shared, frame_returned, header.flags));
  }
  TESON_TRY(const auto bytes, decode<std::uint64_t>(payload.bytes()));
  if (bytes > options_.payload_bytes_max) {
    return fail(ErrorKind::invalid, fmt::format("expected at most {} bytes of payload, found {}",
                                                options_.payload_bytes_max, bytes));
  }
  if (descriptors_.empty()) {
    return fail(ErrorKind::invalid,
                "expected a descriptor beside a payload in shared memory, found none");
  }
  const Fd descriptor = std::move(descriptors_.front());
  descriptors_.pop_front();
  TESON_TRY(SharedMemory memory, SharedMemory::open(descriptor, static_cast<std::size_t>(bytes)));
  auto keeper =
      std::make_shared<const Borrowed>(std::move(memory), weak_from_this(), header.sequence);
  const auto span = keeper->memory.bytes();
  return Buffer(span, std::move(keeper));
}

Result<void> ChannelState::take_back(const Buffer& payload) {
  TESON_TRY(const auto sequence, decode<std::uint64_t>(payload.bytes()));
  Payload returned;  // ends after the lock
  std::lock_guard lock(mutex_);
  const auto found = lent_.find(sequence);
  if (found == lent_.end()) {
    return fail(ErrorKind::invalid,
                fmt::format("message {} was given back, which the peer does not have", sequence));
  }
  returned = std::move(found->second);
  lent_bytes_ -= returned.size();
  lent_.erase(found);
  return {};
}

void ChannelState::deliver_early(const ChannelCallbacks& callbacks, Message message) {
  {
    std::lock_guard lock(reader_mutex_);
    if (handing_over_ || !handed_over_.empty()) {
      handed_over_.push_back(std::move(message));
      return;
    }
  }
  if (callbacks.on_early_message && callbacks.on_early_message(message)) return;
  {
    std::lock_guard lock(reader_mutex_);
    handed_over_.push_back(std::move(message));
  }
  loop_.post([self = shared_from_this()] { self->deliver_handed_over(); });
}

void ChannelState::deliver_handed_over() {
  while (true) {
    const auto callbacks = callbacks_;
    std::unique_lock lock(reader_mutex_);
    // Until on_message has returned nothing may overtake the one it gets.
    handing_over_ = !handed_over_.empty();
    if (!handing_over_) return;
    Message message = std::move(handed_over_.front());
    handed_over_.pop_front();
    lock.unlock();
    if (callbacks && callbacks->on_message) callbacks->on_message(std::move(message));
  }
}

void ChannelState::read_until(Instant deadline, const std::function<bool()>& done, int wake_fd) {
  TESON_CHECK(!loop_.on_loop_thread());
  {
    std::lock_guard lock(reader_mutex_);
    if (!lendable_ || reader_ != Reader::none) return;
    reader_ = Reader::thread;
    reader_wake_fd_ = wake_fd;
  }
  gate_.shut();
  Result<std::size_t> read = 0;
  if (!done()) read = read_spinning();
  while (read && !done() && !recalled()) {
    const auto [readable, woken] = poll_both(socket_.fd(), wake_fd, deadline);
    eventfd_t count = 0;
    if (woken) ::eventfd_read(wake_fd, &count);
    if (readable) read = read_once();
    if (!readable && !woken && now() >= deadline) break;
  }
  if (!read) {
    // After what was handed over before it.
    loop_.post([self = shared_from_this(), error = read.error(), connection = connection_] {
      self->lose_connection(error, connection);
    });
  }
  gate_.open();
  const std::uint64_t connection = connection_;
  bool loop_waits = false;
  {
    std::lock_guard lock(reader_mutex_);
    reader_ = Reader::none;
    loop_waits = std::exchange(loop_waits_, true);
  }
  reader_gone_.notify_all();
  if (loop_waits) return;
  loop_.post([self = shared_from_this(), connection] {
    const bool still = self->stage_ == Stage::open && self->connection_ == connection;
    if (still) self->read_from(read_turn_bytes);
  });
}

Result<std::size_t> ChannelState::read_once() {
  TESON_TRY(const std::size_t received, receive());
  if (received == 0) return 0;
  if (auto taken = take_frames(); !taken)
    return fail(std::move(taken).error().in("message from " + peer_name()));
  return received;
}

Result<std::size_t> ChannelState::read_spinning() {
  // A simulated thread must not look at the time that passes in between; with one processor nobody
  // could answer meanwhile.
  static const bool worthwhile = std::thread::hardware_concurrency() > 1;
  if (!worthwhile || World::current() != nullptr || !spins_.spend()) return 0;
  const Instant until = now() + spin_max;
  Result<std::size_t> read = read_once();
  while (read && *read == 0 && now() < until)
    read = read_once();
  spins_.note(!read || *read > 0);
  return read;
}

bool ChannelState::recalled() const {
  std::lock_guard lock(reader_mutex_);
  return !lendable_;
}

void ChannelState::reclaim() {
  std::unique_lock lock(reader_mutex_);
  lendable_ = false;
  if (reader_ == Reader::thread) ::eventfd_write(reader_wake_fd_, 1);
  reader_gone_.wait(lock, [&] { return reader_ != Reader::thread; });
}

}  // namespace teson::net
