#include "teson/net/channel.h"

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

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
using test::TempFolder;

TEST(Loop, runs_posts_in_order_and_timers_after_their_delay) {
  Loop loop;
  std::vector<int> order;
  std::promise<void> done;
  const auto begin = std::chrono::steady_clock::now();
  Timer late = loop.after(20ms, [&] {
    order.push_back(3);
    done.set_value();
  });
  Timer never = loop.after(5ms, [&] { order.push_back(99); });
  loop.post([&] { order.push_back(1); });
  loop.post([&] {
    order.push_back(2);
    never.cancel();
  });
  done.get_future().wait();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 20ms);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(Loop, tells_when_a_descriptor_is_readable) {
  Loop loop;
  const Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::promise<void> seen;
  Watch watch;
  loop.run([&] {
    watch = loop.watch(event.get());
    watch.when_readable([&] { seen.set_value(); });
  });
  auto future = seen.get_future();
  EXPECT_EQ(future.wait_for(10ms), std::future_status::timeout);
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)), 8);
  EXPECT_EQ(future.wait_for(10s), std::future_status::ready);
  loop.run([&] { watch.cancel(); });
}

TEST(Loop, lets_waiters_go_when_it_stops) {
  Loop loop;
  std::atomic<bool> go_on{true};
  std::atomic<int> ran{0};
  std::thread caller([&] {
    while (go_on)
      loop.run([&] { ++ran; });
  });
  while (ran < 100)
    std::this_thread::yield();
  loop.stop();
  const int then = ran;
  while (ran < then + 100)
    std::this_thread::yield();
  go_on = false;
  caller.join();
}

TEST(Channel, carries_messages_in_order_both_ways) {
  Loop loop;
  Pair pair(loop);
  // Sent before the handshake: waits for it.
  ASSERT_TRUE(pair.left->send(7, std::string("early"), 3));
  pair.start();
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(pair.left->send(8, std::to_string(i)));
  ASSERT_TRUE(pair.right->send(9, std::string()));
  ASSERT_TRUE(pair.right_heard.wait_messages(1001));
  ASSERT_TRUE(pair.left_heard.wait_messages(1));
  EXPECT_TRUE(pair.right_heard.open_);
  EXPECT_EQ(pair.right->peer_body().size(), 2U);
  EXPECT_EQ(pair.right_heard.messages_[0].kind, 7);
  EXPECT_EQ(pair.right_heard.messages_[0].epoch, 3U);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(pair.right_heard.messages_[static_cast<std::size_t>(i) + 1].payload.text(),
              std::to_string(i));
  EXPECT_EQ(pair.left_heard.messages_[0].payload.size(), 0U);
}

