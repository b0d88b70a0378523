#include "teson/net/tls.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "teson/net/test_certificates.h"
#include "teson/net/test_channel.h"

namespace teson::net {
namespace {

using namespace std::chrono_literals;
using test::Authority;
using test::Heard;
using test::in;
using test::options;
using ::testing::HasSubstr;

class TlsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Tls> tls_of(const TlsFiles& files) {
    auto loaded = Tls::load(files);
    EXPECT_TRUE(loaded) << loaded.error().describe();
    return *loaded;
  }
  const test::TempFolder temporary;
  const std::filesystem::path folder = temporary.path();
};

/// A listening end and what it has heard.
struct Server {
  explicit Server(std::shared_ptr<Tls> tls, const char* address = "tcp:127.0.0.1:0") {
    auto with = options();
    with.tls = std::move(tls);
    with.handshake_deadline = 1s;
    auto made = ChannelListener::listen(loop, *Address::parse(address), {.channel = with},
                                        [this](std::unique_ptr<Channel> channel) {
                                          accepted = std::move(channel);
                                          accepted->start(heard.callbacks());
                                        });
    EXPECT_TRUE(made) << made.error().describe();
    listener = std::move(*made);
  }
  Result<std::unique_ptr<Channel>> connect(std::shared_ptr<Tls> tls) {
    auto with = options();
    with.tls = std::move(tls);
    return Channel::connect(loop, listener->address(), with, in(5s));
  }
  Heard heard;
  Loop loop;
  std::unique_ptr<Channel> accepted;
  std::unique_ptr<ChannelListener> listener;
};

TEST_F(TlsTest, messages_of_any_size_arrive_both_ways) {
  Authority authority(folder);
  Server server(tls_of(authority.member("server")));
  auto client = server.connect(tls_of(authority.member("client")));
  ASSERT_TRUE(client) << client.error().describe();
  Heard answers;
  (*client)->start(answers.callbacks());
  std::mt19937_64 random(1);
  std::vector<std::string> sent;
  for (int i = 0; i < 100; ++i) {
    sent.emplace_back(i == 50 ? 20'000'000 : random() % 100000, static_cast<char>(random()));
    ASSERT_TRUE((*client)->send(1, sent.back()));
  }
  ASSERT_TRUE(server.heard.wait_messages(sent.size()));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(server.heard.messages_[i].payload.text(), sent[i]);
    ASSERT_TRUE(server.accepted->send(2, sent[i]));
  }
  ASSERT_TRUE(answers.wait_messages(sent.size()));
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(answers.messages_[i].payload.text(), sent[i]);
  answers.messages_.clear();
  client->reset();
}

TEST_F(TlsTest, shared_memory_does_not_go_through_the_local_socket) {
  Authority authority(folder);
  Server server(tls_of(authority.member("server")));
  auto client = server.connect(tls_of(authority.member("client")));
  ASSERT_TRUE(client);
  const auto pool = SharedPool::make();
  auto block = pool->take(1 << 20);
  std::ranges::fill(block->writable(), std::byte{7});
  ASSERT_TRUE((*client)->send(1, Payload(std::move(block), 1 << 20)));
  ASSERT_TRUE(server.heard.wait_messages(1));
  EXPECT_EQ(server.heard.messages_[0].payload.text(), std::string(1 << 20, '\7'));
}

TEST_F(TlsTest, nothing_is_readable_on_the_wire) {
  // A relay between the two that keeps what passes.
  Authority authority(folder);
  Server server(tls_of(authority.member("server")));
  auto door = Listener::listen(*Address::parse("tcp:127.0.0.1:0")).value();
  std::string seen;
  std::jthread relay([&] {
    if (!wait_for(door.fd(), POLLIN, in(10s))) return;
    Socket left = std::move(**door.accept());
    Socket right = connect(server.listener->address(), in(5s)).value();
    std::vector<std::byte> bytes(65536);
    while (true) {
      pollfd both[2] = {{left.fd(), POLLIN, 0}, {right.fd(), POLLIN, 0}};
      if (::poll(both, 2, 10000) <= 0) return;
      for (const auto& [from, to] : {std::pair(&left, &right), std::pair(&right, &left)}) {
        const auto got = from->receive_some(bytes);
        if (!got) return;
        seen.append(reinterpret_cast<const char*>(bytes.data()), *got);
        if (!to->send_all(std::span(bytes).first(*got), in(5s))) return;
      }
    }
  });
  auto with = options();
  with.tls = tls_of(authority.member("client"));
  auto client = Channel::connect(server.loop, door.address(), with, in(5s));
  ASSERT_TRUE(client) << client.error().describe();
  const std::string secret(5000, 's');
  ASSERT_TRUE((*client)->send(1, secret));
  ASSERT_TRUE(server.heard.wait_messages(1));
  EXPECT_EQ(server.heard.messages_[0].payload.text(), secret);
  client->reset();
  relay.join();
  EXPECT_GT(seen.size(), secret.size());
  EXPECT_EQ(seen.find("ssss"), std::string::npos);
  EXPECT_EQ(seen.find("TSNH"), std::string::npos) << "nor our handshake";
}

