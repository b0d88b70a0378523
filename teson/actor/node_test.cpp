#include "teson/actor/node.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "teson/actor/testing/mesh_test_support.h"
#include "teson/net/loop.h"

namespace teson::actor::detail {
namespace {

class Echo {
 public:
  std::string say(const std::string& text) { return text; }
  using endpoints = Endpoints<&Echo::say>;
};

net::Message message(Kind kind, std::string_view payload) {
  net::Message result{.kind = static_cast<std::uint16_t>(kind),
                      .payload = net::Buffer(payload.size())};
  if (!payload.empty()) std::memcpy(result.payload.room().data(), payload.data(), payload.size());
  return result;
}

net::Payload say_hello(std::uint64_t actor, std::uint64_t call) {
  net::PayloadWriter payload = call_payload(actor, call, endpoint_id<Echo, &Echo::say>());
  encode_arguments<std::tuple<std::string>>(payload, "hello");
  return std::move(payload).finish();
}

std::string call_of(std::uint64_t actor) {
  return std::string(say_hello(actor, 5).text());
}

/// Every kind of message, well formed.
std::vector<std::pair<Kind, std::string>> samples() {
  return {{Kind::call, call_of(1)},
          {Kind::reply, net::encode(ReplyHeader{1}) + net::encode(Result<std::string>("x"))},
          {Kind::spawn, net::encode(SpawnRequest{.actor = 7,
                                                 .class_hash = hash_text("Echo"),
                                                 .interface = 1,
                                                 .class_name = "Echo",
                                                 .name = "e"})},
          {Kind::stop, ""},
          {Kind::actor_failed, net::encode(ActorFailed{1, "name", {ErrorKind::failed, "why"}})},
          {Kind::undelivered, net::encode(Undelivered{1, {ErrorKind::overloaded, "full"}})},
          {Kind::inspect, net::encode(InspectRequest{.call = 3})},
          {Kind::inspect,
           net::encode(InspectRequest{.what = InspectRequest::What::begin_trace, .events = ~0ULL})},
          {Kind::inspect, net::encode(InspectRequest{.what = InspectRequest::What::end_trace})},
          {Kind::stop_actor, net::encode(StopActor{.actor = 7, .call = 3})},
          {Kind::admission, net::encode(Result<void>())}};
}

class NodeTest : public ::testing::Test {
 protected:
  NodeTest() : node(0, 0, 1, {}, {}) {
    const auto id = node.next_actor_id();
    node.host(id, "echo",
              []() -> Result<std::unique_ptr<Behaviour>> {
                return std::make_unique<TypedBehaviour<Echo>>(std::make_unique<Echo>());
              },
              {});
  }
  ~NodeTest() override { node.close(); }
  Node node;
};

TEST_F(NodeTest, survives_every_truncation_and_garbage) {
  for (const auto& [kind, whole] : samples()) {
    for (std::size_t size = 0; size < whole.size(); ++size)
      node.receive(9, message(kind, std::string_view(whole).substr(0, size)));
  }
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    for (auto [kind, damaged] : samples()) {
      for (int i = 0; i < 3 && !damaged.empty(); ++i)
        damaged[random() % damaged.size()] = static_cast<char>(random());
      // Spawning for good starts a thread each: one actor's number alone is kept.
      if (kind == Kind::spawn || kind == Kind::stop_actor) std::memset(damaged.data(), 7, 8);
      node.receive(9, message(kind, damaged));
    }
  }
  node.receive(9, message(static_cast<Kind>(77), "?"));
  // And it still works.
  auto pending =
      node.pending().begin({0}, std::chrono::steady_clock::now() + std::chrono::seconds(10));
  ASSERT_TRUE(node.send(0, say_hello(1, pending->id()), true));
  pending->wait();
  EXPECT_EQ(decode_reply<std::string>(*pending->take(0)), std::string("hello"));
}

TEST_F(NodeTest, refuses_calls_to_actors_and_procs_that_do_not_exist) {
  EXPECT_EQ(node.send(0, say_hello(99, 5), true).error().kind, ErrorKind::invalid);
  EXPECT_EQ(node.send(4, say_hello(1, 5), true).error().kind, ErrorKind::disconnected);
}

TEST(Undelivered, return_to_their_sender_once_and_what_cannot_return_is_dropped) {
  constexpr std::uint64_t peer = 9;
  std::vector<UndeliveredCast> told;
  Node node(0, 0, 1, {}, {.undelivered = [&](const UndeliveredCast& one) { told.push_back(one); }});
  testing::Told<std::pair<Kind, std::string>> heard;  // by the peer
  net::Loop loop("test-io");
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const net::ChannelOptions options{
      .handshake = {.job_id = "job", .purpose = "test", .secret = "s"}};
  const std::shared_ptr<net::Channel> here =
      net::Channel::adopt(loop, Fd(fds[0]), net::HandshakeRole::initiator, options);
  const auto there = net::Channel::adopt(loop, Fd(fds[1]), net::HandshakeRole::acceptor, options);
  here->start({});
  there->start({.on_message = [&](net::Message message) {
    heard.add({static_cast<Kind>(message.kind), std::string(message.payload.text())});
  }});
  node.routes().add(peer, {here, "the peer"});
  const std::string cast(say_hello(99, 0).text());
  // One that the peer could not take is told here, and not sent back.
  node.receive(peer, message(Kind::undelivered,
                             net::encode(Undelivered{5, {ErrorKind::overloaded, "full"}})));
  // One of the peer that cannot be taken here returns to it.
  node.receive(peer, message(Kind::call, cast));
  ASSERT_TRUE(node.routes().send(peer, Kind::ping, {}));
  const auto messages = heard.wait(2);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].first, Kind::undelivered);
  EXPECT_EQ(net::decode<Undelivered>(messages[0].second)->actor, 99U);
  EXPECT_EQ(messages[1].first, Kind::ping);
  // Where the way back is gone nobody is told.
  (void)node.routes().remove(peer, {});
  node.receive(peer, message(Kind::call, cast));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].proc, peer);
  EXPECT_EQ(told[0].where, "the peer");
  EXPECT_EQ(told[0].actor, 5U);
  EXPECT_EQ(told[0].error.message, "full");
  node.close();
}

