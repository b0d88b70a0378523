#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/comm/frames.h"
#include "teson/comm/message_box.h"
#include "teson/comm/test_group.h"
#include "teson/comm/work.h"

namespace teson::comm {
namespace {

using test::rough_floats;
using test::same_bits;
using test::some_bytes;
using test::TestGroup;
using ::testing::HasSubstr;

std::uint64_t key(int number) {
  return static_cast<std::uint64_t>(number);
}

class Collectives : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  TestGroup group_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(, Collectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::Values(false, true)),
                         [](const auto& instance) {
                           return std::to_string(std::get<0>(instance.param)) +
                                  (std::get<1>(instance.param) ? "_tcp" : "_unix");
                         });

/// Sums one element after another, rank after rank.
std::vector<float> sequential_sum(int size, std::size_t count, std::uint64_t salt) {
  std::vector<float> sum = rough_floats(count, {salt, 0});
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> next = rough_floats(count, {salt, key(rank)});
    for (std::size_t i = 0; i < count; ++i)
      sum[i] = sum[i] + next[i];
  }
  return sum;
}

TEST_P(Collectives, all_reduce_adds_in_rank_order_to_the_last_bit) {
  group_.run(1, [this](Communicator& communicator) {
    for (const std::size_t count : {0, 1, 3, 1023, 1025, 10007, 300001}) {
      std::vector<float> data = rough_floats(count, {count, key(communicator.rank())});
      const auto result = communicator.all_reduce(data).wait();
      ASSERT_TRUE(result) << result.error().describe();
      EXPECT_TRUE(same_bits(data, sequential_sum(size(), count, count))) << count;
    }
  });
}

TEST_P(Collectives, reduce_scatter_adds_in_rank_order_to_the_last_bit) {
  group_.run(1, [this](Communicator& communicator) {
    const auto ranks = static_cast<std::size_t>(size());
    for (const std::size_t count : {0, 1, 129, 270001}) {
      const std::vector<float> in = rough_floats(ranks * count, {count, key(communicator.rank())});
      std::vector<float> out(count);
      const auto result = communicator.reduce_scatter(in, out).wait();
      ASSERT_TRUE(result) << result.error().describe();
      const auto sum = sequential_sum(size(), ranks * count, count);
      const auto begin = sum.begin() + static_cast<std::ptrdiff_t>(
                                           static_cast<std::size_t>(communicator.rank()) * count);
      EXPECT_TRUE(same_bits(out, {begin, begin + static_cast<std::ptrdiff_t>(count)})) << count;
    }
  });
}

TEST_P(Collectives, all_gather_brings_every_ranks_bytes_everywhere) {
  group_.run(1, [this](Communicator& communicator) {
    for (const std::size_t count : {0, 1, 64, 5000, 1200000}) {
      const auto in = some_bytes(count, {count, key(communicator.rank())});
      std::vector<std::byte> out(count * static_cast<std::size_t>(size()));
      ASSERT_TRUE(communicator.all_gather(in, out).wait());
      std::vector<std::byte> expected;
      for (int rank = 0; rank < size(); ++rank) {
        const auto part = some_bytes(count, {count, key(rank)});
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(same_bits(out, expected)) << count;
    }
  });
}

TEST_P(Collectives, all_to_all_transposes) {
  group_.run(1, [this](Communicator& communicator) {
    for (const std::size_t count : {1, 4096, 1100000}) {
      std::vector<std::byte> in;
      std::vector<std::byte> expected;
      for (int peer = 0; peer < size(); ++peer) {
        const auto to_peer = some_bytes(count, {count, key(communicator.rank()), key(peer)});
        in.insert(in.end(), to_peer.begin(), to_peer.end());
        const auto from_peer = some_bytes(count, {count, key(peer), key(communicator.rank())});
        expected.insert(expected.end(), from_peer.begin(), from_peer.end());
      }
      std::vector<std::byte> out(in.size());
      ASSERT_TRUE(communicator.all_to_all(in, out).wait());
      EXPECT_TRUE(same_bits(out, expected)) << count;
    }
  });
}

TEST_P(Collectives, broadcast_brings_the_roots_bytes_everywhere) {
  group_.run(1, [this](Communicator& communicator) {
    for (int root = 0; root < size(); ++root) {
      for (const std::size_t count : {0, 7, 1100001}) {
        auto data = some_bytes(count, {count, key(communicator.rank())});
        ASSERT_TRUE(communicator.broadcast(data, root).wait());
        EXPECT_TRUE(same_bits(data, some_bytes(count, {count, key(root)})));
      }
    }
  });
}

TEST_P(Collectives, nobody_passes_a_barrier_before_all_have_come) {
  std::atomic<int> came = 0;
  group_.run(1, [&](Communicator& communicator) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      ASSERT_TRUE(communicator.barrier().wait());
      EXPECT_GE(came, round * size());
    }
  });
}

TEST_P(Collectives, messages_are_matched_by_tag_in_order_of_sending) {
  group_.run(1, [this](Communicator& communicator) {
    const int own = communicator.rank();
    std::vector<Work> works;
    // Everybody sends large messages to everybody before it receives any.
    std::vector<std::vector<std::byte>> sent;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == own) continue;
      for (std::uint64_t number = 0; number < 4; ++number) {
        sent.push_back(
            some_bytes(number == 3 ? 1500000 : 1000 * number, {number, key(own), key(peer)}));
        works.push_back(communicator.send(sent.back(), peer, number % 2));
      }
    }
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == own) continue;
      // Tag 1 first, though tag 0 was sent first.
      for (const std::uint64_t number : {1, 3, 0, 2}) {
        std::vector<std::byte> received(number == 3 ? 1500000 : 1000 * number);
        ASSERT_TRUE(communicator.recv(received, peer, number % 2).wait());
        EXPECT_TRUE(
            same_bits(received, some_bytes(received.size(), {number, key(peer), key(own)})));
      }
    }
    for (const Work& work : works)
      EXPECT_TRUE(work.wait());
  });
}

