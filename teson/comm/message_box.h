#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "teson/comm/peer_stream.h"
#include "teson/comm/work.h"

namespace teson::comm {

/// A receive that somebody waits for.
struct PostedReceive {
  std::uint32_t tag = 0;
  std::span<std::byte> data;
  std::shared_ptr<Work::State> work;
};

/// Matches incoming messages with receives, by rank and tag, in order of sending. A message whose
/// receive is posted goes straight into place; an earlier one is kept, up to early_bytes_max bytes
/// over all ranks, then has no place until its receive comes. One thread.
class MessageBox {
 public:
  MessageBox(int size, std::size_t early_bytes_max)
      : early_bytes_max_(early_bytes_max), peers_(static_cast<std::size_t>(size)) {}

  /// `invalid` if the message is there and has another size.
  Result<void> post(int from, PostedReceive receive);
  Result<std::optional<std::span<std::byte>>> place(int rank, const net::FrameHeader& header);
  Result<void> received(int rank, const net::FrameHeader& header);
  /// A receive from the rank is not complete.
  bool needs(int rank) const;
  void fail_all(const Error& error);

  /// Flags of a message's frames. The sequence is sequence_of(tag, chunk).
  static constexpr std::uint16_t last_chunk = 1;

 private:
  struct Early {
    std::uint32_t tag = 0;
    std::vector<std::byte> data;
    bool complete = false;
    std::optional<PostedReceive> claimed;  ///< a receive that came while the message was arriving
  };
  struct Peer {
    std::deque<PostedReceive> posted;
    std::list<Early> early;
    bool arriving = false;  ///< between the first chunk of a message and its last
    std::uint64_t next_sequence = 0;
    std::optional<PostedReceive>
        direct;  ///< where the arriving message goes; else the last of early
    std::size_t direct_bytes = 0;
  };

  /// What a kept message costs beside its bytes.
  static constexpr std::size_t early_overhead = 128;
  static std::size_t cost_of(const Early& message) { return early_overhead + message.data.size(); }

  /// False if the message has no place: its receive is not posted, and too much is kept already.
  bool begin(Peer& peer, std::uint32_t tag);
  Result<void> deliver(int rank, Early& message, PostedReceive& receive);

  std::size_t early_bytes_max_;
  std::size_t early_bytes_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace teson::comm
