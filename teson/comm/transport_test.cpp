#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "teson/base/clock.h"
#include "teson/comm/greeting.h"
#include "teson/comm/test_group.h"
#include "teson/net/frame.h"
#include "teson/net/handshake.h"
#include "teson/net/socket.h"

namespace teson::comm {
namespace {

using namespace std::chrono_literals;
using test::TestGroup;
using ::testing::HasSubstr;

const Error fenced{ErrorKind::aborted, "epoch fenced"};
Instant in(Duration time) {
  return SystemClock().now() + time;
}

/// Generous for a loaded machine; the promise is 100 ms.
constexpr double soon_ms = 5000;  // far below any timeout; how soon it is, bench_comm measures

class Stopwatch {
 public:
  double ms() const { return to_ms(SystemClock().now() - start_); }

 private:
  Instant start_ = SystemClock().now();
};

net::HandshakeOptions handshake(Greeting greeting) {
  return {net::HandshakeRole::initiator, "test", "comm", "a secret", encode_greeting(greeting)};
}

TEST(Transport, each_epoch_gets_a_new_group_on_the_same_listeners) {
  TestGroup group(3);
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
    group.run(epoch * 7, [epoch](Communicator& communicator) {
      EXPECT_EQ(communicator.epoch(), epoch * 7);
      EXPECT_EQ(communicator.size(), 3);
      EXPECT_TRUE(communicator.barrier().wait());
    });
  }
}

TEST(Transport, a_removed_socket_file_is_made_again) {
  TestGroup group(2);
  const auto meet = [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); };
  group.run(1, meet);
  for (const auto& address : group.addresses)
    std::filesystem::remove(address.path());
  for (const auto& transport : group.transports)
    transport->abort_below(2, fenced);
  for (const auto& address : group.addresses)
    test::wait_for_listener(address);
  group.run(2, meet);
}

TEST(Transport, a_peer_that_is_ahead_waits_for_us) {
  TestGroup group(2);
  std::jthread ahead([&] {
    auto communicator = group.transports[1]->connect(group.options(1, 1));
    ASSERT_TRUE(communicator) << communicator.error().describe();
    EXPECT_TRUE((*communicator)->barrier().wait());
  });
  std::this_thread::sleep_for(100ms);
  auto communicator = group.transports[0]->connect(group.options(1, 0));
  ASSERT_TRUE(communicator) << communicator.error().describe();
  EXPECT_TRUE((*communicator)->barrier().wait());
}

TEST(Transport, ranks_that_do_not_come_are_named_at_the_timeout) {
  TestGroup group(3);
  for (const int rank : {0, 2}) {
    auto options = group.options(static_cast<std::uint64_t>(rank) + 1, rank);
    options.connect_timeout = 50ms;
    const auto result = group.transports[static_cast<std::size_t>(rank)]->connect(options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::timed_out);
    EXPECT_THAT(result.error().message, HasSubstr("rank 1"));
    EXPECT_THAT(result.error().message, HasSubstr(rank == 0 ? "rank 2" : "rank 0"));
  }
}

TEST(Transport, a_dead_peer_is_named_at_once_whatever_its_rank) {
  for (const bool tcp : {false, true}) {
    for (const int dead : {0, 2}) {
      TestGroup group(3, tcp);
      group.transports[static_cast<std::size_t>(dead)].reset();
      std::vector<int> lost;
      auto options = group.options(1, 1);
      options.on_peer_lost = [&lost](int rank) { lost.push_back(rank); };
      const Stopwatch stopwatch;
      const auto result = group.transports[1]->connect(options);
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, ErrorKind::disconnected) << result.error().describe();
      EXPECT_THAT(result.error().message, HasSubstr("rank " + std::to_string(dead)));
      EXPECT_THAT(lost, testing::ElementsAre(dead));
      EXPECT_LT(stopwatch.ms(), soon_ms);
    }
  }
}

TEST(Transport, a_peer_dying_while_others_are_waited_for_is_noticed) {
  TestGroup group(3);
  auto socket = net::connect(group.addresses[0], in(10s)).value();
  std::jthread dying([&] {
    ASSERT_TRUE(net::run_handshake(
        socket, handshake({.epoch = 1, .instance = 102, .from = 2, .to = 0, .size = 3}), in(10s)));
    std::vector<std::byte> welcome(net::frame_header_bytes);
    ASSERT_TRUE(socket.receive_all(welcome, in(10s)));
    socket.close();
  });
  const auto result = group.transports[0]->connect(group.options(1, 0));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(result.error().message, HasSubstr("rank 2"));
}

