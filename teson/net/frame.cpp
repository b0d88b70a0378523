#include "teson/net/frame.h"

#include <bit>
#include <cstring>

#include <fmt/core.h>

#include "teson/base/hash.h"

namespace teson::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "frames are written as they lie in memory");

constexpr std::uint32_t magic = 0x314E5354;  // "TSN1"
constexpr std::size_t checked_bytes = frame_header_bytes - 8;

template <typename T>
void put(FrameHeaderBytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <typename T>
void get(std::span<const std::byte, frame_header_bytes> bytes, std::size_t at, T& value) {
  std::memcpy(&value, bytes.data() + at, sizeof(T));
}

}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  FrameHeaderBytes bytes;
  put(bytes, 0, magic);
  put(bytes, 4, header.kind);
  put(bytes, 6, header.flags);
  put(bytes, 8, header.epoch);
  put(bytes, 16, header.sequence);
  put(bytes, 24, header.payload_bytes);
  put(bytes, 32, header.payload_checksum);
  put(bytes, 40, hash64(std::span<const std::byte>(bytes).first(checked_bytes)));
  return bytes;
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, frame_header_bytes> bytes,
                                        std::uint64_t payload_bytes_max) {
  std::uint32_t found_magic = 0;
  get(bytes, 0, found_magic);
  if (found_magic != magic) {
    return fail(ErrorKind::invalid, fmt::format("frame: expected magic {:#010x}, found {:#010x}: "
                                                "the peer does not speak this protocol or version",
                                                magic, found_magic));
  }
  std::uint64_t checksum = 0;
  get(bytes, 40, checksum);
  const std::uint64_t expected = hash64(bytes.first(checked_bytes));
  if (checksum != expected) {
    return fail(
        ErrorKind::invalid,
        fmt::format("frame: header checksum {:#018x}, computed {:#018x}: the stream is damaged",
                    checksum, expected));
  }
  FrameHeader header;
  get(bytes, 4, header.kind);
  get(bytes, 6, header.flags);
  get(bytes, 8, header.epoch);
  get(bytes, 16, header.sequence);
  get(bytes, 24, header.payload_bytes);
  get(bytes, 32, header.payload_checksum);
  if (header.payload_bytes > payload_bytes_max) {
    return fail(ErrorKind::invalid,
                fmt::format("frame of kind {}: payload of {} bytes, at most {} are accepted here",
                            header.kind, header.payload_bytes, payload_bytes_max));
  }
  return header;
}

std::uint64_t frame_checksum(std::span<const std::byte> payload) {
  return payload.empty() ? 0 : hash64(payload);
}

Result<void> check_frame_payload(const FrameHeader& header, std::span<const std::byte> payload) {
  const std::uint64_t found = frame_checksum(payload);
  if (found == header.payload_checksum) return {};
  return fail(
      ErrorKind::invalid,
      fmt::format("frame of kind {}, sequence {}: payload checksum {:#018x}, computed {:#018x}: "
                  "the data was damaged on its way",
                  header.kind, header.sequence, header.payload_checksum, found));
}

}  // namespace teson::net
