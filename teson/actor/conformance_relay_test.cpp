// Large calls to many processes of a host, which go there once.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "teson/actor/announced.h"
#include "teson/actor/testing/mesh_test_support.h"
#include "teson/base/random.h"

namespace teson::actor {
namespace {

using namespace testing;

constexpr const char* secret = "a secret of the job";
constexpr std::size_t large =
    4000;  ///< bytes; smaller than what is lent, so that both ways are met

/// Two hosts, three processes on each.
class RelayTest : public MeshTest {
 protected:
  RelayTest() : MeshTest({.relay_bytes_min = large}) {
    const auto address =
        system.listen({.address = *net::Address::parse("tcp:127.0.0.1:0"), .secret = secret});
    EXPECT_TRUE(address) << address.error().describe();
    for (std::size_t i = 1; i <= agents.size(); ++i) {
      agents[i - 1] = std::make_unique<Outsider>(
          std::vector<std::string>{"host", address->to_string(), secret});
      EXPECT_TRUE(system.wait_hosts(i, in(10s)));
    }
  }
  ProcMesh start_on_hosts(ProcOptions with) {
    const auto hosts = system.wait_hosts(agents.size(), in(10s));
    auto mesh = hosts->spawn_procs({{"proc", 3}}, std::move(with));
    if (!mesh) throw std::runtime_error(mesh.error().describe());
    EXPECT_TRUE(mesh->wait_attached(in(10s)));
    return std::move(*mesh);
  }
  ProcMesh start_on_hosts() { return start_on_hosts(options()); }
  /// Calls that went to the agents.
  std::vector<std::uint64_t> relayed() {
    std::vector<std::uint64_t> counts;
    for (const auto& host : system.inspect().hosts)
      counts.push_back(host.relayed);
    return counts;
  }
  using Counts = std::vector<std::uint64_t>;
  /// As a worker has noted it, and where the message stood.
  static std::string noted(const std::string& note, std::size_t rank, std::size_t size) {
    return note + " at " + std::to_string(rank) + " of " + std::to_string(size);
  }

