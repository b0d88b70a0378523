// Payloads in shared memory.

#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "teson/net/codec.h"
#include "teson/net/frame.h"
#include "teson/net/socket.h"
#include "teson/net/test_channel.h"

namespace teson::net {
namespace {

using namespace std::chrono_literals;
using test::Heard;
using test::in;
using test::options;
using test::Pair;
using ::testing::HasSubstr;

constexpr std::size_t mib = std::size_t{1} << 20;

/// Random words, in shared memory of `pool`.
Payload payload_of(SharedPool& pool, std::size_t bytes, std::uint64_t seed) {
  auto block = pool.take(bytes);
  EXPECT_NE(block, nullptr);
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(block->writable().data() + at, &word, std::min<std::size_t>(8, bytes - at));
  }
  return {std::move(block), bytes};
}

bool is_mapped(Message& message) {
  return message.payload.room().empty();
}

bool eventually(const std::function<bool()>& condition) {
  const Instant end = in(10s);
  while (!condition()) {
    if (SystemClock().now() >= end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(descriptors), end(descriptors)));
}

TEST(SharedPayload, arrives_without_going_through_the_socket_and_is_given_back) {
  const auto pool = SharedPool::make();
  Loop loop;
  Pair pair(loop);
  pair.start();
  Payload payload = payload_of(*pool, 8 * mib, 1);
  const std::string expected(payload.text());
  ASSERT_TRUE(pair.left->send(3, payload, 5));
  EXPECT_LT(pair.left->outgoing_bytes(), 100U);
  ASSERT_TRUE(pair.right_heard.wait_messages(1));
  Message message = std::move(pair.right_heard.messages_[0]);
  EXPECT_TRUE(is_mapped(message));
  EXPECT_EQ(message.kind, 3);
  EXPECT_EQ(message.epoch, 5U);
  EXPECT_EQ(message.payload.text(), expected);
  payload = {};
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(pool->usage().idle_blocks, 0U) << "the receiver still has it";
  message = {};
  EXPECT_TRUE(eventually([&] { return pool->usage().idle_blocks == 1; }));
}

TEST(SharedPayload, keeps_its_place_among_ordinary_ones) {
  const auto pool = SharedPool::make();
  Loop loop;
  Pair pair(loop);
  pair.start();
  std::vector<std::string> expected;
  std::mt19937_64 random(2);
  for (std::size_t i = 0; i < 200; ++i) {
    if (random() % 3 == 0) {
      const Payload payload = payload_of(*pool, 1 + random() % mib, i);
      expected.emplace_back(payload.text());
      ASSERT_TRUE(pair.left->send(1, payload));
    } else {
      expected.emplace_back(random() % 100000, static_cast<char>(i));
      ASSERT_TRUE(pair.left->send(1, expected.back()));
    }
    // Give some back now and then.
    if (i % 16 == 15) {
      ASSERT_TRUE(pair.right_heard.wait_messages(i + 1));
      for (std::size_t k = i - 15; k <= i; ++k) {
        EXPECT_EQ(pair.right_heard.messages_[k].payload.text(), expected[k]) << k;
        pair.right_heard.messages_[k].payload = Buffer();
      }
    }
  }
  EXPECT_TRUE(pair.right_heard.closed_.empty());
}

TEST(SharedPayload, is_copied_where_more_than_the_bound_is_with_the_peer) {
  const auto pool = SharedPool::make();
  Loop loop;
  auto few = options();
  few.lent_messages_max = 2;
  auto little = options();
  little.lent_bytes_max = 3 * mib;
  for (const auto& sender : {few, little}) {
    Pair pair(loop, sender);
    pair.start();
    std::vector<Payload> sent;
    for (std::uint64_t i = 0; i < 4; ++i) {
      sent.push_back(payload_of(*pool, mib + mib / 2, i));
      ASSERT_TRUE(pair.left->send(1, sent.back()));
    }
    ASSERT_TRUE(pair.right_heard.wait_messages(4));
    auto& messages = pair.right_heard.messages_;
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(messages[i].payload.text(), sent[i].text());
      EXPECT_EQ(is_mapped(messages[i]), i < 2) << i;
    }
    // What is given back may be lent again.
    messages[0].payload = Buffer();
    EXPECT_TRUE(eventually([&] {
      const std::size_t before = messages.size();
      EXPECT_TRUE(pair.left->send(1, sent[0]));
      EXPECT_TRUE(pair.right_heard.wait_messages(before + 1));
      return is_mapped(messages.back());
    }));
  }
}

TEST(SharedPayload, goes_to_many_peers_at_once) {
  const auto pool = SharedPool::make();
  Loop loop;
  std::vector<std::unique_ptr<Pair>> pairs;
  Payload payload = payload_of(*pool, 2 * mib, 1);
  const std::string expected(payload.text());
  for (int i = 0; i < 4; ++i) {
    pairs.push_back(std::make_unique<Pair>(loop));
    pairs.back()->start();
    ASSERT_TRUE(pairs.back()->left->send(1, payload));
  }
  payload = {};
  for (const auto& pair : pairs) {
    ASSERT_TRUE(pair->right_heard.wait_messages(1));
    EXPECT_TRUE(is_mapped(pair->right_heard.messages_[0]));
    EXPECT_EQ(pair->right_heard.messages_[0].payload.text(), expected);
    EXPECT_EQ(pool->usage().idle_blocks, 0U);
    pair->right_heard.messages_[0].payload = Buffer();
  }
  EXPECT_TRUE(eventually([&] { return pool->usage().idle_blocks == 1; }));
}