TEST(Channel, keeps_each_senders_order_with_many_senders_and_large_messages) {
  Loop loop;
  Loop other("other");
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  Heard heard;
  auto left = Channel::adopt(loop, Fd(fds[0]), HandshakeRole::initiator, options());
  auto right = Channel::adopt(other, Fd(fds[1]), HandshakeRole::acceptor, options());
  left->start({});
  right->start(heard.callbacks());
  std::vector<std::thread> threads;
  constexpr int count = 200;
  for (std::uint16_t kind = 0; kind < 4; ++kind) {
    threads.emplace_back([&, kind] {
      for (int i = 0; i < count; ++i) {
        std::string text = std::to_string(i);
        text.resize(i % 50 == 0 ? 3'000'000 : 10, 'x');
        ASSERT_TRUE(left->send(kind, std::move(text)));
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_TRUE(left->flush(in(20s)));
  ASSERT_TRUE(heard.wait_messages(4 * count));
  std::array<int, 4> next{};
  for (const auto& message : heard.messages_)
    EXPECT_EQ(std::atoi(message.payload.text().data()), next[message.kind]++);
}

TEST(Channel, delivers_the_last_words_and_then_the_end_once) {
  Loop loop;
  Pair pair(loop);
  pair.start();
  ASSERT_TRUE(pair.left->send(1, std::string(1 << 20, 'a')));
  ASSERT_TRUE(pair.left->flush(in(10s)));
  pair.left.reset();
  ASSERT_TRUE(pair.right_heard.wait_closed());
  EXPECT_EQ(pair.right_heard.messages_.size(), 1U);
  EXPECT_EQ(pair.right_heard.closed_[0].kind, ErrorKind::disconnected);
  EXPECT_TRUE(pair.left_heard.closed_.empty()) << "a dropped channel calls nothing";
  const auto sent = pair.right->send(1, std::string("x"));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::disconnected);
  pair.right->close();
  loop.run([] {});
  EXPECT_EQ(pair.right_heard.closed_.size(), 1U);
}

TEST(Channel, close_reports_aborted_once) {
  Loop loop;
  Pair pair(loop);
  pair.start();
  ASSERT_TRUE(pair.left_heard.wait([](Heard& heard) { return heard.open_; }));
  pair.left->close();
  pair.left->close();
  EXPECT_EQ(pair.left->send(1, std::string()).error().kind, ErrorKind::aborted);
  ASSERT_TRUE(pair.left_heard.wait_closed());
  EXPECT_EQ(pair.left_heard.closed_[0].kind, ErrorKind::aborted);
}

TEST(Channel, bounds_what_waits_to_be_sent) {
  Loop loop;
  auto small = options();
  small.outgoing_bytes_max = 1 << 20;
  small.payload_bytes_max = 1 << 19;
  Pair pair(loop, small);
  pair.left->start(pair.left_heard.callbacks());  // the right side never reads
  Result<void> sent;
  int count = 0;
  while ((sent = pair.left->send(1, std::string(1 << 16, 'x'))))
    ASSERT_LT(++count, 1000);
  EXPECT_EQ(sent.error().kind, ErrorKind::overloaded);
  EXPECT_LE(pair.left->outgoing_bytes(), small.outgoing_bytes_max);
  EXPECT_EQ(pair.left->send(1, std::string(1 << 20, 'x')).error().kind, ErrorKind::invalid);
  EXPECT_EQ(pair.left->flush(in(10ms)).error().kind, ErrorKind::timed_out);
}

TEST(Channel, tells_how_far_a_message_has_come_that_is_still_on_its_way) {
  Heard heard;
  Loop loop;
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  auto channel = Channel::adopt(loop, Fd(fds[0]), HandshakeRole::acceptor, options());
  channel->start(heard.callbacks());
  Socket raw{Fd(fds[1]), Address()};
  ASSERT_TRUE(run_handshake(raw, options().handshake, in(5s)));
  ASSERT_TRUE(channel->send(1, std::string(4 << 20, 'x')));
  const auto full = channel->progress();
  EXPECT_EQ(full.sent, (4U << 20) + frame_header_bytes);
  EXPECT_LT(full.taken, full.sent);
  EXPECT_EQ(full.received, 0U);
  std::vector<std::byte> some(3 << 20);
  ASSERT_TRUE(raw.receive_all(some, in(5s)));
  EXPECT_GT(channel->progress().taken, full.taken);
  some.resize((1 << 20) + frame_header_bytes);
  ASSERT_TRUE(raw.receive_all(some, in(5s)));
  EXPECT_EQ(channel->progress().taken, full.sent);
  // A part of a header: of no message yet.
  ASSERT_TRUE(raw.send_all(std::span(some).first(10), in(5s)));
  for (int i = 0; i < 1000 && channel->progress().received == 0; ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(channel->progress().received, 10U);
  EXPECT_TRUE(heard.messages_.empty());
}

TEST(Channel, refuses_a_peer_with_another_secret_and_a_silent_one) {
  Loop loop;
  Pair pair(loop, options("one"), options("two"));
  pair.start();
  ASSERT_TRUE(pair.left_heard.wait_closed());
  ASSERT_TRUE(pair.right_heard.wait_closed());
  EXPECT_FALSE(pair.left_heard.open_);
  EXPECT_FALSE(pair.right_heard.open_);

  auto quick = options();
  quick.handshake_deadline = 30ms;
  Pair half(loop, quick);
  half.left->start(half.left_heard.callbacks());
  ASSERT_TRUE(half.left_heard.wait_closed());
  EXPECT_EQ(half.left_heard.closed_[0].kind, ErrorKind::timed_out);
}

TEST(Channel, closes_on_damaged_frames_and_huge_claims) {
  for (const bool huge : {true, false}) {
    Loop loop;
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    Heard heard;
    auto channel = Channel::adopt(loop, Fd(fds[0]), HandshakeRole::acceptor, options());
    channel->start(heard.callbacks());
    Socket raw{Fd(fds[1]), Address()};
    auto handshake = options().handshake;
    ASSERT_TRUE(run_handshake(raw, handshake, in(5s)));
    const std::string text = "payload";
    FrameHeader header{.kind = 1,
                       .sequence = 1,
                       .payload_bytes = huge ? 1ULL << 62 : text.size(),
                       .payload_checksum = 12345};
    ASSERT_TRUE(raw.send_all(encode_frame_header(header), in(5s)));
    if (!huge) {
      ASSERT_TRUE(raw.send_all(std::as_bytes(std::span(text)), in(5s)));
    }
    ASSERT_TRUE(heard.wait_closed());
    EXPECT_EQ(heard.closed_[0].kind, ErrorKind::invalid);
    EXPECT_TRUE(heard.messages_.empty());
  }
}

TEST(Channel, may_be_dropped_inside_its_own_callback) {
  Loop loop;
  Pair pair(loop);
  std::promise<void> dropped;
  pair.left->start({});
  pair.right->start({.on_message = [&](const Message&) {
    pair.right.reset();
    dropped.set_value();
  }});
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(pair.left->send(1, std::string("x")));
  EXPECT_EQ(dropped.get_future().wait_for(10s), std::future_status::ready);
}

TEST(ChannelListener, accepts_members_of_the_job_over_unix_and_tcp) {
  const TempFolder folder;
  for (const Address& at : {folder.socket(), *Address::parse("tcp:127.0.0.1:0")}) {
    Loop loop;
    Heard server_heard;
    std::unique_ptr<Channel> accepted;
    std::promise<void> ready;
    auto listener = ChannelListener::listen(loop, at, {.channel = options()},
                                            [&](std::unique_ptr<Channel> channel) {
                                              accepted = std::move(channel);
                                              accepted->start(server_heard.callbacks());
                                              ready.set_value();
                                            });
    ASSERT_TRUE(listener) << listener.error().describe();
    auto wrong = Channel::connect(loop, (*listener)->address(), options("wrong"), in(5s));
    EXPECT_FALSE(wrong);
    auto client = Channel::connect(loop, (*listener)->address(), options(), in(5s));
    ASSERT_TRUE(client) << client.error().describe();
    EXPECT_EQ((*client)->peer_body().size(), 2U);
    Heard client_heard;
    (*client)->start(client_heard.callbacks());
    ASSERT_TRUE((*client)->send(1, std::string("hello")));
    ASSERT_TRUE(server_heard.wait_messages(1));
    ready.get_future().wait();
    ASSERT_TRUE(accepted->send(2, std::string("answer")));
    ASSERT_TRUE(client_heard.wait_messages(1));
  }
}

TEST(ChannelListener, lets_members_in_past_many_silent_strangers) {
  const TempFolder folder;
  Loop loop;
  std::promise<void> ready;
  auto listener = ChannelListener::listen(
      loop, folder.socket(), {.channel = options(), .unauthenticated_max = 4},
      [&](const std::unique_ptr<Channel>&) { ready.set_value(); });
  ASSERT_TRUE(listener);
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i)
    strangers.push_back(*connect(folder.socket(), in(5s)));
  auto client = Channel::connect(loop, folder.socket(), options(), in(5s));
  ASSERT_TRUE(client) << client.error().describe();
  EXPECT_EQ(ready.get_future().wait_for(10s), std::future_status::ready);
  // The oldest strangers were dropped to make room.
  std::vector<std::byte> rest(4096);
  const auto end = [&] {
    while (true) {
      auto got = strangers[0].receive_some(rest);
      if (!got) return got.error().kind;
      if (*got == 0) (void)wait_for(strangers[0].fd(), 1, in(5s));
    }
  }();
  EXPECT_EQ(end, ErrorKind::disconnected);
}

}  // namespace
}  // namespace teson::net
