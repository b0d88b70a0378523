#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "teson/base/error.h"
#include "teson/comm/frames.h"
#include "teson/net/frame.h"
#include "teson/net/socket.h"

namespace teson::comm {

/// Is told when a frame has been handed to the kernel, so that its memory is free again.
class SentListener {
 public:
  virtual void sent(int rank) = 0;

 protected:
  ~SentListener() = default;
};

/// Decides where payloads go.
class FrameReceiver {
 public:
  /// Memory for exactly header.payload_bytes bytes; nothing: not now, ask again; an Error ends the
  /// communicator.
  virtual Result<std::optional<std::span<std::byte>>> place(int rank,
                                                            const net::FrameHeader& header) = 0;
  /// The payload is complete and its checksum is right.
  virtual Result<void> received(int rank, const net::FrameHeader& header) = 0;

 protected:
  ~FrameReceiver() = default;
};

/// A frame to be sent. The payload belongs to the caller and is read when it is sent, without a
/// copy.
struct OutgoingFrame {
  FrameKind kind = FrameKind::leave;
  std::uint16_t flags = 0;
  std::uint64_t sequence = 0;
  std::span<const std::byte> payload;
  std::optional<std::uint64_t> checksum;  ///< of the payload, if already known
  SentListener* listener = nullptr;
};

/// The connection to one peer within an epoch: frames out of caller's memory, frames into it,
/// nothing ever blocks. Frames of another epoch are dropped. One thread.
class PeerStream {
 public:
  PeerStream(net::Socket socket, int rank, std::uint64_t epoch);

  int rank() const { return rank_; }
  int fd() const { return socket_.fd(); }
  bool open() const { return static_cast<bool>(socket_); }
  const net::Address& peer() const { return socket_.peer(); }

  /// After leave, and to a closed stream, a frame is forgotten: whoever pushed it may be gone before
  /// it could be sent.
  void push(const OutgoingFrame& frame) { push_to(queue_, frame); }
  /// Goes before all frames of push that are not on their way yet.
  void push_first(const OutgoingFrame& frame) { push_to(first_queue_, frame); }
  bool wants_to_send() const {
    return open() && !(batch_.empty() && queue_.empty() && first_queue_.empty());
  }
  /// False after a send that the kernel did not take whole, until writable().
  bool can_send() const { return wants_to_send() && !blocked_; }
  void writable() { blocked_ = false; }
  /// Sends until the kernel's buffer is full or turn_bytes have gone.
  Result<void> send();

  /// Receives what is there, up to turn_bytes, until a frame has no place yet. `stop` ends it
  /// early. `disconnected`: end of stream, or (once, see peer_left) the peer's word that it leaves.
  Result<void> receive(FrameReceiver& receiver, const std::atomic<bool>& stop);
  /// The next frame had no place; receive asks again.
  bool paused() const { return paused_; }
  /// That frame; null if not paused.
  const net::FrameHeader* paused_header() const { return paused_ && header_ ? &*header_ : nullptr; }
  /// The peer said that it leaves.
  bool peer_left() const { return peer_left_; }

  /// From here on caller's memory is neither read nor written: what has not been sent is forgotten,
  /// but for the rest of a frame on its way, which is copied; what comes is dropped. Then the peer
  /// is told that we leave, because of the loss of rank `blamed`
  /// (-1: for no such reason). Listeners hear no more. Calls after the first do nothing.
  void leave(int blamed);
  /// Whom the peer blamed when it left, or -1.
  int peer_blamed() const { return peer_blamed_; }
  void close() { socket_.close(); }

 private:
  static constexpr std::size_t batch_frames_max = 16;
  static constexpr std::size_t input_bytes = 4096;
  static constexpr std::size_t discard_bytes = std::size_t{64} << 10;
  static constexpr std::size_t turn_bytes = std::size_t{1} << 20;

  struct Sending {
    OutgoingFrame frame;
    net::FrameHeaderBytes header;
    std::size_t bytes() const { return net::frame_header_bytes + frame.payload.size(); }
  };
  enum class Step { more, blocked, paused };

  void push_to(std::deque<OutgoingFrame>& queue, const OutgoingFrame& frame) {
    if (open() && !leaving_) queue.push_back(frame);
  }
  void fill_batch();
  void advance(std::size_t sent);
  Result<Step> parse(FrameReceiver& receiver);
  Result<Step> begin_frame(FrameReceiver& receiver);
  Result<void> end_frame(FrameReceiver& receiver);
  void discard(std::uint64_t bytes);
  Result<std::size_t> read();

  net::Socket socket_;
  int rank_;
  std::uint64_t epoch_;

  std::deque<OutgoingFrame> first_queue_;
  std::deque<OutgoingFrame> queue_;
  std::deque<Sending> batch_;
  std::size_t batch_sent_ = 0;  ///< bytes of batch_.front() already sent
  bool blocked_ = false;

  std::array<std::byte, input_bytes> input_;
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  std::optional<net::FrameHeader> header_;
  bool placed_ = false;
  bool discarding_ = false;
  std::span<std::byte> target_;     ///< where the payload lies
  std::size_t filled_ = 0;          ///< bytes of target_ that are there
  std::uint64_t discard_left_ = 0;  ///< bytes of a dropped payload beyond target_
  std::unique_ptr<std::byte[]> discard_;
  bool paused_ = false;
  bool peer_left_ = false;
  int peer_blamed_ = -1;
  bool leaving_ = false;
  std::vector<std::byte> rest_;  ///< the copy of the payload on its way when we left
};

}  // namespace teson::comm
