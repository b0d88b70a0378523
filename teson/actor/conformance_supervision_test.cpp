// Who hears of a failure, and what goes on beside it.
#include <algorithm>
#include <optional>
#include <set>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

/// One process that owns others: what it does about a death of theirs, and what the root hears.
class NestTest : public MeshTest {
 protected:
  Result<std::vector<std::int64_t>> hatch(std::uint64_t count, Reaction on_death) {
    mesh.emplace(start({{"replica", 1}}));
    mesh->on_failure([this](const ProcExit& exit) { exits.add(exit); });
    nest.emplace(mesh->spawn<Nest>("nest").at(0));
    return nest->call_one<&Nest::hatch>(count, on_death).wait();
  }

  Exits exits;
  std::optional<ActorMesh<Nest>> nest;
  std::optional<ProcMesh> mesh;
};

TEST_F(NestTest, a_grandchild_that_dies_is_absorbed_by_its_owner) {
  const auto pids = hatch(2, Reaction::replace);
  ASSERT_TRUE(pids) << pids.error().describe();
  ASSERT_EQ(nest->call_one<&Nest::add>(1, 5).wait(), 5);
  ASSERT_EQ(::kill(static_cast<pid_t>(pids->at(1)), SIGKILL), 0);
  // Its replacement begins anew; while it is being replaced, calls to it fail.
  Result<int> sum = 5;
  for (int tries = 0; tries < 200 && sum != 1; ++tries) {
    sum = nest->call_one<&Nest::add>(1, 1).wait();
    std::this_thread::sleep_for(5ms);
    if (sum && *sum > 1) sum = 5;
  }
  EXPECT_EQ(sum, 1);
  EXPECT_TRUE(exits.wait(0).empty()) << "the root has not heard of it";
}

TEST_F(NestTest, what_an_owner_gives_up_climbs_to_the_root_with_the_whole_chain) {
  const auto pids = hatch(2, Reaction::give_up);
  ASSERT_TRUE(pids) << pids.error().describe();
  ASSERT_EQ(nest->call_one<&Nest::add>(1, 5).wait(), 5);
  ASSERT_EQ(::kill(static_cast<pid_t>(pids->at(1)), SIGKILL), 0);
  const auto exit = exits.wait(1)[0];
  EXPECT_EQ(exit.exit_code, 9);
  const std::string chain = exit.describe("workers");
  for (const char* part :
       {"rank 0", "mesh 'workers'", "exit code 9", "giving up: rank 1", "mesh 'nest'", "SIGKILL"}) {
    EXPECT_TRUE(contains(chain, part)) << part << " is missing in\n" << chain;
  }
  const auto begin = std::chrono::steady_clock::now();
  while (runs(static_cast<pid_t>(pids->at(0)))) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, 5s) << "its other child must go with it";
    std::this_thread::sleep_for(1ms);
  }
}

TEST_F(NestTest, an_owner_that_fails_to_handle_a_failure_tells_of_both) {
  const auto pids = hatch(1, Reaction::fail);
  ASSERT_TRUE(pids) << pids.error().describe();
  ASSERT_EQ(nest->call_one<&Nest::add>(0, 5).wait(), 5);
  ASSERT_EQ(::kill(static_cast<pid_t>(pids->at(0)), SIGKILL), 0);
  const auto exit = exits.wait(1)[0];
  EXPECT_EQ(exit.exit_code, unhandled_exit_code);
  const std::string chain = exit.describe("workers");
  for (const char* part :
       {"mesh 'workers'", "exit code 114", "mesh 'nest'", "SIGKILL", "at a loss"})
    EXPECT_TRUE(contains(chain, part)) << part << " is missing in\n" << chain;
}

TEST_F(MeshTest, what_nobody_has_dealt_with_reaches_the_root_once) {
  // A death without a handler, …
  auto mesh = start({{"replica", 2}});
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  EXPECT_TRUE(contains(unhandled.wait(1)[0], "rank 1"));
  // … and an actor's.
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_TRUE(worker.cast<&Worker::throws>());
  const auto all = unhandled.wait(2);
  for (const char* part : {"actor 'worker'", "rank 0", "thrown on purpose"})
    EXPECT_TRUE(contains(all[1], part)) << part << " is missing in\n" << all[1];
  mesh.stop();
  EXPECT_EQ(unhandled.wait(2).size(), 2U);
}

TEST_F(NestTest, what_an_owner_in_a_child_has_not_dealt_with_ends_it_and_climbs) {
  const auto pids = hatch(1, Reaction::nothing);
  ASSERT_TRUE(pids) << pids.error().describe();
  ASSERT_EQ(nest->call_one<&Nest::add>(0, 5).wait(), 5);
  ASSERT_EQ(::kill(static_cast<pid_t>(pids->at(0)), SIGKILL), 0);
  const auto exit = exits.wait(1)[0];
  EXPECT_EQ(exit.exit_code, unhandled_exit_code);
  const std::string chain = exit.describe("workers");
  for (const char* part : {"rank 0", "mesh 'workers'", "mesh 'nest'", "SIGKILL", "nobody"})
    EXPECT_TRUE(contains(chain, part)) << part << " is missing in\n" << chain;
}

