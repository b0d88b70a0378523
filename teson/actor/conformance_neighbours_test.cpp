// Messages between the processes of a System, of which neither owns the other.
#include <string>
#include <vector>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

class NeighbourTest : public MeshTest {
 protected:
  NeighbourTest()
      : MeshTest({.on_actor_failure = [this](const ActorFailure& one) { failures.add(one); }}) {}

  ProcMesh workers_mesh = start({{"replica", 2}});
  ProcMesh others_mesh = start({{"replica", 2}});
  const ActorMesh<Worker> workers = workers_mesh.spawn<Worker>("worker", "");
  const ActorMesh<Neighbour> others = others_mesh.spawn<Neighbour>("neighbour");
};

TEST_F(NeighbourTest, an_actor_reaches_those_of_other_meshes_and_of_its_own) {
  const auto worker = workers.ref(1);
  EXPECT_EQ(others.at(0).call_one<&Neighbour::add>(worker, 5).wait(), 5);
  EXPECT_EQ(others.at(1).call_one<&Neighbour::add>(worker, 2).wait(), 7);
  const auto here = workers_mesh.spawn<Neighbour>("beside");
  EXPECT_EQ(here.at(0).call_one<&Neighbour::add>(worker, 1).wait(), 8) << "of its own mesh";
  EXPECT_EQ(here.at(1).call_one<&Neighbour::add>(worker, 1).wait(), 9) << "of its own process";
  EXPECT_EQ(workers.at(1).call_one<&Worker::add>(1).wait(), 10) << "the owner reaches the same one";
}

TEST_F(NeighbourTest, messages_of_one_actor_arrive_in_order_calls_and_casts_alike) {
  std::vector<std::string> expected;
  for (int round = 0; round < 100; ++round) {
    // Fewer than its mailbox takes.
    std::vector<std::string> notes;
    for (int i = 0; i < 5; ++i) {
      notes.push_back(std::to_string(5 * round + i));
      expected.push_back(notes.back() + " at 0 of 2");
    }
    ASSERT_TRUE(others.at(0).call_one<&Neighbour::tell>(workers.ref(0), notes).wait());
    ASSERT_EQ(others.at(0).call_one<&Neighbour::add>(workers.ref(0), 1).wait(), round + 1);
    ASSERT_EQ(workers.at(0).call_one<&Worker::notes>().wait(), expected) << "all before the call";
  }
}

