#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "teson/base/error.h"

namespace teson::net {

/// What stands before each payload on a connection. 48 bytes on the wire, little-endian; every byte
/// is described in docs/formats/frame.md. The meaning of kind, flags and sequence belongs to
/// whoever uses the connection.
struct FrameHeader {
  std::uint16_t kind = 0;
  std::uint16_t flags = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_checksum =
      0;  ///< hash64 (XXH3) of the payload; of nothing: 0, so that empty frames need no pass

  bool operator==(const FrameHeader&) const = default;
};

inline constexpr std::size_t frame_header_bytes = 48;
using FrameHeaderBytes = std::array<std::byte, frame_header_bytes>;

/// The header as it goes over the wire, its own checksum included. Pure.
FrameHeaderBytes encode_frame_header(const FrameHeader& header);

/// Reads a header. `invalid` if the bytes are not one: magic, version, header checksum, or a
/// payload larger than `payload_bytes_max`; the connection is then useless and must be closed.
/// Pure.
Result<FrameHeader> decode_frame_header(std::span<const std::byte, frame_header_bytes> bytes,
                                        std::uint64_t payload_bytes_max);

/// The checksum that belongs into `payload_checksum`: XXH3 64, or 0 for an empty payload.
std::uint64_t frame_checksum(std::span<const std::byte> payload);

/// `invalid`, naming both values, unless the payload has the checksum its header claims.
Result<void> check_frame_payload(const FrameHeader& header, std::span<const std::byte> payload);

}  // namespace teson::net
