#include "teson/checkpoint/shard_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "teson/base/check.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"

namespace teson {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, as its machines");

constexpr std::array<char, 8> magic = {'T', 'E', 'S', 'O', 'N', 'S', 'H', 'D'};
constexpr std::uint32_t version = 1;
constexpr std::size_t name_at = 48;
constexpr std::size_t name_field = 64;
constexpr std::size_t hash_at = shard_header_bytes - 8;

template <typename T>
void put(std::span<std::byte> page, std::size_t at, T value) {
  std::memcpy(page.data() + at, &value, sizeof value);
}

template <typename T>
T get(std::span<const std::byte> page, std::size_t at) {
  T value;
  std::memcpy(&value, page.data() + at, sizeof value);
  return value;
}

/// All of `into`, from a position of the file; a short file is an error.
Result<void> read_at(int fd, std::uint64_t at, std::span<std::byte> into,
                     const std::filesystem::path& path) {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(fmt::format("read '{}'", path.string()), errno);
    if (got == 0) {
      return fail(ErrorKind::invalid, fmt::format("'{}' ends at byte {}, {} bytes short",
                                                  path.string(), at, into.size()));
    }
    at += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<void> check_bounds(const ShardHeader& header) {
  const auto bad = [](std::string what) {
    return fail(ErrorKind::invalid, "shard header: " + what);
  };
  if (!is_section_name(header.section)) return bad("the section name is not a valid one");
  if (header.section_bytes > section_bytes_max) {
    return bad(fmt::format("section of {} bytes, the limit is {}", header.section_bytes,
                           section_bytes_max));
  }
  if (header.offset > header.section_bytes ||
      header.payload_bytes > header.section_bytes - header.offset) {
    return bad(fmt::format("bytes {}+{} lie outside the section of {}", header.offset,
                           header.payload_bytes, header.section_bytes));
  }
  if (header.count > shards_per_section_max || header.index >= header.count) {
    return bad(fmt::format("file {} of {}", header.index, header.count));
  }
  if (header.block_bytes == 0 || header.block_bytes > block_bytes_max) {
    return bad(
        fmt::format("blocks of {} bytes, expected 1 to {}", header.block_bytes, block_bytes_max));
  }
  return {};
}

std::uint64_t whole_checksum(std::span<const std::byte> header_page,
                             std::span<const std::uint64_t> table) {
  return hash64(std::as_bytes(table), get<std::uint64_t>(header_page, hash_at));
}

}  // namespace

bool is_section_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= section_name_bytes_max && plain(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return plain(c) || c == '_' || c == '-' || c == '.'; });
}

std::string shard_file_name(std::string_view section, std::uint32_t index) {
  return fmt::format("{}-{:05}.bin", section, index);
}

std::array<std::byte, shard_header_bytes> encode_shard_header(const ShardHeader& header) {
  TESON_CHECK(check_bounds(header).has_value(), header.section, header.payload_bytes);
  std::array<std::byte, shard_header_bytes> page{};
  put(page, 0, magic);
  put(page, 8, version);
  put(page, 12, header.block_bytes);
  put(page, 16, header.section_bytes);
  put(page, 24, header.offset);
  put(page, 32, header.payload_bytes);
  put(page, 40, header.index);
  put(page, 44, header.count);
  std::memcpy(page.data() + name_at, header.section.data(), header.section.size());
  put(page, hash_at, hash64(std::span(page).first(hash_at)));
  return page;
}

Result<ShardHeader> decode_shard_header(std::span<const std::byte> page) {
  if (page.size() < shard_header_bytes) {
    return fail(ErrorKind::invalid, fmt::format("shard header: {} bytes, expected {}", page.size(),
                                                shard_header_bytes));
  }
  if (std::memcmp(page.data(), magic.data(), magic.size()) != 0) {
    return fail(ErrorKind::invalid, "shard header: it does not begin with TESONSHD");
  }
  if (get<std::uint64_t>(page, hash_at) != hash64(page.first(hash_at))) {
    return fail(ErrorKind::invalid, "shard header: its checksum does not match");
  }
  if (const auto found = get<std::uint32_t>(page, 8); found != version) {
    return fail(ErrorKind::invalid,
                fmt::format("shard header: format {}, this program reads {}", found, version));
  }
  const char* name = reinterpret_cast<const char*>(page.data()) + name_at;
  ShardHeader header{.section = std::string(name, ::strnlen(name, name_field)),
                     .section_bytes = get<std::uint64_t>(page, 16),
                     .offset = get<std::uint64_t>(page, 24),
                     .payload_bytes = get<std::uint64_t>(page, 32),
                     .index = get<std::uint32_t>(page, 40),
                     .count = get<std::uint32_t>(page, 44),
                     .block_bytes = get<std::uint32_t>(page, 12)};
  TESON_TRY_VOID(check_bounds(header));
  return header;
}

std::uint64_t shard_blocks(const ShardHeader& header) {
  return (header.payload_bytes + header.block_bytes - 1) / header.block_bytes;
}

std::uint64_t shard_file_bytes(const ShardHeader& header) {
  return shard_header_bytes + header.payload_bytes + sizeof(std::uint64_t) * shard_blocks(header);
}

