// Whole meshes of real processes.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

TEST_F(MeshTest, calls_every_rank_and_tells_each_its_place) {
  auto mesh = start({{"replica", 2}, {"shard", 2}});
  auto workers = mesh.spawn<Worker>("worker", "hello");
  const auto places = workers.call<&Worker::place>().wait();
  ASSERT_EQ(places.size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(places[rank]) << places[rank].error().describe();
    EXPECT_EQ(places[rank]->rank, rank);
    EXPECT_EQ(places[rank]->size, 4U);
    EXPECT_EQ(places[rank]->replica, rank / 2);
    EXPECT_EQ(places[rank]->pid, mesh.pid(rank));
    EXPECT_EQ(places[rank]->group, places[rank]->pid) << "a process group of its own";
    EXPECT_EQ(places[rank]->descriptors, 2U) << "its log, twice, and no other file of the parent";
  }
  EXPECT_EQ(workers.at(1).call_one<&Worker::greeting>().wait(), std::string("hello"));
  const auto second = workers.at("replica", 1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->ranks(), (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(second->call<&Worker::add>(5).wait().size(), 2U);
  EXPECT_EQ(workers.at(0).call_one<&Worker::add>(1).wait(), 1);
  EXPECT_EQ(second->at(0).call_one<&Worker::add>(1).wait(), 6);
}

/// Looks like Worker from outside, with one endpoint of another type.
namespace other_build {
class Worker {
 public:
  virtual ~Worker() = default;
  virtual double add(double value) = 0;
  using endpoints = Endpoints<&Worker::add>;
  using arguments = std::tuple<std::string>;
};
class Unknown {
 public:
  virtual ~Unknown() = default;
  virtual int anything() = 0;
  using endpoints = Endpoints<&Unknown::anything>;
};
}  // namespace other_build

TEST_F(MeshTest, refuses_an_interface_of_another_build_and_an_unknown_one) {
  auto mesh = start({{"replica", 1}});
  auto ours = mesh.spawn<Worker>("ours", "");
  ASSERT_TRUE(ours.call<&Worker::add>(1).wait()[0]);
  const auto stranger =
      mesh.spawn<other_build::Worker>("worker", "").call<&other_build::Worker::add>(1.0).wait()[0];
  ASSERT_FALSE(stranger);
  EXPECT_NE(stranger.error().message.find("different versions"), std::string::npos)
      << stranger.error().message;
  const auto unknown =
      mesh.spawn<other_build::Unknown>("unknown").call<&other_build::Unknown::anything>().wait()[0];
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("serve<Unknown>"), std::string::npos)
      << unknown.error().message;
}

TEST_F(MeshTest, children_reach_an_actor_of_their_parent) {
  std::vector<std::vector<int>> heard(3);
  std::atomic<int> count{0};
  const auto listener =
      system.host<Listener>("listener", std::make_unique<ListenerActor>(heard, count));
  auto mesh = start({{"replica", 3}});
  auto workers = mesh.spawn<Worker>("worker", "");
  for (const auto& done : workers.call<&Worker::tell>(listener, 500).wait())
    ASSERT_TRUE(done) << done.error().describe();
  for (const auto& answer : workers.call<&Worker::ask>(listener, 21).wait())
    EXPECT_EQ(answer, 42);
  EXPECT_EQ(count, 1500) << "the questions came after the casts of the same actor";
  for (const auto& one : heard)
    EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
  EXPECT_EQ(system.actor(listener).call<&Listener::twice>(4).wait(), 8)
      << "also from its own process";
  EXPECT_EQ(system.actor(workers.ref(2)).call<&Worker::add>(3).wait(), 3) << "and by reference";
}

TEST_F(MeshTest, tells_of_a_kill_in_milliseconds_past_busy_mailboxes) {
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(workers.call<&Worker::add>(1).wait()[0]);
  std::mutex mutex;
  std::condition_variable told;
  std::vector<double> latencies;
  Instant killed{};
  mesh.on_failure([&](const ProcExit& exit) {
    std::lock_guard lock(mutex);
    latencies.push_back(to_ms(std::chrono::steady_clock::now() - killed));
    EXPECT_EQ(exit.rank, 1U);
    told.notify_all();
  });
  for (std::size_t round = 0; round < 10; ++round) {
    ASSERT_TRUE(workers.cast<&Worker::nap>(100));
    {
      std::lock_guard lock(mutex);
      killed = std::chrono::steady_clock::now();
    }
    ASSERT_TRUE(mesh.kill(1, SIGKILL));
    std::unique_lock lock(mutex);
    ASSERT_TRUE(told.wait_for(lock, 10s, [&] { return latencies.size() == round + 1; }));
    lock.unlock();
    ASSERT_TRUE(mesh.replace(1));
    ASSERT_TRUE(workers.at(1).call_one<&Worker::add>(1).wait());
  }
  std::sort(latencies.begin(), latencies.end());
  std::printf("kill to handler: p50 %.2f ms, maximum %.2f ms\n", latencies[latencies.size() / 2],
              latencies.back());
  EXPECT_LT(latencies.back(), 1000);
}

TEST_F(MeshTest, replaces_a_rank_in_place_with_its_actors) {
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "same");
  const pid_t first = mesh.pid(1);
  ASSERT_TRUE(workers.call<&Worker::add>(7).wait()[1]);
  ASSERT_TRUE(mesh.replace(1)) << "also one that still runs";
  EXPECT_NE(mesh.pid(1), first);
  EXPECT_FALSE(is_alive(first));
  EXPECT_EQ(mesh.incarnation(1), 1U);
  const auto place = workers.at(1).call_one<&Worker::place>().wait();
  ASSERT_TRUE(place) << place.error().describe();
  EXPECT_EQ(place->incarnation, 1U);
  EXPECT_EQ(workers.at(1).call_one<&Worker::greeting>().wait(), std::string("same"));
  const auto sums = workers.call<&Worker::add>(1).wait();
  EXPECT_EQ(sums[0], 8);
  EXPECT_EQ(sums[1], 1);
}