TEST(Endpoints, hash_follows_names_and_types) {
  struct Same {
    std::string say(const std::string& text) { return text; }
    using endpoints = Endpoints<&Same::say>;
  };
  EXPECT_EQ(class_name<Echo>(), "Echo");
  EXPECT_EQ((method_name<&Echo::say>()), "say");
  EXPECT_NE(interface_hash<Echo>(), interface_hash<Same>()) << "the class's name differs";
}

TEST(PendingTable, forgets_calls_that_were_dropped_and_completes_those_of_a_dead_proc) {
  const auto table = std::make_shared<PendingTable>();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  {
    const auto dropped = table->begin({1}, soon);
    EXPECT_EQ(table->size(), 1U);
  }
  EXPECT_EQ(table->size(), 0U);
  const auto call = table->begin({1, 2}, soon);
  table->fail_proc(2, {ErrorKind::disconnected, "dead"});
  EXPECT_FALSE(call->done());
  table->reply(call->id(), 2, {});
  table->fail_proc(1, {ErrorKind::disconnected, "dead too"});
  call->wait();
  EXPECT_EQ(call->take(0)->error().message, "dead too");
  EXPECT_EQ(call->take(1)->error().message, "dead");
  table->close({ErrorKind::aborted, "over"});
  const auto late = table->begin({1}, soon);
  late->wait();
  EXPECT_EQ(late->take(0)->error().kind, ErrorKind::aborted);
}

}  // namespace
}  // namespace teson::actor::detail
