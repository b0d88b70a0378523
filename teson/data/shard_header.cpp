#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/data/little_endian.h"
#include "teson/data/token_shards.h"

namespace teson::data {
namespace {

constexpr std::string_view kMagic = "TESONTOK";
constexpr std::uint64_t kTokensMax = 1ULL << 40;
constexpr std::size_t kFingerprintBytes = 32;
constexpr std::size_t kChecksumAt = ShardHeader::kBytes - 8;

int digit_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

std::string from_hex(const std::string& text) {
  TESON_CHECK(text.size() == 2 * kFingerprintBytes, text);
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit_of(text[i]), low = digit_of(text[i + 1]);
    TESON_CHECK(high >= 0 && low >= 0, text);
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes)
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

}  // namespace

std::uint64_t ShardHeader::file_bytes() const {
  const std::uint64_t payload = tokens * token_bytes;
  const std::uint64_t padded = (payload + 7) / 8 * 8;
  return kBytes + padded + (payload + kBlockBytes - 1) / kBlockBytes * 8;
}

std::string encode_shard_header(const ShardHeader& header) {
  std::string out(kMagic);
  put_number<std::uint32_t>(out, ShardHeader::kVersion);
  put_number<std::uint32_t>(out, header.token_bytes);
  put_number<std::uint64_t>(out, header.tokens);
  put_number<std::uint32_t>(out, ShardHeader::kBlockBytes);
  put_number<std::uint32_t>(out, 0);
  out += from_hex(header.tokenizer);
  put_number<std::uint64_t>(out, header.table_checksum);
  put_number<std::uint64_t>(out, hash64(out));
  TESON_CHECK(out.size() == ShardHeader::kBytes, out.size());
  return out;
}

Result<ShardHeader> decode_shard_header(std::span<const std::byte> bytes, std::string_view name) {
  const auto refuse = [&](std::string what) {
    return fail(ErrorKind::invalid,
                fmt::format("token shard '{}': {}; prepare the corpus again", name, what));
  };
  if (bytes.size() < ShardHeader::kBytes) {
    return refuse(
        fmt::format("expected a header of {} bytes, found {}", ShardHeader::kBytes, bytes.size()));
  }
  bytes = bytes.first(ShardHeader::kBytes);
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return refuse("not a token shard, or not written to its end");
  if (const auto version = get_number<std::uint32_t>(bytes, 8); version != ShardHeader::kVersion) {
    return refuse(fmt::format("expected version {}, found {}", ShardHeader::kVersion, version));
  }
  if (get_number<std::uint64_t>(bytes, kChecksumAt) != hash64(bytes.first(kChecksumAt))) {
    return refuse("the header's checksum does not fit: it is damaged");
  }
  ShardHeader header;
  header.token_bytes = get_number<std::uint32_t>(bytes, 12);
  header.tokens = get_number<std::uint64_t>(bytes, 16);
  header.tokenizer = to_hex(bytes.subspan(32, kFingerprintBytes));
  header.table_checksum = get_number<std::uint64_t>(bytes, 64);
  if ((header.token_bytes != 2 && header.token_bytes != 4) || header.tokens > kTokensMax ||
      get_number<std::uint32_t>(bytes, 24) != ShardHeader::kBlockBytes ||
      get_number<std::uint32_t>(bytes, 28) != 0) {
    return refuse("impossible values in the header");
  }
  return header;
}

}  // namespace teson::data