TEST_F(MeshTest, a_supervisor_restarts_what_dies) {
  Exits exits;
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) {
    EXPECT_TRUE(mesh.replace(exit.rank));
    exits.add(exit);
  });
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(mesh.kill(i % 2, SIGKILL));
    EXPECT_EQ(exits.wait(i + 1).back().rank, i % 2);
    EXPECT_EQ(workers.at(i % 2).call_one<&Worker::add>(1).wait(), 1);
  }
}

TEST_F(MeshTest, replaces_later_only_what_is_dead) {
  Exits exits;
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  std::promise<Result<void>> replaced;
  mesh.on_failure([&](const ProcExit& exit) {
    mesh.replace_after(exit.rank, 30ms,
                       [&](const Result<void>& result) { replaced.set_value(result); });
    exits.add(exit);
  });
  mesh.replace_after(0, 1ms, [&](const Result<void>&) { ADD_FAILURE() << "rank 0 runs"; });
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  auto future = replaced.get_future();
  ASSERT_EQ(future.wait_for(10s), std::future_status::ready);
  EXPECT_TRUE(future.get());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
  EXPECT_EQ(mesh.incarnation(0), 0U);
  EXPECT_EQ(mesh.incarnation(1), 1U);
  EXPECT_EQ(workers.at(1).call_one<&Worker::add>(1).wait(), 1);
  // One that is due later does not hold up the end.
  mesh.replace_after(1, 60s);
}

