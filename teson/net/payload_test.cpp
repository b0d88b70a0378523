#include "teson/net/payload.h"

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "teson/net/codec.h"

namespace teson::net {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

TEST(SharedMemory, is_written_by_its_maker_and_read_by_others) {
  auto memory = SharedMemory::make(mib).value();
  const Fd passed(::dup(memory.fd()));
  const auto reader = SharedMemory::open(passed, mib / 2).value();
  EXPECT_EQ(reader.bytes().size(), mib / 2);
  memory.writable()[7] = std::byte{42};
  EXPECT_EQ(reader.bytes()[7], std::byte{42});
  EXPECT_EQ(reader.bytes()[8], std::byte{0});
}

TEST(SharedMemory, cannot_be_written_or_resized_by_a_reader) {
  const auto memory = SharedMemory::make(mib).value();
  EXPECT_EQ(::mmap(nullptr, mib, PROT_WRITE, MAP_SHARED, memory.fd(), 0), MAP_FAILED);
  EXPECT_EQ(::ftruncate(memory.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(SharedMemory, of_other_descriptors_is_refused) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const Fd reading(pipe_fds[0]);
  const Fd writing(pipe_fds[1]);
  EXPECT_EQ(SharedMemory::open(reading, 1).error().kind, ErrorKind::invalid);
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(mib)), 0);
  EXPECT_EQ(SharedMemory::open(unsealed, mib).error().kind, ErrorKind::invalid);
  const auto memory = SharedMemory::make(mib).value();
  const Fd passed(::dup(memory.fd()));
  EXPECT_EQ(SharedMemory::open(passed, mib + 1).error().kind, ErrorKind::invalid);
  EXPECT_EQ(SharedMemory::open(passed, 0).error().kind, ErrorKind::invalid);
}

TEST(SharedPool, gives_the_same_block_again) {
  const auto pool = SharedPool::make();
  auto block = pool->take(3 * mib - 5);
  EXPECT_EQ(block->size(), 3 * mib);
  const auto* const first = block->bytes().data();
  block.reset();
  EXPECT_EQ(pool->usage().idle_bytes, 3 * mib);
  block = pool->take(2 * mib);
  EXPECT_EQ(block->bytes().data(), first);
  EXPECT_EQ(pool->usage().blocks, 1U);
  EXPECT_EQ(pool->usage().idle_blocks, 0U);
}

TEST(SharedPool, does_not_give_a_large_block_for_a_small_payload) {
  const auto pool = SharedPool::make();
  pool->take(16 * mib).reset();
  EXPECT_EQ(pool->take(mib)->size(), mib);
}

TEST(SharedPool, keeps_to_its_bounds) {
  const auto pool =
      SharedPool::make({.bytes_max = 8 * mib, .idle_bytes_max = 3 * mib, .blocks_max = 3});
  EXPECT_EQ(pool->take(9 * mib), nullptr);
  auto first = pool->take(2 * mib);
  auto second = pool->take(2 * mib);
  EXPECT_EQ(pool->take(5 * mib), nullptr) << "bytes";
  auto third = pool->take(2 * mib);
  EXPECT_EQ(pool->take(mib), nullptr) << "blocks";
  first.reset();
  second.reset();
  EXPECT_EQ(pool->usage().idle_bytes, 2 * mib);
  EXPECT_EQ(pool->usage().bytes, 4 * mib);
  // Idle ones make room for a larger one.
  EXPECT_NE(pool->take(6 * mib), nullptr);
}

TEST(SharedPool, never_gives_out_a_retired_block_again) {
  const auto pool = SharedPool::make();
  auto block = pool->take(mib);
  block->retire();
  block.reset();
  EXPECT_EQ(pool->usage().blocks, 0U);
  EXPECT_EQ(pool->usage().bytes, 0U);
}

TEST(SharedPool, may_end_before_its_blocks) {
  auto pool = SharedPool::make();
  const auto block = pool->take(mib);
  pool.reset();
  block->writable()[0] = std::byte{1};
}

TEST(PayloadWriter, holds_what_a_string_would_hold) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string expected;
    PayloadWriter writer;
    bool room_was_told = false;
    for (int part = 0; part < 6; ++part) {
      const std::string bytes(random() % (round % 2 == 0 ? 200000 : 50),
                              static_cast<char>(random()));
      // Sometimes too little, sometimes nothing.
      if (random() % 2 == 0) {
        writer.reserve(expected.size() + random() % (2 * shared_payload_bytes_min));
        room_was_told = true;
      }
      writer.append(bytes.data(), bytes.size());
      expected += bytes;
      EXPECT_EQ(writer.size(), expected.size());
    }
    writer.push_back('x');
    expected += 'x';
    const std::uint64_t number = random();
    if (expected.size() >= 8) {
      writer.overwrite(expected.size() - 8, std::as_bytes(std::span(&number, 1)));
      std::memcpy(expected.data() + expected.size() - 8, &number, 8);
    }
    const Payload payload = std::move(writer).finish();
    EXPECT_EQ(payload.text(), expected);
    EXPECT_TRUE(room_was_told || payload.block() == nullptr);
    EXPECT_EQ(Buffer(payload).text(), expected);
  }
}

TEST(PayloadWriter, puts_large_values_into_shared_memory_and_small_ones_not) {
  const std::vector<float> large(mib, 1.5F);
  const auto value = std::make_pair(std::string("name"), large);
  PayloadWriter writer;
  encode_to(writer, value);
  const Payload payload = std::move(writer).finish();
  EXPECT_NE(payload.block(), nullptr);
  EXPECT_EQ(payload.text(), encode(value));
  PayloadWriter small;
  encode_to(small, std::string("name"));
  EXPECT_EQ(std::move(small).finish().block(), nullptr);
}

TEST(Buffer, keeps_a_payload_alive) {
  auto pool = SharedPool::make();
  auto block = pool->take(mib);
  block->writable()[0] = std::byte{9};
  Buffer buffer{Payload(std::move(block), 1)};
  Buffer moved = std::move(buffer);
  EXPECT_EQ(pool->usage().idle_blocks, 0U);
  EXPECT_EQ(moved.bytes()[0], std::byte{9});
  EXPECT_TRUE(moved.room().empty());
  EXPECT_EQ(buffer.size(), 0U);  // NOLINT(bugprone-use-after-move): what a moved one holds
  moved = Buffer();
  EXPECT_EQ(pool->usage().idle_blocks, 1U);
}

}  // namespace
}  // namespace teson::net