Result<std::uint64_t> write_shard(Disk& disk, const std::filesystem::path& path,
                                  const ShardHeader& header, std::span<const std::byte> payload,
                                  std::stop_token stop) {
  TESON_CHECK(payload.size() == header.payload_bytes, payload.size(), header.payload_bytes);
  const auto page = encode_shard_header(header);
  TESON_TRY(const Fd file, disk.create(path));
  TESON_TRY_VOID(disk.write(file.get(), page, path));
  std::vector<std::uint64_t> table;
  table.reserve(shard_blocks(header));
  for (std::size_t at = 0; at < payload.size(); at += header.block_bytes) {
    if (stop.stop_requested()) {
      return fail(ErrorKind::aborted, fmt::format("writing '{}' was cancelled", path.string()));
    }
    const auto block =
        payload.subspan(at, std::min<std::size_t>(header.block_bytes, payload.size() - at));
    table.push_back(hash64(block));
    TESON_TRY_VOID(disk.write(file.get(), block, path));
  }
  TESON_TRY_VOID(disk.write(file.get(), std::as_bytes(std::span(table)), path));
  TESON_TRY_VOID(disk.sync(file.get(), path));
  return whole_checksum(page, table);
}

Result<void> expect_present(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::symlink_status(path, code).type() != std::filesystem::file_type::not_found)
    return {};
  return fail(ErrorKind::invalid, fmt::format("'{}' is missing", path.string()));
}

Result<ShardReader> ShardReader::open(const std::filesystem::path& path,
                                      const ShardHeader& expected, std::uint64_t checksum) {
  ShardReader reader;
  reader.path_ = path;
  TESON_TRY_VOID(expect_present(path));
  TESON_TRY(reader.file_, open_file(path, O_RDONLY));
  struct stat info{};
  if (::fstat(reader.file_.get(), &info) != 0) {
    return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  }
  if (static_cast<std::uint64_t>(info.st_size) != shard_file_bytes(expected)) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}' has {} bytes, the manifest says {}", path.string(), info.st_size,
                            shard_file_bytes(expected)));
  }
  std::array<std::byte, shard_header_bytes> page;
  TESON_TRY_VOID(read_at(reader.file_.get(), 0, page, path));
  auto header = decode_shard_header(page);
  if (!header) return fail(header.error().in(fmt::format("'{}'", path.string())));
  if (*header != expected) {
    return fail(
        ErrorKind::invalid,
        fmt::format("'{}' holds file {} of {} of section '{}', bytes {}+{}; the manifest expects "
                    "file {} of {} of '{}', bytes {}+{}",
                    path.string(), header->index, header->count, header->section, header->offset,
                    header->payload_bytes, expected.index, expected.count, expected.section,
                    expected.offset, expected.payload_bytes));
  }
  reader.header_ = std::move(*header);
  reader.table_.resize(shard_blocks(expected));
  TESON_TRY_VOID(read_at(reader.file_.get(), shard_header_bytes + expected.payload_bytes,
                         std::as_writable_bytes(std::span(reader.table_)), path));
  if (const auto found = whole_checksum(page, reader.table_); found != checksum) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}': its table of checksums gives {:016x}, the manifest says {:016x}",
                            path.string(), found, checksum));
  }
  return reader;
}

std::uint64_t ShardReader::block_size(std::uint64_t number) const {
  return std::min<std::uint64_t>(header_.block_bytes,
                                 header_.payload_bytes - number * header_.block_bytes);
}

Result<void> ShardReader::read_block(std::uint64_t number, std::span<std::byte> block) const {
  const std::uint64_t at = number * header_.block_bytes;
  TESON_TRY_VOID(read_at(file_.get(), shard_header_bytes + at, block, path_));
  if (const auto found = hash64(block); found != table_[number]) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "'{}': block {} (section '{}', bytes {} to {}) has checksum {:016x}, expected {:016x}",
            path_.string(), number, header_.section, header_.offset + at,
            header_.offset + at + block.size(), found, table_[number]));
  }
  return {};
}

Result<void> ShardReader::read(std::uint64_t offset, std::span<std::byte> into) const {
  TESON_CHECK(offset <= header_.payload_bytes && into.size() <= header_.payload_bytes - offset,
              offset, into.size(), header_.payload_bytes);
  std::vector<std::byte> scratch;
  while (!into.empty()) {
    const std::uint64_t number = offset / header_.block_bytes;
    const std::uint64_t within = offset % header_.block_bytes;
    const std::uint64_t size = block_size(number);
    const std::size_t wanted = std::min<std::uint64_t>(into.size(), size - within);
    if (wanted == size) {
      TESON_TRY_VOID(read_block(number, into.first(wanted)));
    } else {
      scratch.resize(size);
      TESON_TRY_VOID(read_block(number, scratch));
      std::memcpy(into.data(), scratch.data() + within, wanted);
    }
    into = into.subspan(wanted);
    offset += wanted;
  }
  return {};
}

Result<void> ShardReader::verify(const std::stop_token& stop) const {
  std::vector<std::byte> block;
  for (std::uint64_t number = 0; number < table_.size(); ++number) {
    if (stop.stop_requested())
      return fail(ErrorKind::aborted, fmt::format("reading '{}' was stopped", path_.string()));
    block.resize(block_size(number));
    TESON_TRY_VOID(read_block(number, block));
  }
  return {};
}

}  // namespace teson
