#include "teson/data/token_shards.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"
#include "teson/data/test_folder.h"

namespace teson::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Tokenizer bytes_only() {
  return *Tokenizer::make({});
}

/// More than 65,536 tokens, so that a token takes four bytes.
Tokenizer large_tokenizer() {
  BpeModel model;
  for (TokenId left = 0; left < 256; ++left) {
    for (TokenId right = 0; right < 256; ++right)
      model.merges.emplace_back(left, right);
  }
  return *Tokenizer::make(std::move(model));
}

std::vector<TokenId> some_tokens(std::size_t count, TokenId below) {
  CounterRandom random({count, below});
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(random.below(below)));
  return tokens;
}

std::vector<ShardEntry> write(const TestFolder& folder, const Tokenizer& tokenizer,
                              const std::vector<TokenId>& tokens, std::uint64_t shard_tokens_max,
                              std::size_t at_a_time = 1000) {
  ShardWriter writer(folder.path(), "train", tokenizer, shard_tokens_max);
  for (std::size_t at = 0; at < tokens.size(); at += at_a_time) {
    EXPECT_TRUE(
        writer.append(std::span(tokens).subspan(at, std::min(at_a_time, tokens.size() - at))));
  }
  return *writer.finish();
}

std::vector<std::int64_t> read(const TokenStream& stream, std::uint64_t offset, std::size_t count) {
  std::vector<std::int64_t> out(count);
  const auto result = stream.read(offset, out);
  EXPECT_TRUE(result) << result.error().message;
  return out;
}

std::string error_of(const TestFolder& folder, const std::vector<ShardEntry>& entries,
                     const Tokenizer& tokenizer,
                     TokenStream::Verify verify = TokenStream::Verify::sizes) {
  const auto stream = TokenStream::open(folder.path(), entries, tokenizer.fingerprint(), verify);
  return stream ? "none" : stream.error().describe();
}

TEST(TokenShards, give_back_every_token_across_shards_and_widths) {
  for (const Tokenizer& tokenizer : {bytes_only(), large_tokenizer()}) {
    const auto tokens = some_tokens(5'003, static_cast<TokenId>(tokenizer.vocabulary_size()));
    for (const std::uint64_t shard_tokens : {1ULL, 7ULL, 1000ULL, 5003ULL, 1ULL << 30}) {
      TestFolder folder;
      const std::size_t count_all =
          std::min<std::size_t>(tokens.size(), shard_tokens * 9);  // each shard is two fsyncs
      const std::vector<TokenId> some(tokens.begin(),
                                      tokens.begin() + static_cast<std::ptrdiff_t>(count_all));
      const auto entries = write(folder, tokenizer, some, shard_tokens, 333);
      EXPECT_EQ(entries.size(), (some.size() + shard_tokens - 1) / shard_tokens);
      const auto stream = TokenStream::open(folder.path(), entries, tokenizer.fingerprint(),
                                            TokenStream::Verify::checksums);
      ASSERT_TRUE(stream) << stream.error().message;
      ASSERT_EQ(stream->size(), some.size());
      EXPECT_EQ(read(*stream, 0, some.size()), std::vector<std::int64_t>(some.begin(), some.end()));
      for (std::size_t at = 0; at < some.size(); at += 17) {
        const std::size_t count = std::min<std::size_t>(29, some.size() - at);
        ASSERT_EQ(
            read(*stream, at, count),
            std::vector<std::int64_t>(some.begin() + static_cast<std::ptrdiff_t>(at),
                                      some.begin() + static_cast<std::ptrdiff_t>(at + count)));
      }
    }
  }
}

TEST(TokenShards, lie_on_the_disk_as_documented) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  const auto entries = write(folder, tokenizer, {1, 2, 256}, 100);
  const std::string file = *read_file(folder.path() / "train-00000.tokens");
  ASSERT_EQ(file.size(), 80u + 8 + 8);  // header, 6 bytes padded to 8, one checksum
  EXPECT_EQ(file.substr(0, 32),
            std::string("TESONTOK\1\0\0\0\2\0\0\0\3\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0", 32));
  EXPECT_EQ(file.substr(80, 8), std::string("\1\0\2\0\0\1\0\0", 8));
  const auto number = [](std::uint64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), 8);
  };
  EXPECT_EQ(file.substr(88), number(hash64(file.substr(80, 6))));
  EXPECT_EQ(file.substr(64, 8), number(hash64(file.substr(88))));
  EXPECT_EQ(file.substr(72, 8), number(hash64(file.substr(0, 72))));
  EXPECT_EQ(entries[0], (ShardEntry{"train-00000.tokens", 3, 96, hash64(file.substr(88))}));
}

