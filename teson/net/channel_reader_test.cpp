// A thread that reads a channel in the loop's stead.
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "teson/net/channel.h"

namespace teson::net {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t early = 1;
constexpr std::uint16_t ordinary = 2;

Instant in(Duration delay) {
  return std::chrono::steady_clock::now() + delay;
}

class ChannelReaderTest : public ::testing::Test {
 protected:
  ChannelReaderTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const ChannelOptions options{.handshake = {.job_id = "job", .purpose = "test", .secret = "s"}};
    reading = Channel::adopt(loop, Fd(fds[0]), HandshakeRole::initiator, options);
    sending = Channel::adopt(loop, Fd(fds[1]), HandshakeRole::acceptor, options);
    std::promise<void> opened;
    reading->start(callbacks(opened));
    sending->start({});
    opened.get_future().wait();
    loop.run([] {});  // until it waits for messages
  }
  ChannelCallbacks callbacks(std::promise<void>& opened) {
    return {.on_open = [&opened] { opened.set_value(); },
            .on_message =
                [this](Message message) {
                  note(message, false);
                  while (held)
                    std::this_thread::sleep_for(1ms);
                },
            .on_early_message =
                [this](Message& message) {
                  if (message.kind != early) return false;
                  note(message, true);
                  return true;
                },
            .on_closed =
                [this](const Error& error) {
                  std::lock_guard lock(mutex);
                  heard += "end ";
                  closed = error.kind;
                }};
  }
  void note(const Message& message, bool was_early) {
    std::lock_guard lock(mutex);
    heard += std::string(was_early ? "early " : "") + std::string(message.payload.text()) + " ";
    EXPECT_EQ(loop.on_loop_thread(), !was_early);
  }
  std::string so_far() {
    std::lock_guard lock(mutex);
    return heard;
  }
  bool heard_all(const std::string& expected) {
    for (int i = 0; i < 2000 && so_far() != expected; ++i)
      std::this_thread::sleep_for(1ms);
    return so_far() == expected;
  }
  void send(std::uint16_t kind, const std::string& text) { ASSERT_TRUE(sending->send(kind, text)); }

  // What callbacks use outlives the channels.
  const Fd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> held{false};  ///< on_message does not return
  std::mutex mutex;
  std::string heard;
  std::optional<ErrorKind> closed;
  Loop loop;
  std::unique_ptr<Channel> reading;
  std::unique_ptr<Channel> sending;
};

TEST_F(ChannelReaderTest, takes_messages_on_its_own_thread_and_gives_the_channel_back) {
  auto reader = std::async(std::launch::async, [&] {
    reading->reader().read_until(in(10s), [&] { return so_far() == "early a "; }, wake.get());
  });
  std::this_thread::sleep_for(50ms);
  send(early, "a");
  reader.get();
  send(early, "b");
  EXPECT_TRUE(heard_all("early a b ")) << so_far();
}

TEST_F(ChannelReaderTest, what_it_does_not_take_reaches_the_loop_in_order_and_holds_back_the_rest) {
  auto reader = std::async(std::launch::async, [&] {
    reading->reader().read_until(
        in(10s), [&] { return so_far().find('d') != std::string::npos; }, wake.get());
  });
  std::this_thread::sleep_for(50ms);
  // The loop must not get to "b" before "c" and "d" are there.
  std::promise<void> go;
  loop.post([future = go.get_future().share()] { future.wait(); });
  send(early, "a");
  send(ordinary, "b");
  send(early, "c");
  send(early, "d");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(so_far(), "early a ");
  go.set_value();
  EXPECT_TRUE(heard_all("early a b c d ")) << so_far();
  ::eventfd_write(wake.get(), 1);
  reader.get();
}

TEST_F(ChannelReaderTest, ends_at_the_deadline_and_when_woken) {
  const auto began = std::chrono::steady_clock::now();
  reading->reader().read_until(in(50ms), [] { return false; }, wake.get());
  EXPECT_GE(std::chrono::steady_clock::now() - began, 50ms);
  std::atomic<bool> enough{false};
  auto reader = std::async(std::launch::async, [&] {
    reading->reader().read_until(in(10s), [&] { return enough.load(); }, wake.get());
    return std::chrono::steady_clock::now();
  });
  std::this_thread::sleep_for(50ms);
  enough = true;
  ::eventfd_write(wake.get(), 1);
  EXPECT_LT(reader.get() - began, 5s);
  send(ordinary, "after");
  EXPECT_TRUE(heard_all("after "));
}

TEST_F(ChannelReaderTest, the_peers_end_comes_after_its_last_words) {
  auto reader = std::async(std::launch::async, [&] {
    reading->reader().read_until(in(10s), [] { return false; }, wake.get());
  });
  std::this_thread::sleep_for(50ms);
  send(early, "a");
  send(ordinary, "b");
  ASSERT_TRUE(sending->flush(in(5s)));
  sending.reset();
  EXPECT_TRUE(heard_all("early a b end ")) << so_far();
  EXPECT_EQ(closed, ErrorKind::disconnected);
  reader.get();
}

TEST_F(ChannelReaderTest, dropping_the_channel_ends_the_reading) {
  auto reader = std::async(std::launch::async, [reader = reading->reader(), this] {
    reader.read_until(in(10s), [] { return false; }, wake.get());
    return std::chrono::steady_clock::now();
  });
  std::this_thread::sleep_for(50ms);
  const auto began = std::chrono::steady_clock::now();
  reading.reset();
  EXPECT_LT(reader.get() - began, 5s);
  EXPECT_EQ(so_far(), "");
}

TEST_F(ChannelReaderTest, an_early_message_does_not_overtake_one_that_is_being_told) {
  held = true;
  std::atomic<bool> enough{false};
  std::jthread reader([&] {
    while (!enough)
      reading->reader().read_until(in(1ms), [&] { return enough.load(); }, wake.get());
  });
  // The reader hands it over, or the loop reads it itself: then all that follows waits anyway.
  send(ordinary, "one");
  EXPECT_TRUE(heard_all("one "));
  send(early, "two");
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(so_far(), "one ");
  held = false;
  std::string text;
  for (int i = 0; i < 2000 && text.find("two") == std::string::npos; ++i) {
    std::this_thread::sleep_for(1ms);
    text = so_far();
  }
  enough = true;
  EXPECT_TRUE(text == "one two " || text == "one early two ") << text;
}

TEST_F(ChannelReaderTest, many_threads_and_the_loop_take_turns_and_lose_nothing) {
  constexpr int messages = 20000;
  std::atomic<bool> enough{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      const Fd own(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      while (!enough)
        reading->reader().read_until(in(1ms), [&] { return enough.load(); }, own.get());
    });
  }
  std::string expected;
  for (int i = 0; i < messages; ++i) {
    send(i % 3 == 0 ? ordinary : early, std::to_string(i));
    expected += std::to_string(i) + " ";
  }
  const auto plain = [&] {
    std::string text = so_far();
    for (auto at = text.find("early "); at != std::string::npos; at = text.find("early ", at))
      text.erase(at, 6);
    return text;
  };
  for (int i = 0; i < 1000 && plain().size() < expected.size(); ++i)
    std::this_thread::sleep_for(10ms);
  enough = true;
  for (auto& reader : readers)
    reader.join();
  EXPECT_TRUE(plain() == expected);  // too much to be shown
}

}  // namespace
}  // namespace teson::net