TEST(Transport, a_connect_is_ended_from_another_thread_and_the_next_one_works) {
  TestGroup group(2);
  for (const int rank : {0, 1}) {
    const auto epoch = static_cast<std::uint64_t>(rank) + 1;
    Instant aborted;
    std::jthread aborter([&] {
      std::this_thread::sleep_for(50ms);
      aborted = SystemClock().now();
      group.transports[static_cast<std::size_t>(rank)]->abort_connect(fenced);
    });
    const auto result =
        group.transports[static_cast<std::size_t>(rank)]->connect(group.options(epoch, rank));
    const Instant ended = SystemClock().now();
    aborter.join();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), fenced);
    EXPECT_LT(to_ms(ended - aborted), soon_ms);
  }
  group.run(3, [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); });
}

TEST(Transport, nothing_below_a_fenced_epoch_starts_or_goes_on) {
  TestGroup group(2);
  auto pair = group.connect(5);
  std::vector<std::byte> data(10);
  const Work blocked = pair[0]->recv(data, 1, 0);
  group.transports[0]->abort_below(6, fenced);
  EXPECT_EQ(blocked.wait().error(), fenced);
  EXPECT_EQ(pair[0]->barrier().wait().error(), fenced);
  const auto late = group.transports[0]->connect(group.options(5, 0));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::aborted);
  EXPECT_THAT(late.error().message, HasSubstr("epoch fenced"));
  // The other rank, which has not heard of the fence, is refused and told.
  const auto refused = group.transports[1]->connect(group.options(5, 1));
  EXPECT_FALSE(refused);
  pair.clear();
  group.run(6, [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); });
}

TEST(Transport, a_connection_of_a_past_epoch_is_refused_and_told_why) {
  TestGroup group(2);
  group.transports[0]->abort_below(9, fenced);
  const auto refused = group.transports[1]->connect(group.options(8, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::aborted);
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0"));
  EXPECT_THAT(refused.error().message, HasSubstr("epoch 8 is over"));
  EXPECT_GE(group.transports[0]->refused_connections(), 1u);
}

TEST(Transport, a_held_connection_is_refused_when_its_epoch_is_passed) {
  TestGroup group(2);
  std::jthread early([&] {
    const auto result = group.transports[1]->connect(group.options(1, 1));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::aborted) << result.error().describe();
  });
  std::this_thread::sleep_for(50ms);
  group.transports[0]->abort_below(2, fenced);
}

TEST(Transport, an_epoch_is_connected_once) {
  TestGroup group(2);
  auto pair = group.connect(1);
  const auto again = group.transports[0]->connect(group.options(1, 0));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::invalid);
}

TEST(Transport, another_process_at_a_known_address_is_a_gone_peer) {
  TestGroup group(2);
  std::jthread zero([&] {
    auto options = group.options(1, 0);
    options.connect_timeout = 300ms;
    (void)group.transports[0]->connect(options);
  });
  auto options = group.options(1, 1);
  options.instances = {555, 101};
  const auto result = group.transports[1]->connect(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(result.error().message, HasSubstr("instance 0x64 now, expected 0x22b"));
}

TEST(Transport, groups_of_different_sizes_do_not_join) {
  TestGroup group(3);
  std::jthread one([&] {
    auto options = group.options(1, 1);
    options.addresses.pop_back();
    const auto result = group.transports[1]->connect(options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::invalid) << result.error().describe();
  });
  const auto result = group.transports[0]->connect(group.options(1, 0));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  EXPECT_THAT(
      result.error().message,
      HasSubstr("rank 1 of 2 takes this process for rank 0 in epoch 1; here it is rank 0 of 3"));
}

TEST(Transport, a_wrong_secret_or_job_is_refused_by_name) {
  TestGroup group(1);
  test::TemporaryFolder folder;
  for (const auto& [job, secret, reason] : {std::tuple{"test", "wrong", "secret differs"},
                                            std::tuple{"other", "a secret", "job id differs"}}) {
    HostTransportOptions options;
    options.address = folder.socket("other");
    options.job_id = job;
    options.secret = secret;
    auto other = HostTransport::listen(options).value();
    GroupOptions pair;
    pair.epoch = 1;
    pair.rank = 1;
    pair.addresses = {group.addresses[0], other->address()};
    const auto result = other->connect(pair);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::invalid);
    EXPECT_THAT(result.error().message, HasSubstr(reason));
    EXPECT_THAT(result.error().message, HasSubstr("rank 0"));
  }
}