TEST_P(Collectives, many_operations_in_flight_end_in_order) {
  group_.run(1, [this](Communicator& communicator) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (std::uint64_t i = 0; i < 40; ++i)
      data.push_back(rough_floats(2000 * (i % 7), {i, key(communicator.rank())}));
    for (auto& one : data)
      works.push_back(communicator.all_reduce(one));
    ASSERT_TRUE(works.back().wait());
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_TRUE(works[i].done());
      EXPECT_TRUE(same_bits(data[i], sequential_sum(size(), data[i].size(), i)));
    }
  });
}

TEST(CollectiveErrors, sizes_that_do_not_fit_are_named_and_harm_nothing) {
  TestGroup group(2);
  group.run(1, [](Communicator& communicator) {
    std::vector<std::byte> bytes(10);
    EXPECT_THAT(communicator.all_gather(bytes, bytes).wait().error().message,
                HasSubstr("in has 10 bytes, out 10; expected 20"));
    EXPECT_EQ(communicator.all_to_all(std::span(bytes).first(3), std::span(bytes).first(3))
                  .wait()
                  .error()
                  .kind,
              ErrorKind::invalid);
    EXPECT_EQ(communicator.broadcast(bytes, 2).wait().error().kind, ErrorKind::invalid);
    EXPECT_EQ(communicator.send(bytes, communicator.rank(), 0).wait().error().kind,
              ErrorKind::invalid);
    EXPECT_EQ(communicator.recv(bytes, -1, 0).wait().error().kind, ErrorKind::invalid);
    std::vector<float> floats(3);
    EXPECT_EQ(communicator.reduce_scatter(floats, floats).wait().error().kind, ErrorKind::invalid);
    EXPECT_TRUE(communicator.barrier().wait());
  });
}

TEST(CollectiveErrors, ranks_that_start_different_operations_are_told) {
  TestGroup group(2);
  group.run(1, [](Communicator& communicator) {
    std::vector<std::byte> bytes(communicator.rank() == 0 ? 10 : 11);
    const auto result = communicator.broadcast(bytes, 0).wait();
    if (communicator.rank() == 1) {
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, ErrorKind::invalid);
      EXPECT_THAT(result.error().message, HasSubstr("rank 0"));
      EXPECT_THAT(result.error().message, HasSubstr("10 bytes; expected item 0 of 11 bytes"));
    }
  });
}

TEST(CollectiveErrors, a_message_of_another_size_is_told) {
  TestGroup group(2);
  for (const bool early : {true, false}) {
    group.run(early ? 1 : 2, [early](Communicator& communicator) {
      std::vector<std::byte> bytes(communicator.rank() == 0 ? 10 : 11);
      if (communicator.rank() == 0) {
        EXPECT_TRUE(communicator.send(bytes, 1, 5).wait());
        (void)communicator.barrier().wait();
        return;
      }
      if (early) {
        ASSERT_TRUE(communicator.barrier().wait());
      }
      const auto result = communicator.recv(bytes, 0, 5).wait();
      ASSERT_FALSE(result);
      EXPECT_THAT(result.error().message,
                  HasSubstr("tag 5: the receive expects 11 bytes, the sender sent 10"));
    });
  }
}

TEST(Messages, beyond_the_bound_they_wait_at_their_sender_until_received) {
  TestGroup group(2);
  auto pair =
      group.connect(1, [](GroupOptions& options) { options.early_message_bytes_max = 3 << 20; });
  const auto sent = some_bytes(20 << 20, {1});
  const Work sending = pair[0]->send(sent, 1, 9);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(sending.done());
  std::vector<std::byte> received(sent.size());
  EXPECT_TRUE(pair[1]->recv(received, 0, 9).wait());
  EXPECT_TRUE(sending.wait());
  EXPECT_TRUE(same_bits(received, sent));
}

TEST(Messages, empty_ones_count_against_the_bound_too) {
  MessageBox box(2, 1024);
  const auto arrive = [&box](std::uint32_t tag) {
    net::FrameHeader header;
    header.kind = static_cast<std::uint16_t>(FrameKind::message);
    header.flags = MessageBox::last_chunk;
    header.sequence = sequence_of(tag, 0);
    const auto place = box.place(1, header).value();
    if (!place) return false;
    EXPECT_TRUE(box.received(1, header));
    return true;
  };
  std::uint32_t kept = 0;
  while (kept < 100 && arrive(kept))
    ++kept;
  EXPECT_GT(kept, 0U);
  EXPECT_LE(kept, 1024U / 64) << "bytes of the list itself";
  const auto work = std::make_shared<Work::State>();
  EXPECT_TRUE(box.post(1, {0, {}, work}));
  EXPECT_TRUE(arrive(kept)) << "one was taken, so there is room for one";
  EXPECT_FALSE(arrive(kept + 1));
}

TEST(Queue, is_bounded) {
  TestGroup group(2);
  auto pair = group.connect(1);
  std::vector<Work> works;
  for (int i = 0; i < 10000; ++i)
    works.push_back(pair[0]->barrier());
  EXPECT_TRUE(std::any_of(works.begin(), works.end(), [](const Work& work) {
    return work.done() && work.wait().error().kind == ErrorKind::overloaded;
  }));
}

}  // namespace
}  // namespace teson::comm