TEST_F(MeshTest, calls_to_a_mesh_that_has_gone_are_disconnected) {
  std::optional<ActorMesh<Worker>> workers;
  pid_t pid = 0;
  {
    auto mesh = start({{"replica", 1}});
    workers = mesh.spawn<Worker>("worker", "");
    ASSERT_TRUE(workers->call<&Worker::add>(1).wait()[0]);
    pid = mesh.pid(0);
  }
  EXPECT_FALSE(is_alive(pid));
  EXPECT_EQ(workers->call<&Worker::add>(1).wait()[0].error().kind, ErrorKind::disconnected);
  EXPECT_EQ(workers->cast<&Worker::add>(1).error().kind, ErrorKind::disconnected);
}

TEST_F(MeshTest, a_process_that_never_attaches_or_leaves_at_once_is_a_failure_that_says_so) {
  Exits exits;
  auto quick = options("never_attach");
  quick.attach_deadline = 100ms;
  auto silent = start({{"replica", 1}}, quick);
  auto reply = silent.spawn<Worker>("worker", "").call<&Worker::add>(1).wait()[0];
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::disconnected);
  EXPECT_NE(reply.error().message.find("handshake"), std::string::npos) << reply.error().message;

  auto leaving = start({{"replica", 1}}, options("leave"));
  leaving.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  const auto exit = exits.wait(1)[0];
  EXPECT_EQ(exit.exit_code, 7);
  ASSERT_EQ(exit.last_lines.size(), 1U);
  EXPECT_EQ(exit.last_lines[0], "leaving by myself");
}

TEST_F(MeshTest, a_program_that_does_not_exist_is_an_error_and_leaves_nothing) {
  auto wrong = options();
  wrong.program = "/nowhere/teson-worker";
  const auto mesh = this_host(system).spawn_procs({{"replica", 2}}, wrong);
  ASSERT_FALSE(mesh);
  EXPECT_NE(mesh.error().message.find("/nowhere/teson-worker"), std::string::npos);
}

TEST_F(MeshTest, a_call_ends_at_its_deadline_and_a_full_mailbox_is_overloaded) {
  auto mesh = start({{"replica", 1}});
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_TRUE(worker.call_one<&Worker::add>(1).wait());
  const auto begin = std::chrono::steady_clock::now();
  const auto late = worker.within(30ms).call_one<&Worker::nap>(400).wait();
  EXPECT_EQ(late.error().kind, ErrorKind::timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 350ms);
  // The child's mailbox holds 8 messages, and its actor naps.
  std::vector<CallOne<int>> calls;
  for (int i = 0; i < 20; ++i)
    calls.push_back(worker.call_one<&Worker::add>(1));
  int refused = 0;
  for (auto& call : calls) {
    const auto reply = call.wait();
    if (reply) continue;
    EXPECT_EQ(reply.error().kind, ErrorKind::overloaded);
    ++refused;
  }
  EXPECT_EQ(refused, 12);
}

TEST_F(MeshTest, carries_64_mebibytes_there_and_back) {
  auto mesh = start({{"replica", 1}});
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  std::vector<std::byte> bytes(std::size_t{64} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  ASSERT_TRUE(worker.call_one<&Worker::add>(1).wait());
  const auto begin = std::chrono::steady_clock::now();
  const auto back = worker.call_one<&Worker::echo>(bytes).wait();
  std::printf("64 MiB there and back: %.0f ms\n", to_ms(std::chrono::steady_clock::now() - begin));
  ASSERT_TRUE(back) << back.error().describe();
  EXPECT_TRUE(*back == bytes);
}

TEST_F(MeshTest, starts_16_processes) {
  const auto begin = std::chrono::steady_clock::now();
  auto mesh = start({{"replica", 16}});
  auto workers = mesh.spawn<Worker>("worker", "");
  const auto replies = workers.call<&Worker::place>().wait();
  std::set<std::int64_t> pids;
  for (const auto& reply : replies) {
    ASSERT_TRUE(reply) << reply.error().describe();
    pids.insert(reply->pid);
  }
  EXPECT_EQ(pids.size(), 16U);
  std::printf("16 processes to their first replies: %.0f ms\n",
              to_ms(std::chrono::steady_clock::now() - begin));
}

}  // namespace
}  // namespace teson::actor