TEST_F(TlsTest, a_peer_of_another_authority_is_refused) {
  Authority ours(folder);
  Authority theirs(folder, "another");
  Server server(tls_of(ours.member("server")));
  // One that does not know our authority hears why it does not go on.
  const auto stranger = server.connect(tls_of(theirs.member("stranger")));
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().message, HasSubstr("certificate verify failed"));
  // One that trusts ours without being signed by it is dropped by the server.
  TlsFiles mixed = theirs.member("mixed");
  mixed.authority = ours.member("x").authority;
  EXPECT_FALSE(server.connect(tls_of(mixed)));
  EXPECT_EQ(server.accepted, nullptr);
}

TEST_F(TlsTest, an_expired_certificate_is_refused_by_name) {
  Authority authority(folder);
  Server server(tls_of(authority.member("server", -3600)));
  const auto client = server.connect(tls_of(authority.member("client")));
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message, HasSubstr("certificate has expired"));
}

TEST_F(TlsTest, both_ends_must_speak_it) {
  Authority authority(folder);
  Server with(tls_of(authority.member("server")));
  EXPECT_FALSE(with.connect(nullptr));
  Server without(nullptr);
  const auto client = without.connect(tls_of(authority.member("client")));
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message, HasSubstr("speaks no TLS"));
}

TEST_F(TlsTest, the_jobs_secret_is_still_asked_for) {
  Authority authority(folder);
  Server server(tls_of(authority.member("server")));
  auto wrong = options("another secret");
  wrong.tls = tls_of(authority.member("client"));
  EXPECT_FALSE(Channel::connect(server.loop, server.listener->address(), wrong, in(5s)));
}

TEST_F(TlsTest, a_silent_peer_is_given_up_at_the_deadline) {
  Authority authority(folder);
  auto door = Listener::listen(*Address::parse("tcp:127.0.0.1:0")).value();
  const auto tls = tls_of(authority.member("client"));
  auto with = options();
  with.tls = tls;
  Loop loop;
  const auto client = Channel::connect(loop, door.address(), with, in(100ms));
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().kind, ErrorKind::timed_out);
}

TEST_F(TlsTest, the_end_of_a_peer_is_told_at_once_after_its_last_words) {
  Authority authority(folder);
  Server server(tls_of(authority.member("server")));
  {
    auto client = server.connect(tls_of(authority.member("client")));
    ASSERT_TRUE(client);
    ASSERT_TRUE((*client)->send(1, std::string(3'000'000, 'x')));
    ASSERT_TRUE((*client)->flush(in(5s)));
  }
  ASSERT_TRUE(server.heard.wait_closed());
  EXPECT_EQ(server.heard.closed_[0].kind, ErrorKind::disconnected);
  EXPECT_EQ(server.heard.messages_.size(), 1U);
}

TEST_F(TlsTest, lets_the_world_connect_without_a_secret) {
  Authority authority(folder);
  auto open = options("");
  Loop loop;
  const auto refused = ChannelListener::listen(loop, *Address::parse("tcp:0.0.0.0:0"),
                                               {.channel = open}, [](auto) {});
  EXPECT_FALSE(refused);
  open.tls = tls_of(authority.member("server"));
  EXPECT_TRUE(ChannelListener::listen(loop, *Address::parse("tcp:0.0.0.0:0"), {.channel = open},
                                      [](auto) {}));
}

TEST_F(TlsTest, files_that_do_not_do_are_named) {
  Authority authority(folder);
  const TlsFiles good = authority.member("good");
  const TlsFiles other = authority.member("other");
  const std::string damaged = (folder / "damaged").string();
  std::ofstream(damaged) << "-----BEGIN CERTIFICATE-----\nno\n";
  const auto message = [](const TlsFiles& files) {
    const auto loaded = Tls::load(files);
    return loaded ? std::string("loaded") : loaded.error().message;
  };
  EXPECT_EQ(message(good), "loaded");
  EXPECT_THAT(message({"/none", good.key, good.authority}), HasSubstr("/none: expected a cert"));
  EXPECT_THAT(message({damaged, good.key, good.authority}), HasSubstr(damaged));
  EXPECT_THAT(message({good.certificate, other.key, good.authority}),
              HasSubstr(other.key + ": expected the key of " + good.certificate));
  EXPECT_THAT(message({good.certificate, good.key, damaged}), HasSubstr(damaged));
}

TEST_F(TlsTest, is_taken_whole_from_the_environment_or_not_at_all) {
  Authority authority(folder);
  const TlsFiles files = authority.member("member");
  for (const char* name : {"TESON_TLS_CERT", "TESON_TLS_KEY", "TESON_TLS_CA"})
    ::unsetenv(name);
  EXPECT_EQ(Tls::from_environment().value(), nullptr);
  ::setenv("TESON_TLS_CERT", files.certificate.c_str(), 1);
  const auto half = Tls::from_environment();
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, HasSubstr("TESON_TLS_CERT is set, but not TESON_TLS_KEY"));
  ::setenv("TESON_TLS_KEY", files.key.c_str(), 1);
  ::setenv("TESON_TLS_CA", files.authority.c_str(), 1);
  EXPECT_NE(Tls::from_environment().value(), nullptr);
}

}  // namespace
}  // namespace teson::net
