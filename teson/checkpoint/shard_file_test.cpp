#include "teson/checkpoint/shard_file.h"

#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "teson/base/file.h"
#include "teson/checkpoint/manifest.h"
#include "teson/checkpoint/testing.h"

namespace teson {
namespace {

using testing::slurp;
using testing::spill;
using testing::TemporaryFolder;

ShardHeader header_of(std::uint64_t payload, std::uint32_t block) {
  return {.section = "weights",
          .section_bytes = payload + 30,
          .offset = 10,
          .payload_bytes = payload,
          .index = 1,
          .count = 3,
          .block_bytes = block};
}

std::vector<std::byte> bytes_of(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 131 + 7);
  return bytes;
}

TEST(ShardFile, header_round_trips_and_is_one_page) {
  const ShardHeader header = header_of(1000, 64);
  const auto page = encode_shard_header(header);
  EXPECT_EQ(page.size(), 4096u);
  EXPECT_EQ(std::memcmp(page.data(), "TESONSHD", 8), 0);
  const auto decoded = decode_shard_header(page);
  ASSERT_TRUE(decoded) << decoded.error().describe();
  EXPECT_EQ(*decoded, header);
}

TEST(ShardFile, every_truncated_header_is_refused) {
  const auto page = encode_shard_header(header_of(1000, 64));
  for (std::size_t size = 0; size < page.size(); ++size) {
    EXPECT_FALSE(decode_shard_header(std::span(page).first(size)));
  }
}

TEST(ShardFile, header_fields_out_of_bounds_are_refused_even_with_a_right_checksum) {
  struct Change {
    std::size_t at;
    std::uint64_t value;
    std::size_t size;
  };
  const Change changes[] = {{8, 2, 4},      {12, 0, 4},     {12, 1u << 30, 4}, {16, 1ULL << 60, 8},
                            {24, ~0ULL, 8}, {32, ~0ULL, 8}, {40, 3, 4},        {44, 0, 4},
                            {48, '/', 1},   {48, 0, 1}};
  for (const auto& change : changes) {
    auto page = encode_shard_header(header_of(1000, 64));
    std::memcpy(page.data() + change.at, &change.value, change.size);
    const std::uint64_t hash = XXH3_64bits(page.data(), 4088);
    std::memcpy(page.data() + 4088, &hash, 8);
    EXPECT_FALSE(decode_shard_header(page)) << change.at << " " << change.value;
  }
}

TEST(ShardFile, checksums_are_xxh3_of_each_block_and_of_the_table) {
  const TemporaryFolder folder;
  SystemDisk disk;
  const auto payload = bytes_of(150);
  const auto checksum = write_shard(disk, folder.path() / "a", header_of(150, 64), payload, {});
  ASSERT_TRUE(checksum);
  const std::string file = slurp(folder.path() / "a");
  ASSERT_EQ(file.size(), 4096u + 150u + 3 * 8u);
  std::uint64_t table[3], header_hash = 0;
  std::memcpy(table, file.data() + 4096 + 150, sizeof table);
  std::memcpy(&header_hash, file.data() + 4088, 8);
  EXPECT_EQ(table[0], XXH3_64bits(payload.data(), 64));
  EXPECT_EQ(table[1], XXH3_64bits(payload.data() + 64, 64));
  EXPECT_EQ(table[2], XXH3_64bits(payload.data() + 128, 22));
  EXPECT_EQ(*checksum, XXH3_64bits_withSeed(table, sizeof table, header_hash));
}

TEST(ShardFile, any_range_reads_back) {
  const TemporaryFolder folder;
  SystemDisk disk;
  const auto payload = bytes_of(150);
  const auto header = header_of(150, 64);
  const auto checksum = write_shard(disk, folder.path() / "a", header, payload, {});
  ASSERT_TRUE(checksum);
  const auto reader = ShardReader::open(folder.path() / "a", header, *checksum);
  ASSERT_TRUE(reader) << reader.error().describe();
  EXPECT_TRUE(reader->verify());
  for (std::size_t begin = 0; begin <= 150; ++begin) {
    for (std::size_t end = begin; end <= 150; ++end) {
      std::vector<std::byte> got(end - begin);
      ASSERT_TRUE(reader->read(begin, got));
      ASSERT_TRUE(
          std::equal(got.begin(), got.end(), payload.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
}

TEST(ShardFile, every_truncation_and_every_flipped_byte_is_found_and_the_file_named) {
  const TemporaryFolder folder;
  SystemDisk disk;
  const auto path = folder.path() / "victim.bin";
  const auto header = header_of(150, 64);
  const auto checksum = write_shard(disk, path, header, bytes_of(150), {});
  ASSERT_TRUE(checksum);
  const std::string whole = slurp(path);
  const auto load = [&] {
    return ShardReader::open(path, header, *checksum).and_then([](const ShardReader& r) {
      return r.verify();
    });
  };
  ASSERT_TRUE(load());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    spill(path, flipped);
    const auto result = load();
    ASSERT_FALSE(result) << "byte " << at;
    ASSERT_EQ(result.error().kind, ErrorKind::invalid);
    ASSERT_NE(result.error().message.find("victim.bin"), std::string::npos)
        << result.error().message;
  }
  for (std::size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    ASSERT_FALSE(load()) << "length " << size;
  }
  spill(path, whole + "x");
  EXPECT_FALSE(load());
}

TEST(ShardFile, a_file_cut_short_after_it_was_opened_is_an_error_not_a_crash) {
  const TemporaryFolder folder;
  SystemDisk disk;
  const auto header = header_of(150, 64);
  const auto checksum = write_shard(disk, folder.path() / "a", header, bytes_of(150), {});
  const auto reader = ShardReader::open(folder.path() / "a", header, *checksum);
  ASSERT_TRUE(reader);
  std::filesystem::resize_file(folder.path() / "a", 4100);
  const auto result = reader->verify();
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("bytes short"), std::string::npos);
}

TEST(ShardFile, reads_beyond_4_gib_without_truncating_offsets) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "sparse.bin";
  const ShardHeader header{.section = "weights",
                           .section_bytes = 5ULL << 30,
                           .offset = 0,
                           .payload_bytes = 5ULL << 30,
                           .index = 0,
                           .count = 1,
                           .block_bytes = 1U << 20};
  const auto page = encode_shard_header(header);
  const std::vector<char> zeros(1U << 20);
  std::vector<std::uint64_t> table(5 * 1024, XXH3_64bits(zeros.data(), zeros.size()));
  const auto file = open_file(path, O_WRONLY | O_CREAT);
  ASSERT_TRUE(file);
  ASSERT_EQ(::pwrite(file->get(), page.data(), page.size(), 0), 4096);
  // A hole of zeros, but for one marked block near the end.
  std::vector<char> marked(1U << 20);
  marked[17] = 'x';
  const std::uint64_t at = (5ULL << 30) - (2ULL << 20);
  table[at >> 20] = XXH3_64bits(marked.data(), marked.size());
  ASSERT_EQ(::pwrite(file->get(), marked.data(), marked.size(), static_cast<off_t>(4096 + at)),
            1 << 20);
  ASSERT_EQ(::pwrite(file->get(), table.data(), table.size() * 8,
                     static_cast<off_t>(4096 + (5ULL << 30))),
            static_cast<ssize_t>(table.size() * 8));
  std::uint64_t header_hash = 0;
  std::memcpy(&header_hash, page.data() + 4088, 8);
  const auto reader = ShardReader::open(
      path, header, XXH3_64bits_withSeed(table.data(), table.size() * 8, header_hash));
  ASSERT_TRUE(reader) << reader.error().describe();
  std::byte got[3];
  ASSERT_TRUE(reader->read(at + 16, got));
  EXPECT_EQ(got[0], std::byte{0});
  EXPECT_EQ(got[1], std::byte{'x'});
}

TEST(ShardFile, sections_of_many_gigabytes_are_planned_exactly) {
  const std::uint64_t bytes = 405'853'388'800ULL * 4;  // Llama 3.1 405B in fp32
  const auto section = plan_section("weights", bytes, 256ULL << 20);
  EXPECT_EQ(section.shards.size(), (bytes + (256ULL << 20) - 1) / (256ULL << 20));
  EXPECT_EQ(section.shards.back().offset + section.shards.back().bytes, bytes);
  const Manifest manifest{.meta = {}, .block_bytes = 1U << 20, .sections = {section}};
  EXPECT_TRUE(validate(manifest));
  EXPECT_EQ(shard_file_bytes(expected_header(manifest, section, 0)),
            4096 + (256ULL << 20) + 8 * 256);
}

}  // namespace
}  // namespace teson