TEST_F(NeighbourTest, large_payloads_pass_unchanged) {
  for (const std::uint64_t bytes : {0U, 1000U, 300'000U, 9'000'000U})
    EXPECT_EQ(others.at(0).call_one<&Neighbour::echo>(workers.ref(0), bytes).wait(), true) << bytes;
}

TEST_F(NeighbourTest, errors_of_the_actor_reach_who_asked_and_nobody_else) {
  const auto stopped = workers_mesh.spawn<Worker>("stopped", "");
  const auto reference = stopped.ref(0);
  ASSERT_TRUE(stopped.stop());
  const auto reply = others.at(0).call_one<&Neighbour::add>(reference, 1).wait();
  ASSERT_FALSE(reply);
  EXPECT_TRUE(contains(reply.error().message, "stopped by its owner")) << reply.error().message;
  const ActorRef<Worker> nowhere{999, 1};
  const auto lost = others.at(0).call_one<&Neighbour::add>(nowhere, 1).wait();
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().kind, ErrorKind::disconnected);
  EXPECT_TRUE(contains(lost.error().message, "process 999 of this System is gone"))
      << lost.error().message;
  EXPECT_EQ(others.at(0).call_one<&Neighbour::add>(workers.ref(0), 3).wait(), 3);
}

TEST_F(NeighbourTest,
       a_death_ends_the_calls_of_who_holds_a_reference_and_is_told_to_the_owner_alone) {
  Exits exits;
  Exits of_others;
  workers_mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  others_mesh.on_failure([&](const ProcExit& exit) { of_others.add(exit); });
  const auto worker = workers.ref(1);
  ASSERT_EQ(others.at(0).call_one<&Neighbour::add>(worker, 1).wait(), 1);
  auto waits = others.at(0).call_one<&Neighbour::nap>(worker, 60'000);
  std::this_thread::sleep_for(100ms);
  const auto killed = std::chrono::steady_clock::now();
  ::kill(workers_mesh.pid(1), SIGKILL);
  const auto told = [&](Result<void> reply) {
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, ErrorKind::disconnected);
    EXPECT_TRUE(contains(reply.error().message, "was ended by signal 9 (SIGKILL)"))
        << reply.error().message;
  };
  told(waits.wait());
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 2s);
  const auto later = others.at(0).call_one<&Neighbour::add>(worker, 1).wait();
  ASSERT_FALSE(later);
  EXPECT_TRUE(contains(later.error().message, "was ended by signal 9")) << later.error().message;
  // Who holds the reference lives, and reaches the others.
  EXPECT_EQ(others.at(0).call_one<&Neighbour::add>(workers.ref(0), 4).wait(), 4);
  ASSERT_TRUE(workers_mesh.replace(1));
  EXPECT_EQ(others.at(0).call_one<&Neighbour::add>(workers.ref(1), 6).wait(), 6)
      << "a reference to the replacement";
  EXPECT_EQ(exits.wait(1).size(), 1U);
  EXPECT_TRUE(of_others.wait(0).empty());
}

TEST_F(NeighbourTest, a_mesh_that_is_stopped_ends_the_calls_of_who_holds_a_reference) {
  auto waits = others.at(0).call_one<&Neighbour::nap>(workers.ref(0), 500);
  auto queued = others.at(1).call_one<&Neighbour::add>(workers.ref(0), 1);
  workers_mesh.stop();
  // What the actor was at is finished first, if it had begun; the rest is refused, by the actor as
  // its process ends, or by the owner after that.
  for (const auto& reply : {waits.wait().transform([] { return 0; }), queued.wait()})
    EXPECT_TRUE(reply || reply.error().kind == ErrorKind::aborted ||
                reply.error().kind == ErrorKind::disconnected);
  const auto later = others.at(0).call_one<&Neighbour::add>(workers.ref(0), 1).wait();
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().kind, ErrorKind::disconnected);
}

TEST_F(NeighbourTest, a_cast_without_a_taker_returns_to_its_sender_which_lives) {
  const auto stopped = workers_mesh.spawn<Worker>("stopped", "");
  const auto reference = stopped.ref(0);
  ASSERT_TRUE(stopped.stop());
  ASSERT_TRUE(
      others.at(0).call_one<&Neighbour::tell>(reference, std::vector<std::string>{"?"}).wait());
  // What it is told goes before the answer to what it asks next; a child writes it to its log.
  EXPECT_EQ(others.at(0).call_one<&Neighbour::add>(workers.ref(0), 1).wait(), 1);
  EXPECT_TRUE(failures.wait(0).empty());
  EXPECT_TRUE(returned.wait(0).empty()) << "it is not the owner's";
}

TEST_F(NeighbourTest, what_is_asked_of_a_process_that_has_not_attached_waits_for_it) {
  ASSERT_TRUE(system.listen({.address = *net::Address::parse("tcp:127.0.0.1:0"), .secret = "s"}));
  auto guests = system.expect_procs({{"guest", 1}}, options());
  ASSERT_TRUE(guests);
  const auto guest = guests->spawn<Worker>("worker", "");
  auto early = others.at(0).call_one<&Neighbour::add>(guest.ref(0), 8);
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(early.done());
  const Outsider attaching({"serve"}, guests->ticket(0));
  EXPECT_EQ(early.wait(), 8);
  guests->stop();
}

}  // namespace
}  // namespace teson::actor