TEST(Transport, without_a_secret_no_other_machine_is_reached) {
  test::TemporaryFolder folder;
  HostTransportOptions options;
  options.address = net::Address::parse("tcp:0.0.0.0:0").value();
  EXPECT_EQ(HostTransport::listen(options).error().kind, ErrorKind::invalid);
  options.address = folder.socket("a");
  auto transport = HostTransport::listen(options).value();
  GroupOptions group;
  group.epoch = 1;
  group.rank = 1;
  group.addresses = {net::Address::parse("tcp:10.0.0.1:1").value(), transport->address()};
  EXPECT_EQ(transport->connect(group).error().kind, ErrorKind::invalid);
}

TEST(Transport, impossible_groups_are_refused) {
  TestGroup group(1);
  for (const int rank : {-1, 1})
    EXPECT_EQ(group.transports[0]->connect(group.options(1, rank)).error().kind,
              ErrorKind::invalid);
  auto options = group.options(1, 0);
  options.instances = {1, 2};
  EXPECT_EQ(group.transports[0]->connect(options).error().kind, ErrorKind::invalid);
}

TEST(Transport, garbage_silence_and_half_handshakes_disturb_nobody) {
  TestGroup group(2);
  std::vector<net::Socket> strangers;
  const auto garbage = test::some_bytes(4096, {1});
  const auto hello = net::Handshake(handshake({.epoch = 1, .from = 1, .size = 2})).take_output();
  for (int i = 0; i < 40; ++i) {
    auto stranger = net::connect(group.addresses[0], in(10s)).value();
    if (i % 4 == 0) (void)stranger.send_all(garbage, in(1s));
    if (i % 4 == 1)
      (void)stranger.send_all(std::span(hello).first(static_cast<std::size_t>(i)), in(1s));
    if (i % 4 == 2) stranger.close();
    if (stranger) strangers.push_back(std::move(stranger));
  }
  group.run(1, [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); });
  EXPECT_GE(group.transports[0]->refused_connections(), 10u);
}

TEST(Transport, more_silent_strangers_than_handshakes_are_possible_hold_nobody_up) {
  TestGroup group(2);
  std::vector<net::Socket> strangers;
  for (int i = 0; i < 150; ++i)
    strangers.push_back(net::connect(group.addresses[0], in(10s)).value());
  const Stopwatch stopwatch;
  group.run(1, [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); });
  EXPECT_LT(stopwatch.ms(), 4000);  // Less than a handshake may take.
}

TEST(Transport, authenticated_peers_with_impossible_claims_are_refused) {
  TestGroup group(2);
  for (const Greeting& claim : {Greeting{.epoch = 1, .from = 2, .to = 0, .size = 2},
                                Greeting{.epoch = 1, .from = 1, .to = 5, .size = 2},
                                Greeting{.epoch = 1, .from = 1, .to = 0, .size = 1u << 31}}) {
    auto socket = net::connect(group.addresses[0], in(10s)).value();
    ASSERT_TRUE(net::run_handshake(socket, handshake(claim), in(10s)));
    std::vector<std::byte> answer(net::frame_header_bytes);
    ASSERT_TRUE(socket.receive_all(answer, in(10s)));
    EXPECT_EQ(net::decode_frame_header(
                  std::span<const std::byte>(answer).first<net::frame_header_bytes>(), 1000)
                  ->kind,
              2);
  }
  auto socket = net::connect(group.addresses[0], in(10s)).value();
  auto short_body = handshake({});
  short_body.body.pop_back();
  ASSERT_TRUE(net::run_handshake(socket, short_body, in(10s)));
  std::vector<std::byte> answer(net::frame_header_bytes);
  EXPECT_TRUE(socket.receive_all(answer, in(10s)));
  group.run(1, [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); });
}

TEST(Greeting, every_truncation_is_refused) {
  const Greeting greeting{1, 2, 3, 4, 5};
  const auto bytes = encode_greeting(greeting);
  EXPECT_EQ(decode_greeting(bytes).value(), greeting);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_greeting(std::span(bytes).first(length)));
}

}  // namespace
}  // namespace teson::comm
