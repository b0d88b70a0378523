#include "teson/net/frame.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "teson/base/random.h"

namespace teson::net {
namespace {

using ::testing::HasSubstr;

std::uint64_t little_endian(const FrameHeaderBytes& bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i)
    value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

TEST(Frame, bytes_lie_where_the_document_says) {
  const FrameHeader header{
      0x0102, 0x0304, 0x1112131415161718, 0x2122232425262728, 0x313233, 0x4142434445464748};
  const FrameHeaderBytes bytes = encode_frame_header(header);
  EXPECT_EQ(std::memcmp(bytes.data(), "TSN1", 4), 0);
  EXPECT_EQ(little_endian(bytes, 4, 2), header.kind);
  EXPECT_EQ(little_endian(bytes, 6, 2), header.flags);
  EXPECT_EQ(little_endian(bytes, 8, 8), header.epoch);
  EXPECT_EQ(little_endian(bytes, 16, 8), header.sequence);
  EXPECT_EQ(little_endian(bytes, 24, 8), header.payload_bytes);
  EXPECT_EQ(little_endian(bytes, 32, 8), header.payload_checksum);
  EXPECT_EQ(little_endian(bytes, 40, 8), XXH3_64bits(bytes.data(), 40));
}

TEST(Frame, headers_come_back_as_they_were) {
  CounterRandom random({7});
  for (int i = 0; i < 1000; ++i) {
    const FrameHeader header{static_cast<std::uint16_t>(random.next()),
                             static_cast<std::uint16_t>(random.next()),
                             random.next(),
                             random.next(),
                             random.below(1000),
                             random.next()};
    const auto decoded = decode_frame_header(encode_frame_header(header), 1000);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, header);
  }
}

TEST(Frame, every_flipped_bit_is_noticed) {
  const FrameHeaderBytes good = encode_frame_header({1, 2, 3, 4, 5, 6});
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    FrameHeaderBytes bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_frame_header(bytes, 1000)) << bit;
  }
}

TEST(Frame, a_payload_over_the_readers_bound_is_refused) {
  const FrameHeaderBytes bytes = encode_frame_header({.kind = 9, .payload_bytes = 1001});
  EXPECT_TRUE(decode_frame_header(bytes, 1001));
  const auto refused = decode_frame_header(bytes, 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
  EXPECT_THAT(refused.error().message, HasSubstr("1001 bytes, at most 1000"));
}

TEST(Frame, foreign_protocols_are_named) {
  FrameHeaderBytes bytes{};
  std::memcpy(bytes.data(), "GET / HTTP/1.1\r\n", 16);
  EXPECT_THAT(decode_frame_header(bytes, 1).error().message, HasSubstr("magic"));
}

TEST(Frame, a_damaged_payload_is_noticed) {
  std::vector<std::byte> payload(100, std::byte{5});
  const FrameHeader header{.payload_bytes = 100,
                           .payload_checksum = XXH3_64bits(payload.data(), payload.size())};
  EXPECT_TRUE(check_frame_payload(header, payload));
  payload[99] = std::byte{4};
  EXPECT_FALSE(check_frame_payload(header, payload));
  EXPECT_EQ(frame_checksum({}), 0u);
}

}  // namespace
}  // namespace teson::net
