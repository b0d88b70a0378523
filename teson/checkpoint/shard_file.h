#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/checkpoint/disk.h"

namespace teson {

inline constexpr std::size_t shard_header_bytes = 4096;
inline constexpr std::size_t section_name_bytes_max = 48;
inline constexpr std::uint64_t section_bytes_max = 1ULL << 50;
inline constexpr std::uint32_t shards_per_section_max = 1U << 20;
inline constexpr std::uint32_t block_bytes_max = 64U << 20;

/// The first page of a shard file: which bytes of which section follow. Layout:
/// docs/formats/checkpoint.md.
struct ShardHeader {
  std::string section;
  std::uint64_t section_bytes = 0;
  /// Of the first payload byte, within the section.
  std::uint64_t offset = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::uint32_t block_bytes = 0;
  bool operator==(const ShardHeader&) const = default;
};

/// [a-z0-9] first, then also '_', '-' and '.'; 1 to 48 characters: the name becomes a file name.
bool is_section_name(std::string_view name);
/// "weights-00003.bin"
std::string shard_file_name(std::string_view section, std::uint32_t index);

std::array<std::byte, shard_header_bytes> encode_shard_header(const ShardHeader& header);
/// Survives any bytes; checks the page's own checksum and every bound.
Result<ShardHeader> decode_shard_header(std::span<const std::byte> page);

std::uint64_t shard_blocks(const ShardHeader& header);
/// Header page, payload, one 8-byte checksum a block.
std::uint64_t shard_file_bytes(const ShardHeader& header);

/// Writes and fsyncs one file. Returns its whole checksum: XXH3-64 of the block checksums, seeded
/// with that of the header.
Result<std::uint64_t> write_shard(Disk& disk, const std::filesystem::path& path,
                                  const ShardHeader& header, std::span<const std::byte> payload,
                                  std::stop_token stop);

/// `invalid` if a file of a checkpoint is not there: that is damage. That it cannot be opened is not.
Result<void> expect_present(const std::filesystem::path& path);

/// A shard file whose size, header and table of checksums were found to be what the manifest says.
/// One thread.
class ShardReader {
 public:
  static Result<ShardReader> open(const std::filesystem::path& path, const ShardHeader& expected,
                                  std::uint64_t checksum);
  /// Payload bytes [offset, offset + into.size()), each block they touch verified.
  Result<void> read(std::uint64_t offset, std::span<std::byte> into) const;
  /// `aborted` when `stop` was asked for, looked at once a block.
  Result<void> verify(const std::stop_token& stop = {}) const;

 private:
  /// Reads block `number` whole and compares it with the table.
  Result<void> read_block(std::uint64_t number, std::span<std::byte> block) const;
  std::uint64_t block_size(std::uint64_t number) const;

  std::filesystem::path path_;
  ShardHeader header_;
  Fd file_;
  std::vector<std::uint64_t> table_;
};

}  // namespace teson