TEST(TokenShards, of_many_blocks_are_verified_block_by_block) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  const auto entries = write(folder, tokenizer, some_tokens(1'300'000, 257), 1 << 30, 1'300'000);
  EXPECT_EQ(error_of(folder, entries, tokenizer, TokenStream::Verify::checksums), "none");
  std::string file = *read_file(folder.path() / entries[0].file);
  file[80 + (1 << 20) + 5] = static_cast<char>(file[80 + (1 << 20) + 5] ^ 1);
  folder.write(entries[0].file, file);
  EXPECT_EQ(error_of(folder, entries, tokenizer), "none");
  EXPECT_THAT(error_of(folder, entries, tokenizer, TokenStream::Verify::checksums),
              HasSubstr("train-00000.tokens': block 1 of 3 is damaged"));
}

TEST(TokenShards, are_refused_when_cut_anywhere) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  const auto entries = write(folder, tokenizer, some_tokens(20, 257), 100);
  const std::string file = *read_file(folder.path() / entries[0].file);
  for (std::size_t length = 0; length < file.size(); ++length) {
    folder.write(entries[0].file, file.substr(0, length));
    ASSERT_THAT(error_of(folder, entries, tokenizer),
                ::testing::AllOf(HasSubstr("invalid: "), HasSubstr("train-00000.tokens")));
    // The header guards itself when the manifest was cut to fit.
    auto fitting = entries;
    fitting[0].bytes = length;
    ASSERT_THAT(error_of(folder, fitting, tokenizer), HasSubstr("train-00000.tokens"));
  }
  folder.write(entries[0].file, file + "x");
  EXPECT_THAT(error_of(folder, entries, tokenizer), HasSubstr("expected 128 bytes, found 129"));
}

TEST(TokenShards, are_refused_when_any_byte_is_another) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  const auto entries = write(folder, tokenizer, some_tokens(21, 257), 100);
  const std::string file = *read_file(folder.path() / entries[0].file);
  for (std::size_t at = 0; at < file.size(); ++at) {
    if (at >= 80 + 42 && at < 80 + 48) continue;  // padding
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    folder.write(entries[0].file, damaged);
    ASSERT_THAT(error_of(folder, entries, tokenizer, TokenStream::Verify::checksums),
                HasSubstr("train-00000.tokens"))
        << at;
  }
}

TEST(TokenShards, of_another_tokenizer_or_preparation_are_refused) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  auto entries = write(folder, tokenizer, some_tokens(20, 257), 100);
  const auto other = TokenStream::open(folder.path(), entries, std::string(64, 'a'));
  EXPECT_THAT(other.error().message, HasSubstr("another tokenizer"));
  entries[0].checksum ^= 1;
  EXPECT_THAT(error_of(folder, entries, tokenizer),
              HasSubstr("not the one that the manifest lists"));
  fs::remove(folder.path() / entries[0].file);
  EXPECT_THAT(error_of(folder, entries, tokenizer), HasSubstr("invalid: open '"));
}

TEST(TokenShards, cut_short_while_open_give_an_error_that_names_the_file) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  const auto entries = write(folder, tokenizer, some_tokens(100'000, 257), 50'000);
  const auto stream = TokenStream::open(folder.path(), entries, tokenizer.fingerprint());
  ASSERT_TRUE(stream->check_sizes());
  ASSERT_EQ(::truncate((folder.path() / "train-00001.tokens").c_str(), 8'192), 0);
  std::vector<std::int64_t> out(1'000);
  EXPECT_TRUE(stream->read(0, out));
  const auto read = stream->read(90'000, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::failed);
  EXPECT_THAT(read.error().message, HasSubstr("train-00001.tokens' has changed while in use"));
  EXPECT_THAT(stream->check_sizes().error().message,
              HasSubstr("train-00001.tokens' has changed while in use"));
}

TEST(TokenShards, replaced_by_a_new_writer_stay_whole_for_whoever_has_them_open) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  const auto tokens = some_tokens(1'000, 257);
  const auto stream = TokenStream::open(folder.path(), write(folder, tokenizer, tokens, 5'000),
                                        tokenizer.fingerprint());
  write(folder, tokenizer, some_tokens(10, 257), 5'000);
  EXPECT_TRUE(stream->check_sizes());
  EXPECT_EQ(read(*stream, 0, 1'000), std::vector<std::int64_t>(tokens.begin(), tokens.end()));
}

TEST(TokenShards, left_unfinished_are_none) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  {
    ShardWriter writer(folder.path(), "train", tokenizer, 1 << 30);
    ASSERT_TRUE(writer.append(some_tokens(2'000'000, 257)));
  }
  const std::string file = *read_file(folder.path() / "train-00000.tokens");
  const auto header = decode_shard_header(std::as_bytes(std::span(file)), "train-00000.tokens");
  EXPECT_THAT(header.error().message,
              HasSubstr("'train-00000.tokens': not a token shard, or not written to its end"));
}

TEST(TokenShards, of_no_tokens_are_no_files) {
  TestFolder folder;
  const Tokenizer tokenizer = bytes_only();
  EXPECT_TRUE(write(folder, tokenizer, {}, 100).empty());
  EXPECT_EQ(TokenStream::open(folder.path(), {}, tokenizer.fingerprint())->size(), 0u);
}

}  // namespace
}  // namespace teson::data