TEST_F(MeshTest, n_dead_ranks_are_told_n_times_each_by_its_rank) {
  Exits exits;
  auto mesh = start({{"replica", 4}});
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  for (const std::size_t rank : {3, 1, 0})
    ASSERT_TRUE(mesh.kill(rank, SIGKILL));
  std::set<std::size_t> ranks;
  for (const auto& exit : exits.wait(3))
    ranks.insert(exit.rank);
  EXPECT_EQ(ranks, (std::set<std::size_t>{0, 1, 3}));
  mesh.stop();
  EXPECT_EQ(exits.wait(3).size(), 3U);
}

TEST_F(MeshTest, supervision_speaks_with_no_call_pending_and_to_a_handler_that_comes_late) {
  Exits exits;
  auto mesh = start({{"replica", 1}});
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  ASSERT_TRUE(mesh.kill(0, SIGKILL));
  while (!mesh.exit_of(0))
    std::this_thread::sleep_for(1ms);
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  EXPECT_EQ(exits.wait(1)[0].signal, SIGKILL);
}

TEST_F(MeshTest, the_owner_hears_of_a_failure_and_whoever_holds_a_reference_gets_errors) {
  Exits owner;
  Exits other;
  auto mesh = start({{"replica", 1}});
  auto elsewhere = start({{"replica", 1}});
  mesh.on_failure([&](const ProcExit& exit) { owner.add(exit); });
  elsewhere.on_failure([&](const ProcExit& exit) { other.add(exit); });
  const auto workers = mesh.spawn<Worker>("worker", "");
  const auto holder = system.actor(workers.ref(0));
  ASSERT_TRUE(holder.call<&Worker::add>(1).wait());
  auto pending = holder.call<&Worker::nap>(10'000);
  ASSERT_TRUE(mesh.kill(0, SIGKILL));
  const auto error = pending.wait().error();
  EXPECT_EQ(error.kind, ErrorKind::disconnected);
  EXPECT_TRUE(contains(error.message, "SIGKILL")) << error.message;
  EXPECT_EQ(holder.call<&Worker::add>(1).wait().error(), error);
  EXPECT_EQ(holder.cast<&Worker::add>(1).error(), error);
  EXPECT_EQ(owner.wait(1).size(), 1U);
  EXPECT_TRUE(other.wait(0).empty());
}

TEST_F(MeshTest, disjoint_slices_of_a_partly_dead_mesh_stay_usable) {
  Exits exits;
  auto mesh = start({{"replica", 3}, {"shard", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ASSERT_TRUE(mesh.kill(3, SIGKILL));
  exits.wait(1);
  const auto dead_row = workers.at("replica", 1);
  ASSERT_TRUE(dead_row);
  for (const std::uint64_t row : {0, 2}) {
    for (const auto& reply : workers.at("replica", row)->call<&Worker::add>(1).wait())
      EXPECT_TRUE(reply) << reply.error().describe();
  }
  const auto replies = dead_row->call<&Worker::add>(1).wait();
  EXPECT_TRUE(replies[0]) << "the rank beside it lives";
  EXPECT_TRUE(contains(replies[1].error().message, "rank 3"));
  EXPECT_FALSE(dead_row->cast<&Worker::add>(1));
  const auto column = workers.at("shard", 1);
  EXPECT_FALSE(column->reduce<&Worker::add>(Sum{}, 1)) << "strict";
  EXPECT_TRUE(workers.at("shard", 0)->reduce<&Worker::add>(Sum{}, 1));
}

TEST_F(MeshTest, a_death_leaves_neighbours_and_host_as_they_were) {
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(workers.call<&Worker::add>(1).wait()[0]);
  ASSERT_TRUE(workers.at(1).cast<&Worker::throws>()) << "an actor fails …";
  auto again = mesh.spawn<Worker>("again", "");
  EXPECT_EQ(again.at(1).call_one<&Worker::add>(1).wait(), 1) << "… its process does not";
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  EXPECT_FALSE(workers.at(1).call_one<&Worker::add>(1).wait());
  EXPECT_EQ(workers.at(0).call_one<&Worker::add>(1).wait(), 2);
  mesh.stop();
  auto next = start({{"replica", 2}});
  EXPECT_EQ(next.spawn<Worker>("worker", "").reduce<&Worker::add>(Sum{}, 3)->value, 6);
}

}  // namespace
}  // namespace teson::actor