TEST(SharedPayload, stays_as_it_was_after_its_channel) {
  const auto pool = SharedPool::make();
  Loop loop;
  Buffer kept;
  std::string expected;
  {
    Pair pair(loop);
    pair.start();
    const Payload payload = payload_of(*pool, mib, 1);
    expected = payload.text();
    ASSERT_TRUE(pair.left->send(1, payload));
    ASSERT_TRUE(pair.right_heard.wait_messages(1));
    kept = std::move(pair.right_heard.messages_[0].payload);
  }
  EXPECT_EQ(pool->usage().idle_blocks, 0U) << "nobody can say that the receiver is done";
  for (std::uint64_t i = 2; i < 10; ++i)
    (void)payload_of(*pool, mib, i);
  EXPECT_EQ(kept.text(), expected);
}

TEST(SharedPayload, is_copied_over_tcp) {
  const auto pool = SharedPool::make();
  Loop loop;
  Heard heard;
  std::unique_ptr<Channel> accepted;
  auto listener =
      ChannelListener::listen(loop, *Address::parse("tcp:127.0.0.1:0"), {.channel = options()},
                              [&](std::unique_ptr<Channel> channel) {
                                accepted = std::move(channel);
                                accepted->start(heard.callbacks());
                              })
          .value();
  auto client = Channel::connect(loop, listener->address(), options(), in(5s)).value();
  const Payload payload = payload_of(*pool, mib, 1);
  ASSERT_TRUE(client->send(1, payload));
  ASSERT_TRUE(heard.wait_messages(1));
  EXPECT_FALSE(is_mapped(heard.messages_[0]));
  EXPECT_EQ(heard.messages_[0].payload.text(), payload.text());
}

/// A channel whose peer is played by the test.
struct Played {
  Played() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    channel = Channel::adopt(loop, Fd(fds[0]), HandshakeRole::acceptor, options());
    channel->start(heard.callbacks());
    peer = Socket(Fd(fds[1]), Address());
    EXPECT_TRUE(run_handshake(peer, options().handshake, in(5s)));
  }
  void send(std::uint16_t flags, const std::string& payload, std::vector<int> descriptors = {}) {
    const auto bytes = std::as_bytes(std::span(payload));
    const auto header = encode_frame_header({.kind = 1,
                                             .flags = flags,
                                             .sequence = ++sequence,
                                             .payload_bytes = payload.size(),
                                             .payload_checksum = frame_checksum(bytes)});
    std::string frame(reinterpret_cast<const char*>(header.data()), header.size());
    frame += payload;
    iovec part{frame.data(), frame.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(peer.fd(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
  }
  void expect_closed(const std::string& why) {
    ASSERT_TRUE(heard.wait_closed()) << why;
    EXPECT_EQ(heard.closed_[0].kind, ErrorKind::invalid);
    EXPECT_THAT(heard.closed_[0].message, HasSubstr(why));
    EXPECT_TRUE(heard.messages_.empty());
  }

  Heard heard;
  Loop loop;
  std::unique_ptr<Channel> channel;
  Socket peer;
  std::uint64_t sequence = 0;
};

constexpr std::uint16_t shared = 1;
constexpr std::uint16_t returned = 2;

TEST(SharedPayload, that_is_none_ends_the_channel_by_name) {
  const auto memory = SharedMemory::make(mib).value();
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(mib)), 0);
  const std::string size = encode(std::uint64_t{mib});
  {
    Played played;
    played.send(shared, size);
    played.expect_closed("found none");
  }
  {
    Played played;
    played.send(shared, size, {STDIN_FILENO});
    played.expect_closed("one of something else");
  }
  {
    Played played;
    played.send(shared, size, {unsealed.get()});
    played.expect_closed("one whose size can change");
  }
  {
    Played played;
    played.send(shared, encode(std::uint64_t{mib + 1}), {memory.fd()});
    played.expect_closed("where 1048577 are claimed");
  }
  {
    Played played;
    played.send(shared, encode(~std::uint64_t{0}), {memory.fd()});
    played.expect_closed("expected at most");
  }
  for (std::size_t bytes = 0; bytes < size.size(); ++bytes) {
    Played played;
    played.send(shared, size.substr(0, bytes), {memory.fd()});
    played.expect_closed("message from");
  }
  for (const std::uint16_t flags : {3, 4, 0x8001}) {
    Played played;
    played.send(flags, size, {memory.fd()});
    played.expect_closed("flags");
  }
  {
    Played played;
    played.send(returned, encode(std::uint64_t{1}));
    played.expect_closed("was given back");
  }
}

TEST(SharedPayload, descriptors_that_belong_to_nothing_do_not_pile_up) {
  const auto memory = SharedMemory::make(mib).value();
  const std::size_t before = open_descriptors();
  {
    Played played;
    const std::vector<int> many(16, memory.fd());
    for (int i = 0; i < 3; ++i)
      played.send(0, "", many);
    ASSERT_TRUE(played.heard.wait_closed());
    EXPECT_THAT(played.heard.closed_[0].message, HasSubstr("descriptors on their way"));
  }
  EXPECT_LE(open_descriptors(), before);
}

}  // namespace
}  // namespace teson::net
