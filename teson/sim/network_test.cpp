#include "teson/sim/network.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace teson::sim {
namespace {

using namespace std::chrono_literals;

class NetworkTest : public testing::Test {
 protected:
  /// Two descriptors of processes 1 (on host 0) and 2 (on host 1), and a network between them.
  void connect(NetworkOptions options = {.slow_share = 0}) {
    network = std::make_unique<Network>(random, options);
    int first[2];
    int second[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, first), 0);
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, second), 0);
    one = Fd(first[0]);
    other = Fd(second[0]);
    network->join({.fd = Fd(first[1]), .process = 1, .host = 0},
                  {.fd = Fd(second[1]), .process = 2, .host = 1});
  }

  static void write(const Fd& fd, const std::string& text) {
    ASSERT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  /// What is there; "EOF" at the end.
  static std::string read(const Fd& fd) {
    char bytes[256];
    const ssize_t got = ::recv(fd.get(), bytes, sizeof(bytes), 0);
    return got < 0 ? "" : got == 0 ? "EOF" : std::string(bytes, static_cast<std::size_t>(got));
  }

  CounterRandom random{{1}};
  std::unique_ptr<Network> network;
  Fd one;
  Fd other;
  Instant start{1h};
};

TEST_F(NetworkTest, what_is_written_arrives_in_order_after_its_delay) {
  connect();
  write(one, "abc");
  network->step(start);
  write(one, "def");
  network->step(start);
  const Instant due = network->next_due();
  EXPECT_GE(due, start);
  EXPECT_LE(due, start + 200us);
  network->step(start + 200us);
  EXPECT_EQ(read(other), "abcdef");
  EXPECT_EQ(network->next_due(), Instant::max());
}

TEST_F(NetworkTest, a_closed_end_is_seen_after_what_it_has_sent) {
  connect();
  write(one, "last words");
  one.reset();
  network->step(start);
  network->step(start + 1ms);
  EXPECT_EQ(read(other), "last words");
  EXPECT_EQ(read(other), "EOF");
  EXPECT_EQ(network->connections(), 0U);
}

TEST_F(NetworkTest, the_end_of_a_process_is_the_end_of_what_it_holds) {
  connect();
  write(one, "last words");
  network->process_ended(1);
  network->step(start);
  network->step(start + 1ms);
  EXPECT_EQ(read(other), "last words");
  EXPECT_EQ(read(other), "EOF");
}

TEST_F(NetworkTest, what_is_held_arrives_when_the_partition_heals) {
  connect();
  network->hold(0, 1, start + 5s);
  write(one, "late");
  network->step(start);
  EXPECT_EQ(network->next_due(), start + 5s);
  network->step(start + 4999ms);
  EXPECT_EQ(read(other), "");
  network->step(start + 5s);
  EXPECT_EQ(read(other), "late");
}

TEST_F(NetworkTest, a_cut_is_seen_by_both_ends_and_a_silence_by_neither) {
  connect();
  network->silence(1);
  write(one, "lost");
  network->step(start);
  network->step(start + 1h);
  EXPECT_EQ(read(other), "");
  network->cut(0, 1);
  EXPECT_EQ(read(one), "EOF");
  EXPECT_EQ(read(other), "EOF");
}

TEST_F(NetworkTest, damage_loses_repeats_reorders_and_changes) {
  connect({.delay_max = 0ns, .slow_share = 0, .damage_share = 0.5});
  int same = 0, lost = 0, repeated = 0, changed = 0;
  for (int i = 0; i < 400; ++i) {
    write(one, "x");
    network->step(start);
    const std::string got = read(other);
    ++(got == "x" ? same : got.empty() ? lost : got == "xx" ? repeated : changed);
  }
  EXPECT_GT(same, 150);
  EXPECT_GT(lost, 20);
  EXPECT_GT(repeated, 20);
  EXPECT_GT(changed, 20);
}

}  // namespace
}  // namespace teson::sim
