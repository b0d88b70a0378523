#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "teson/comm/peer_stream.h"

namespace teson::comm {

/// Where operations put their frames.
class FrameSender {
 public:
  virtual void push(int rank, const OutgoingFrame& frame) = 0;
  virtual void push_first(int rank, const OutgoingFrame& frame) = 0;

 protected:
  ~FrameSender() = default;
};

/// A collective in the making: knows which frames it still has to send to and receive from each
/// rank, and so when it is done and whom it needs. Lives on the communicator's thread, one at a
/// time.
class Operation : public SentListener {
 public:
  explicit Operation(int size)
      : sends_left_(static_cast<std::size_t>(size)),
        receives_left_(static_cast<std::size_t>(size)) {}
  virtual ~Operation() = default;

  /// Queues the first frames and counts all of them. `number` is the operation's, the same on every
  /// rank.
  virtual Result<void> start(std::uint64_t number, FrameSender& sender) = 0;
  virtual Result<std::optional<std::span<std::byte>>> place(int rank,
                                                            const net::FrameHeader& header) = 0;
  virtual Result<void> received(int rank, const net::FrameHeader& header) = 0;
  /// Pieces of work remain that need no peer; step does one.
  bool has_steps() const { return steps_left_ > 0; }
  virtual Result<void> step() { return {}; }

  void sent(int rank) final { --sends_left_[static_cast<std::size_t>(rank)]; }
  /// Still sends to or receives from the rank.
  bool needs(int rank) const {
    return sends_left_[static_cast<std::size_t>(rank)] > 0 ||
           receives_left_[static_cast<std::size_t>(rank)] > 0;
  }
  bool receives_from(int rank) const { return receives_left_[static_cast<std::size_t>(rank)] > 0; }
  /// Every frame has been sent and received, every step done.
  bool done() const;

 protected:
  /// An error that says what was expected of a frame of `rank` and what came.
  static Failure unexpected(int rank, const net::FrameHeader& header, std::string_view expected);

  std::vector<std::size_t> sends_left_;
  std::vector<std::size_t> receives_left_;
  std::size_t steps_left_ = 0;
};

}  // namespace teson::comm
