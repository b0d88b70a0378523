// Channels that outlive their connections.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "teson/net/redial.h"
#include "teson/net/socket.h"
#include "teson/net/test_certificates.h"
#include "teson/net/test_channel.h"

namespace teson::net {
namespace {

using namespace std::chrono_literals;
using test::Heard;

ChannelOptions resumable(std::size_t outgoing_bytes_max = std::size_t{256} << 20) {
  auto options = test::options();
  options.resumable = true;
  options.outgoing_bytes_max = outgoing_bytes_max;
  return options;
}

/// What carries bytes between two sockets, and can be cut: then what is on its way is lost.
class Line {
 public:
  Line() {
    int left[2];
    int right[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, left), 0);
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, right), 0);
    ends_ = {Fd(left[0]), Fd(right[0])};
    inner_ = {Fd(left[1]), Fd(right[1])};
    thread_ = std::thread([this] { carry(); });
  }
  ~Line() { cut(); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  Fd take(int end) { return std::move(ends_.at(static_cast<std::size_t>(end))); }
  void cut() {
    ::eventfd_write(stop_.get(), 1);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void carry() {
    std::vector<char> bytes(7000);
    while (true) {
      pollfd waits[3] = {
          {inner_[0].get(), POLLIN, 0}, {inner_[1].get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(waits, 3, -1) < 0) continue;
      if (waits[2].revents != 0) break;
      bool ended = false;
      for (int from = 0; from < 2; ++from) {
        if (waits[from].revents == 0) continue;
        const auto got =
            ::recv(inner_.at(static_cast<std::size_t>(from)).get(), bytes.data(), bytes.size(), 0);
        // One that does not read is waited for until the line is cut.
        for (ssize_t sent = 0; sent < got;) {
          pollfd room[2] = {{inner_.at(static_cast<std::size_t>(1 - from)).get(), POLLOUT, 0},
                            {stop_.get(), POLLIN, 0}};
          if (::poll(room, 2, -1) < 0) continue;
          if (room[1].revents != 0) break;
          const auto put =
              ::send(inner_.at(static_cast<std::size_t>(1 - from)).get(), bytes.data() + sent,
                     static_cast<std::size_t>(got - sent), MSG_NOSIGNAL | MSG_DONTWAIT);
          if (put < 0 && errno != EAGAIN) break;
          sent += std::max<ssize_t>(put, 0);
        }
        ended = ended || got <= 0;
      }
      if (ended) break;
    }
    inner_ = {};
  }

  Fd stop_{::eventfd(0, EFD_CLOEXEC)};
  std::array<Fd, 2> ends_;
  std::array<Fd, 2> inner_;
  std::thread thread_;
};

/// Two channels over a line.
class ResumeTest : public ::testing::Test {
 protected:
  explicit ResumeTest(bool encrypted = false) {
    if (encrypted) {
      test::Authority authority(folder_.path());
      tls_ = Tls::load(authority.member("both")).value();
    }
    line_ = std::make_unique<Line>();
    auto [left, right] = open(*line_);
    left_ = std::move(left);
    right_ = std::move(right);
    left_->start(callbacks(left_heard_, left_cuts_, left_resumed_));
    right_->start(callbacks(right_heard_, right_cuts_, right_resumed_));
  }

  static ChannelCallbacks callbacks(Heard& heard, std::atomic<int>& cuts,
                                    std::atomic<int>& resumed) {
    auto all = heard.callbacks();
    all.on_cut = [&](const Error&) { ++cuts; };
    all.on_resumed = [&] { ++resumed; };
    return all;
  }
  using Both = std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>;
  Both open(Line& line) {
    // As if it were one of TCP, which TLS encrypts.
    const Address peer = tls_ ? *Address::parse("tcp:127.0.0.1:1") : Address();
    auto options = resumable();
    options.tls = tls_;
    auto other = std::async(std::launch::async, [&] {
      return Channel::open(loop_, Socket(line.take(1), peer), HandshakeRole::acceptor, options,
                           test::in(10s));
    });
    auto one = Channel::open(loop_, Socket(line.take(0), peer), HandshakeRole::initiator, options,
                             test::in(10s));
    auto two = other.get();
    EXPECT_TRUE(one && two);
    return {std::move(*one), std::move(*two)};
  }
  void resume() {
    auto next = std::make_unique<Line>();
    auto [left, right] = open(*next);
    left_->resume(std::move(left));
    right_->resume(std::move(right));
    line_ = std::move(next);
  }
  static bool wait_for(const std::atomic<int>& count, int value) {
    for (const Instant until = test::in(10s);
         count < value && std::chrono::steady_clock::now() < until;)
      std::this_thread::sleep_for(1ms);
    return count >= value;
  }

  /// Messages both ways, over as many cuts.
  void send_over_cuts(int messages, int cuts);

  test::TempFolder folder_;
  std::shared_ptr<Tls> tls_;
  Loop loop_{"test-io"};
  std::unique_ptr<Line> line_;
  Heard left_heard_;
  Heard right_heard_;
  std::atomic<int> left_cuts_{0};
  std::atomic<int> right_cuts_{0};
  std::atomic<int> left_resumed_{0};
  std::atomic<int> right_resumed_{0};
  std::unique_ptr<Channel> left_;
  std::unique_ptr<Channel> right_;
};

TEST_F(ResumeTest, what_is_sent_while_a_channel_is_cut_comes_after_it_is_resumed) {
  ASSERT_TRUE(left_->send(1, "before"));
  ASSERT_TRUE(right_heard_.wait_messages(1));
  line_->cut();
  ASSERT_TRUE(wait_for(left_cuts_, 1) && wait_for(right_cuts_, 1));
  ASSERT_TRUE(left_->send(2, "meanwhile"));
  ASSERT_TRUE(right_->send(3, "the other way"));
  resume();
  ASSERT_TRUE(right_heard_.wait_messages(2));
  ASSERT_TRUE(left_heard_.wait_messages(1));
  EXPECT_EQ(right_heard_.messages_[1].payload.text(), "meanwhile");
  EXPECT_EQ(right_heard_.messages_[1].sequence, 2U);
  EXPECT_EQ(left_heard_.messages_[0].payload.text(), "the other way");
  EXPECT_TRUE(wait_for(left_resumed_, 1) && wait_for(right_resumed_, 1));
  EXPECT_TRUE(left_heard_.closed_.empty() && right_heard_.closed_.empty());
}

TEST_F(ResumeTest, one_that_has_not_noticed_the_cut_is_resumed_too) {
  ASSERT_TRUE(left_->send(1, "one"));
  resume();  // over a second line, while the first one stands
  ASSERT_TRUE(left_->send(1, "two"));
  ASSERT_TRUE(right_heard_.wait_messages(2));
  EXPECT_EQ(right_heard_.messages_[0].payload.text(), "one");
  EXPECT_EQ(right_heard_.messages_[1].payload.text(), "two");
}

TEST_F(ResumeTest, who_closes_says_so) {
  right_->close();
  ASSERT_TRUE(left_heard_.wait_closed()) << "at once, not as a cut";
  EXPECT_EQ(left_heard_.closed_[0].kind, ErrorKind::disconnected);
  EXPECT_EQ(left_cuts_, 0);
}

TEST_F(ResumeTest, a_channel_that_is_given_up_says_why_it_was_cut) {
  line_->cut();
  ASSERT_TRUE(wait_for(left_cuts_, 1));
  left_->close();
  ASSERT_TRUE(left_heard_.wait_closed());
  EXPECT_EQ(left_heard_.closed_[0].kind, ErrorKind::disconnected);
  EXPECT_FALSE(left_->send(1, "late"));
}

TEST_F(ResumeTest, a_peer_that_refuses_to_resume_is_no_longer_waited_for) {
  line_->cut();
  ASSERT_TRUE(wait_for(left_cuts_, 1));
  Line next;
  auto [left, right] = open(next);
  left_->resume(std::move(left));
  right.reset();
  ASSERT_TRUE(left_heard_.wait_closed());
  EXPECT_EQ(left_heard_.closed_[0].kind, ErrorKind::disconnected);
}

TEST_F(ResumeTest, one_that_takes_it_for_a_new_channel_is_not_believed) {
  for (int i = 1; i <= 8; ++i) {
    Line next;
    auto [left, right] = open(next);
    // Sent before it can have heard of what is to be resumed.
    ASSERT_TRUE(right->send(1, "who is there?"));
    left_->resume(std::move(left));
    if (i < 8) {
      ASSERT_TRUE(wait_for(left_cuts_, i)) << i;
    } else {
      EXPECT_TRUE(left_heard_.wait_closed()) << "after so many it is not the line's fault";
    }
  }
  EXPECT_TRUE(left_heard_.messages_.empty());
}

void ResumeTest::send_over_cuts(int messages, int cuts) {
  const auto text = [](int i) {
    // Now and then one that no buffer on the way holds.
    const std::size_t size = i % 500 == 7 ? 900'000 : static_cast<std::size_t>(i) * 37 % 3000;
    return std::to_string(i) + ":" + std::string(size, static_cast<char>('a' + i % 26));
  };
  const auto send_all = [&](Channel& channel) {
    for (int i = 0; i < messages;) {
      const auto sent = channel.send(5, text(i));
      ASSERT_TRUE(sent || sent.error().kind == ErrorKind::overloaded) << sent.error().describe();
      if (sent) ++i;
      if (i % 100 == 0) std::this_thread::sleep_for(1ms);
    }
  };
  std::thread one([&] { send_all(*left_); });
  std::thread two([&] { send_all(*right_); });
  std::mt19937 random(7);
  for (int i = 0; i < cuts; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    if (random() % 3 != 0) line_->cut();
    resume();
  }
  one.join();
  two.join();
  for (Heard* heard : {&left_heard_, &right_heard_}) {
    const auto count = static_cast<std::size_t>(messages);
    ASSERT_TRUE(heard->wait([&](Heard& now) { return now.messages_.size() >= count; }, 30s))
        << heard->messages_.size();
    ASSERT_EQ(heard->messages_.size(), count);
    for (int i = 0; i < messages; ++i)
      ASSERT_EQ(heard->messages_[static_cast<std::size_t>(i)].payload.text(), text(i)) << i;
    EXPECT_TRUE(heard->closed_.empty());
  }
}

TEST_F(ResumeTest, nothing_is_lost_repeated_or_reordered_over_many_cuts) {
  send_over_cuts(4000, 60);
}

class ResumeOverTlsTest : public ResumeTest {
 protected:
  ResumeOverTlsTest() : ResumeTest(true) {}
};

TEST_F(ResumeOverTlsTest, nothing_is_lost_repeated_or_reordered_over_many_cuts) {
  send_over_cuts(1000, 20);
}

TEST_F(ResumeTest, a_flush_waits_for_the_next_connection) {
  line_->cut();
  ASSERT_TRUE(wait_for(left_cuts_, 1));
  EXPECT_EQ(left_->flush(test::in(20ms)).error().kind, ErrorKind::timed_out)
      << "with nothing to send";
  ASSERT_TRUE(left_->send(1, "last words"));
  resume();
  ASSERT_TRUE(left_->flush(test::in(10s)));
  ASSERT_TRUE(right_heard_.wait_messages(1));
}

TEST(Resume, a_peer_that_never_says_what_it_has_received_does_not_fill_memory) {
  Loop loop("test-io");
  Line line;
  Socket peer(line.take(1), Address());
  auto reading = std::async(std::launch::async, [&] {
    auto handshake = test::options().handshake;
    handshake.role = HandshakeRole::acceptor;
    EXPECT_TRUE(run_handshake(peer, handshake, test::in(10s)));
    std::vector<std::byte> bytes(100'000);
    while (net::wait_for(peer.fd(), POLLIN, test::in(10s)) && peer.receive_some(bytes)) {
    }
  });
  constexpr std::size_t size = 100'000;
  auto channel = Channel::open(loop, line.take(0), HandshakeRole::initiator, resumable(10 * size),
                               test::in(10s));
  ASSERT_TRUE(channel);
  Result<void> sent;
  int count = 0;
  for (; count < 100 && sent; ++count) {
    sent = (*channel)->send(1, std::string(size, 'x'));
    ASSERT_TRUE((*channel)->flush(test::in(10s)));
  }
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::overloaded);
  EXPECT_NEAR(count, 12, 1);
  channel->reset();
  reading.get();
}

TEST(Redial, tries_until_somebody_listens_and_ends_at_once_where_nobody_does) {
  Loop loop("test-io");
  const auto dial = [&](const Address& address, Duration limit) {
    std::promise<Result<std::unique_ptr<Channel>>> told;
    const Redial redial(
        loop, Dial{address, resumable()}, test::in(limit),
        [&](Result<std::unique_ptr<Channel>> channel) { told.set_value(std::move(channel)); });
    return told.get_future().get();
  };
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(dial(*Address::parse("tcp:127.0.0.1:1"), 10s));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s) << "refused at once";
  std::unique_ptr<Channel> accepted;
  const auto listener = ChannelListener::listen(
      loop, *Address::parse("tcp:127.0.0.1:0"), {.channel = resumable()},
      [&](std::unique_ptr<Channel> channel) { accepted = std::move(channel); });
  ASSERT_TRUE(listener);
  EXPECT_TRUE(dial((*listener)->address(), 10s));
  loop.run([&] { accepted.reset(); });
}

TEST(Redial, that_is_given_up_does_not_hold_anybody_up) {
  Loop loop("test-io");
  // One that takes connections and says nothing.
  auto silent = Listener::listen(*Address::parse("tcp:127.0.0.1:0"));
  ASSERT_TRUE(silent);
  const auto began = std::chrono::steady_clock::now();
  {
    const Redial redial(loop, Dial{silent->address(), resumable()}, test::in(60s),
                        [](auto) { FAIL(); });
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

}  // namespace
}  // namespace teson::net
