#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/fd.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/data/little_endian.h"
#include "teson/data/token_shards.h"

namespace teson::data {
namespace fs = std::filesystem;

struct ShardWriter::State {
  fs::path folder;
  std::string split;
  std::string tokenizer;
  std::uint64_t shard_tokens_max;
  std::uint32_t token_bytes;

  Fd file;  ///< of the shard being written, if any
  fs::path path;
  std::uint64_t tokens = 0;  ///< in this shard
  std::string block;         ///< not yet written
  std::string table;         ///< checksums of the blocks written
  std::vector<ShardEntry> entries;

  Result<void> begin() {
    path = folder / fmt::format("{}-{:05}.tokens", split, entries.size());
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return fail_errno(fmt::format("remove '{}'", path.string()), errno);
    TESON_TRY(file, open_file(path, O_WRONLY | O_CREAT | O_EXCL));
    tokens = 0;
    table.clear();
    return write_all(file.get(), std::string(ShardHeader::kBytes, '\0'), path);
  }

  Result<void> flush_block() {
    if (block.empty()) return {};
    put_number<std::uint64_t>(table, hash64(block));
    TESON_TRY_VOID(write_all(file.get(), block, path));
    block.clear();
    return {};
  }

  Result<void> append(std::span<const TokenId> ids) {
    while (!ids.empty()) {
      if (!file) TESON_TRY_VOID(begin());
      const std::uint64_t room = std::min<std::uint64_t>(
          shard_tokens_max - tokens, (ShardHeader::kBlockBytes - block.size()) / token_bytes);
      const auto now = ids.first(std::min<std::uint64_t>(room, ids.size()));
      for (const TokenId id : now) {
        if (token_bytes == 2) {
          put_number<std::uint16_t>(block, static_cast<std::uint16_t>(id));
        } else {
          put_number<std::uint32_t>(block, id);
        }
      }
      tokens += now.size();
      ids = ids.subspan(now.size());
      if (block.size() == ShardHeader::kBlockBytes) TESON_TRY_VOID(flush_block());
      if (tokens == shard_tokens_max) TESON_TRY_VOID(end());
    }
    return {};
  }

  Result<void> end() {
    const std::size_t padding = (8 - tokens * token_bytes % 8) % 8;
    TESON_TRY_VOID(flush_block());
    TESON_TRY_VOID(write_all(file.get(), std::string(padding, '\0') + table, path));
    const ShardHeader header{.token_bytes = token_bytes,
                             .tokens = tokens,
                             .tokenizer = tokenizer,
                             .table_checksum = hash64(table)};
    // The rest must be on the disk before the header says so.
    if (::fdatasync(file.get()) != 0)
      return fail_errno(fmt::format("fsync '{}'", path.string()), errno);
    if (::lseek(file.get(), 0, SEEK_SET) != 0)
      return fail_errno(fmt::format("seek '{}'", path.string()), errno);
    TESON_TRY_VOID(write_all(file.get(), encode_shard_header(header), path));
    if (::fsync(file.get()) != 0)
      return fail_errno(fmt::format("fsync '{}'", path.string()), errno);
    file.reset();
    entries.push_back({.file = path.filename().string(),
                       .tokens = tokens,
                       .bytes = header.file_bytes(),
                       .checksum = header.table_checksum});
    return {};
  }
};

ShardWriter::ShardWriter(fs::path folder, std::string split, const Tokenizer& tokenizer,
                         std::uint64_t shard_tokens_max)
    : state_(std::make_unique<State>()) {
  TESON_CHECK(shard_tokens_max > 0);
  state_->folder = std::move(folder);
  state_->split = std::move(split);
  state_->tokenizer = tokenizer.fingerprint();
  state_->shard_tokens_max = shard_tokens_max;
  state_->token_bytes = tokenizer.vocabulary_size() <= 1 << 16 ? 2 : 4;
}
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

Result<void> ShardWriter::append(std::span<const TokenId> ids) {
  return state_->append(ids);
}

Result<std::vector<ShardEntry>> ShardWriter::finish() {
  if (state_->file) TESON_TRY_VOID(state_->end());
  TESON_TRY_VOID(sync_folder(state_->folder));
  return std::move(state_->entries);
}

}  // namespace teson::data
