#pragma once

#include <cstdint>

namespace teson::comm {

/// What a frame between two ranks carries; the numbers go over the wire (docs/formats/frame.md).
enum class FrameKind : std::uint16_t {
  welcome = 1,    ///< the acceptor has called connect for this epoch; no payload
  refused = 2,    ///< it will not; the payload says why, the connection is closed
  leave = 3,      ///< the sender's communicator ends in good order; nothing follows
  exchange = 16,  ///< a chunk of all-gather, all-to-all, broadcast; empty for a barrier
  part = 17,      ///< a tile of one term of a sum, to the tile's owner
  final = 18,     ///< a tile of the sum, from its owner
  message = 19,   ///< a chunk of a point-to-point message
};

/// The sequence field of collectives: the operation's number, the same on every rank, above the
/// chunk or tile within it.
inline constexpr int item_bits = 24;
inline constexpr std::uint64_t items_max = std::uint64_t{1} << item_bits;
constexpr std::uint64_t sequence_of(std::uint64_t operation, std::uint64_t item) {
  return operation << item_bits | item;
}
constexpr std::uint64_t operation_of(std::uint64_t sequence) {
  return sequence >> item_bits;
}
constexpr std::uint64_t item_of(std::uint64_t sequence) {
  return sequence & (items_max - 1);
}

/// Payloads of exchanges and messages are cut into chunks of this size.
inline constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
/// No frame is larger. Each receiver also knows the exact size it expects.
inline constexpr std::uint64_t frame_payload_bytes_max = std::uint64_t{1} << 32;

/// How many frames carry `bytes`: at least one, so that an empty transfer is seen too.
constexpr std::uint64_t chunks_of(std::uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes + chunk_bytes - 1) / chunk_bytes;
}

}  // namespace teson::comm