  std::array<std::unique_ptr<Outsider>, 2> agents;
};

TEST_F(RelayTest, a_large_call_goes_to_each_host_once_and_reaches_each_member_at_its_place) {
  auto mesh = start_on_hosts();
  const auto workers = mesh.spawn<Worker>("worker", "");
  for (const std::size_t bytes : {large, std::size_t{5} << 20}) {
    std::vector<std::byte> content(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      content[i] = static_cast<std::byte>(i * 7 + i / 256);
    const Counts before = relayed();
    for (const auto& reply : workers.call<&Worker::echo>(std::span(content)).wait())
      ASSERT_EQ(reply, content);
    EXPECT_EQ(relayed(), (Counts{before[0] + 1, before[1] + 1}));
  }
  const std::vector<std::byte> small(large / 2);
  const std::vector<std::byte> content(large);
  const Counts before = relayed();
  for (const auto& reply : workers.call<&Worker::echo>(std::span(small)).wait())
    ASSERT_EQ(reply, small);
  // One process of each host.
  for (const auto& reply : workers.at("proc", 1)->call<&Worker::echo>(std::span(content)).wait())
    ASSERT_EQ(reply, content);
  EXPECT_EQ(relayed(), before);
  // A slice: two of each.
  const auto four = workers.slice("proc", 0, 2);
  std::vector<double> values(large);
  for (std::size_t i = 0; i < large; ++i)
    values[i] = static_cast<double>(i);
  const std::vector<int> delays(large);
  const auto given = four->call<&Worker::give>(values, delays).wait();
  EXPECT_EQ(given, (std::vector<Result<double>>{0.0, 1.0, 3.0, 4.0}));
  EXPECT_EQ(relayed(), (Counts{before[0] + 1, before[1] + 1}));
}

TEST_F(RelayTest, messages_of_one_sender_arrive_in_the_order_sent_whichever_way_they_go) {
  auto mesh = start_on_hosts();
  const auto workers = mesh.spawn<Worker>("worker", "").flatten("rank").value();
  const Counts before = relayed();
  std::vector<std::vector<std::string>> expected(6);
  CounterRandom random({1});
  for (int i = 0; i < 600; ++i) {
    std::string note = std::to_string(i);
    if (random.below(3) == 0) note.resize(large + random.below(400'000), '.');
    const std::size_t from = random.below(6);
    const std::size_t size = 1 + random.below(6 - from);
    const auto some = workers.slice("rank", from, from + size).value();
    ASSERT_TRUE(some.cast<&Worker::note>(note));
    for (std::size_t rank = from; rank < from + size; ++rank)
      expected[rank].push_back(noted(note, rank - from, size));
    // The children's mailboxes hold 8 messages.
    if (i % 7 == 6) {
      for (const auto& reply : workers.call<&Worker::add>(1).wait())
        ASSERT_TRUE(reply) << reply.error().describe();
    }
  }
  for (std::size_t rank = 0; rank < 6; ++rank)
    EXPECT_EQ(workers.at(rank).call_one<&Worker::notes>().wait(), expected[rank]) << rank;
  // More than may be under way at a time: what has arrived is forgotten.
  EXPECT_GT(relayed()[0], before[0] + 40);
  EXPECT_GT(relayed()[1], before[1] + 40);
}

TEST_F(RelayTest, a_dead_interior_node_takes_its_own_members_alone) {
  auto mesh = start_on_hosts();
  const auto workers = mesh.spawn<Worker>("worker", "");
  std::array<std::vector<std::string>, 3> expected;
  std::size_t dead = 0;
  for (int i = 0; i < 200; ++i) {
    std::string note = std::to_string(i);
    note.resize(large, '.');
    for (std::size_t rank = 3; rank < 6; ++rank)
      expected[rank - 3].push_back(noted(note, rank, 6));
    if (i == 100) ::kill(agents[0]->pid(), SIGKILL);
    const auto replies = workers.within(10s).call<&Worker::note>(note).wait();
    for (std::size_t rank = 3; rank < 6; ++rank)
      ASSERT_TRUE(replies[rank]) << replies[rank].error().describe();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(replies[rank] || replies[rank].error().kind == ErrorKind::disconnected)
          << replies[rank].error().describe();
      dead += replies[rank] ? 0 : 1;
    }
  }
  EXPECT_GT(dead, 3 * 50U);
  const auto left = workers.at("host", 1).value();
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(left.at(rank).call_one<&Worker::notes>().wait(), expected[rank]);
}

TEST_F(RelayTest, a_member_that_dies_or_is_replaced_leaves_the_others_as_they_were) {
  auto mesh = start_on_hosts();
  mesh.supervise({});
  const auto workers = mesh.spawn<Worker>("worker", "").flatten("rank").value();
  const std::string note(large, '.');
  const std::array<std::size_t, 5> others{0, 2, 3, 4, 5};
  for (int round = 0; round < 5; ++round) {
    ::kill(mesh.pid(1), SIGKILL);
    const auto replies = workers.within(10s).call<&Worker::note>(note).wait();
    for (const std::size_t rank : others)
      EXPECT_TRUE(replies[rank]) << replies[rank].error().describe();
    for (int i = 0; i < 200 && !workers.within(10s).at(1).call_one<&Worker::add>(1).wait(); ++i)
      std::this_thread::sleep_for(10ms);
    ASSERT_TRUE(mesh.wait_attached(in(10s)));
    for (const auto& reply : workers.within(10s).call<&Worker::note>(note).wait())
      EXPECT_TRUE(reply) << reply.error().describe();
  }
  for (const std::size_t rank : others)
    EXPECT_EQ(workers.at(rank).call_one<&Worker::notes>().wait()->size(), 10U);
}

TEST_F(RelayTest, what_no_mailbox_takes_returns_and_leaves_room_for_more) {
  auto mesh = start_on_hosts();
  const auto workers = mesh.spawn<Worker>("worker", "");
  const std::string note(large, '.');
  // 8 fit into a mailbox; 50 are more than may be under way at a time.
  auto nap = workers.call<&Worker::nap>(1000);
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(workers.cast<&Worker::note>(note));
  (void)nap.wait();
  std::size_t taken = 0;
  for (const auto& reply : workers.call<&Worker::notes>().wait()) {
    EXPECT_LE(reply->size(), 8U);
    taken += reply->size();
  }
  for (const auto& one : returned.wait(6 * 50 - taken))
    EXPECT_EQ(one.error.kind, ErrorKind::overloaded);
  const Counts before = relayed();
  for (const auto& reply : workers.call<&Worker::note>(note).wait())
    EXPECT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(relayed(), (Counts{before[0] + 1, before[1] + 1}));
}

TEST_F(RelayTest, a_stopped_actor_refuses_what_was_announced_to_it) {
  auto mesh = start_on_hosts();
  const auto workers = mesh.spawn<Worker>("worker", "");
  const std::string note(large, '.');
  ASSERT_TRUE(workers.call<&Worker::note>(note).wait().at(0));
  ASSERT_TRUE(workers.stop());
  for (const auto& reply : workers.call<&Worker::note>(note).wait())
    EXPECT_EQ(reply.error().kind, ErrorKind::disconnected);
}

/// What stands between agent and process, a launcher's script, may close or change its descriptors,
/// or keep them.
TEST_F(RelayTest, processes_that_their_agent_cannot_reach_get_all_from_the_owner_in_order) {
  for (const char* harm : {"exec 3<&-", "exec 3</dev/null", "sleep 60 & exec 3<&-"}) {
    auto wrapped = options();
    wrapped.program = "/bin/sh";
    wrapped.arguments = [harm](const ProcPlace& place) {
      const std::string script = place.rank == 2 ? harm : "true";
      return std::vector<std::string>{"-c", script + "; exec " TESON_ACTOR_TEST_CHILD " serve"};
    };
    auto mesh = start_on_hosts(wrapped);
    const auto workers = mesh.spawn<Worker>("worker", "").flatten("rank").value();
    std::array<std::vector<std::string>, 6> expected;
    for (int i = 0; i < 40; ++i) {
      std::string note = std::to_string(i);
      note.resize(i % 2 == 0 ? large : 10, '.');
      for (std::size_t rank = 0; rank < 6; ++rank)
        expected[rank].push_back(noted(note, rank, 6));
      for (const auto& reply : workers.within(10s).call<&Worker::note>(note).wait())
        ASSERT_TRUE(reply) << reply.error().describe();
    }
    for (std::size_t rank = 0; rank < 6; ++rank)
      EXPECT_EQ(workers.at(rank).call_one<&Worker::notes>().wait(), expected[rank]) << harm;
  }
}

net::Buffer buffer(const std::string& text) {
  return net::Buffer(net::Payload(text));
}

TEST(AnnouncedCallsTest, takes_each_call_once_wherever_it_comes_first) {
  detail::AnnouncedCalls calls;
  auto one = buffer("one"), two = buffer("two"), again = buffer("one"), four = buffer("four");
  // Announced first.
  ASSERT_FALSE(calls.announce({.number = 1, .bytes = 3})->has_value());
  EXPECT_EQ(calls.arrive(1, one)->bytes, 3U);
  EXPECT_EQ(one.text(), "one");
  EXPECT_FALSE(calls.arrive(1, again));
  // Come first.
  EXPECT_FALSE(calls.arrive(2, two));
  EXPECT_FALSE(calls.arrive(4, four));
  const auto early = calls.announce({.number = 2});
  ASSERT_TRUE(early && *early);
  EXPECT_EQ((*early)->text(), "two");
  EXPECT_FALSE(calls.arrive(2, again));
  // Not for this process after all: what comes later has not waited for it.
  ASSERT_FALSE(calls.announce({.number = 5})->has_value());
  EXPECT_EQ(calls.announce({.number = 4}).error().kind, ErrorKind::invalid);
  EXPECT_EQ(calls.announce({.number = 5}).error().kind, ErrorKind::invalid);
  // It has no place any more.
  auto five = buffer("five");
  calls.withdraw(5);
  EXPECT_FALSE(calls.arrive(5, five));
}

TEST(AnnouncedCallsTest, keeps_so_many_that_nobody_has_announced) {
  detail::AnnouncedCalls calls;
  for (std::uint64_t number = 1; number <= detail::AnnouncedCalls::early_max + 10; ++number) {
    auto call = buffer("call");
    EXPECT_FALSE(calls.arrive(number, call));
  }
  EXPECT_TRUE(calls.announce({.number = detail::AnnouncedCalls::early_max})->has_value());
  EXPECT_FALSE(calls.announce({.number = detail::AnnouncedCalls::early_max + 1})->has_value());
}

}  // namespace
}  // namespace teson::actor
