#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/fd.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/data/little_endian.h"
#include "teson/data/token_shards.h"

namespace teson::data {
namespace fs = std::filesystem;
namespace {

struct OpenShard {
  Fd file;
  fs::path path;
  ShardHeader header;
  std::uint64_t first = 0;  ///< offset of its first token in the stream
};

Failure changed(const fs::path& path, std::uint64_t expected, std::uint64_t found) {
  return fail(ErrorKind::failed, fmt::format("token shard '{}' has changed while in use: expected "
                                             "{} bytes, found {}; somebody cut or replaced it, "
                                             "prepare the corpus again and resume",
                                             path.string(), expected, found));
}

Result<std::uint64_t> size_of(const OpenShard& shard) {
  struct stat info{};
  if (::fstat(shard.file.get(), &info) != 0)
    return fail_errno(fmt::format("stat '{}'", shard.path.string()), errno);
  return static_cast<std::uint64_t>(info.st_size);
}

/// Bytes [at, at + size) of the file, all of them.
Result<void> read_at(const OpenShard& shard, std::uint64_t at, std::byte* out, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(shard.file.get(), out + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(fmt::format("read '{}'", shard.path.string()), errno);
    if (got == 0) return changed(shard.path, shard.header.file_bytes(), at + done);
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<OpenShard> open_shard(const fs::path& folder, const ShardEntry& entry,
                             const std::string& tokenizer) {
  OpenShard shard;
  shard.path = folder / entry.file;
  const auto refuse = [&](std::string what) {
    return fail(ErrorKind::invalid, fmt::format("token shard '{}': {}; prepare the corpus again",
                                                shard.path.string(), what));
  };
  auto file = open_file(shard.path, O_RDONLY);
  if (!file) return fail(ErrorKind::invalid, file.error().message + "; prepare the corpus again");
  shard.file = std::move(*file);
  TESON_TRY(const std::uint64_t bytes, size_of(shard));
  if (bytes != entry.bytes)
    return refuse(fmt::format("expected {} bytes, found {}", entry.bytes, bytes));
  std::vector<std::byte> raw(std::min<std::uint64_t>(bytes, ShardHeader::kBytes));
  TESON_TRY_VOID(read_at(shard, 0, raw.data(), raw.size()));
  TESON_TRY(shard.header, decode_shard_header(raw, shard.path.string()));
  if (shard.header.file_bytes() != bytes) {
    return refuse(
        fmt::format("its header promises {} bytes, found {}", shard.header.file_bytes(), bytes));
  }
  if (shard.header.tokenizer != tokenizer) return refuse("it was written with another tokenizer");
  if (shard.header.tokens != entry.tokens || shard.header.table_checksum != entry.checksum) {
    return refuse("it is not the one that the manifest lists");
  }
  return shard;
}

Result<void> verify_checksums(const OpenShard& shard) {
  const std::uint64_t payload = shard.header.tokens * shard.header.token_bytes;
  const std::uint64_t blocks = (payload + ShardHeader::kBlockBytes - 1) / ShardHeader::kBlockBytes;
  std::vector<std::byte> table(blocks * 8);
  TESON_TRY_VOID(
      read_at(shard, shard.header.file_bytes() - table.size(), table.data(), table.size()));
  const auto refuse = [&](std::string what) {
    return fail(ErrorKind::invalid,
                fmt::format("token shard '{}': {} is damaged; prepare the corpus again",
                            shard.path.string(), what));
  };
  if (hash64(table) != shard.header.table_checksum) return refuse("its table of checksums");
  std::vector<std::byte> block(std::min<std::uint64_t>(payload, ShardHeader::kBlockBytes));
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t begin = i * ShardHeader::kBlockBytes;
    block.resize(std::min<std::uint64_t>(ShardHeader::kBlockBytes, payload - begin));
    TESON_TRY_VOID(read_at(shard, ShardHeader::kBytes + begin, block.data(), block.size()));
    if (hash64(block) != get_number<std::uint64_t>(table, i * 8))
      return refuse(fmt::format("block {} of {}", i, blocks));
  }
  return {};
}

}  // namespace

struct TokenStream::State {
  std::vector<OpenShard> shards;
  std::vector<TokenId> memory;
  std::uint64_t size = 0;
};

Result<TokenStream> TokenStream::open(const fs::path& folder,
                                      const std::vector<ShardEntry>& entries,
                                      const std::string& tokenizer_fingerprint, Verify verify) {
  auto state = std::make_shared<State>();
  for (const ShardEntry& entry : entries) {
    TESON_TRY(OpenShard shard, open_shard(folder, entry, tokenizer_fingerprint));
    if (verify == Verify::checksums) TESON_TRY_VOID(verify_checksums(shard));
    shard.first = state->size;
    state->size += entry.tokens;
    state->shards.push_back(std::move(shard));
  }
  TokenStream stream;
  stream.state_ = std::move(state);
  return stream;
}

TokenStream TokenStream::from_memory(std::vector<TokenId> tokens) {
  auto state = std::make_shared<State>();
  state->size = tokens.size();
  state->memory = std::move(tokens);
  TokenStream stream;
  stream.state_ = std::move(state);
  return stream;
}

std::uint64_t TokenStream::size() const {
  return state_->size;
}

Result<void> TokenStream::read(std::uint64_t offset, std::span<std::int64_t> out) const {
  TESON_CHECK(offset <= size() && out.size() <= size() - offset, offset, out.size(), size());
  if (state_->shards.empty()) {
    std::copy_n(state_->memory.begin() + static_cast<std::ptrdiff_t>(offset), out.size(),
                out.begin());
    return {};
  }
  auto shard =
      std::upper_bound(state_->shards.begin(), state_->shards.end(), offset,
                       [](std::uint64_t at, const OpenShard& each) { return at < each.first; });
  --shard;
  std::vector<std::byte> raw;
  while (!out.empty()) {
    const std::uint64_t skip = offset - shard->first;
    const std::size_t count = std::min<std::uint64_t>(out.size(), shard->header.tokens - skip);
    const std::uint32_t width = shard->header.token_bytes;
    raw.resize(count * width);
    TESON_TRY_VOID(read_at(*shard, ShardHeader::kBytes + skip * width, raw.data(), raw.size()));
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = width == 2 ? get_number<std::uint16_t>(raw, i * 2)
                          : get_number<std::uint32_t>(raw, i * 4);
    }
    out = out.subspan(count);
    offset += count;
    ++shard;
  }
  return {};
}

Result<void> TokenStream::check_sizes() const {
  for (const OpenShard& shard : state_->shards) {
    TESON_TRY(const std::uint64_t bytes, size_of(shard));
    if (bytes != shard.header.file_bytes())
      return changed(shard.path, shard.header.file_bytes(), bytes);
  }
  return {};
}

}  // namespace teson::data
