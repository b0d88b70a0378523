#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "teson/base/error.h"
#include "teson/data/bpe.h"

namespace teson::data {

/// A token shard: a header, tokens of 2 or 4 bytes, a checksum a block (docs/formats/tokens.md).
/// All little-endian.
struct ShardHeader {
  static constexpr std::size_t kBytes = 80;
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint32_t kBlockBytes = 1 << 20;

  std::uint32_t token_bytes = 2;  ///< 2 or 4
  std::uint64_t tokens = 0;
  std::string tokenizer;             ///< fingerprint, 64 hexadecimal digits
  std::uint64_t table_checksum = 0;  ///< of the table of block checksums
  /// What the whole file must measure.
  std::uint64_t file_bytes() const;
};
std::string encode_shard_header(const ShardHeader& header);
/// `invalid`, naming `name`: too short, not a shard, another version, impossible values, a wrong
/// checksum.
Result<ShardHeader> decode_shard_header(std::span<const std::byte> bytes, std::string_view name);

/// A shard as the manifest lists it.
struct ShardEntry {
  std::string file;  ///< name inside the folder
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< ShardHeader::table_checksum: covers every token
  bool operator==(const ShardEntry&) const = default;
};

/// Writes the shards of one split, "train-00000.tokens" and so on, each beginning a new file (an
/// old one of that name is unlinked, so whoever reads it keeps it). Tokens are split over files
/// anywhere. The header is written last, so a torn shard is not one. One thread.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, std::string split, const Tokenizer& tokenizer,
              std::uint64_t shard_tokens_max);
  ShardWriter(ShardWriter&&) noexcept;
  ~ShardWriter();
  Result<void> append(std::span<const TokenId> ids);
  /// Ends the last shard, everything durable. Call once. No shard if there was no token.
  Result<std::vector<ShardEntry>> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The tokens of one split, end to end over its shards. Files stay open; tokens are read with
/// pread(2), not through a mapping: both come from the page cache, but a mapped file that is cut
/// short, or a disk that fails, kills the reader with SIGBUS, and no check before the access can
/// close that race. Here it is an error that names the file. Immutable after open. Threads: any.
class TokenStream {
 public:
  enum class Verify {
    sizes,      ///< headers, sizes and counts against the entries
    checksums,  ///< every block too (reads everything)
  };
  /// `invalid`, naming the shard, if it is missing, cut short, too long, of another tokenizer, or
  /// differs from its entry.
  static Result<TokenStream> open(const std::filesystem::path& folder,
                                  const std::vector<ShardEntry>& entries,
                                  const std::string& tokenizer_fingerprint,
                                  Verify verify = Verify::sizes);
  /// A stream in memory, for tests.
  static TokenStream from_memory(std::vector<TokenId> tokens);

  std::uint64_t size() const;
  /// Copies tokens [offset, offset + out.size()), which must lie inside (checked). `failed`, naming
  /// the shard, if a file has become shorter or cannot be read.
  Result<void> read(std::uint64_t offset, std::span<std::int64_t> out) const;
  /// Looks at the size of every file again: `failed`, naming the first shard that changed.
  Result<void> check_sizes() const;

 private:
  TokenStream() = default;
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace teson::data
