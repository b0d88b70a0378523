// How actors end while their processes live on, and what is left of them.
#include <fstream>
#include <sstream>
#include <thread>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

class StopTest : public MeshTest {
 protected:
  StopTest()
      : MeshTest({.on_actor_failure = [this](const ActorFailure& one) { failures.add(one); }}) {}

  /// The actors of a rank whose process answers.
  std::vector<ActorSnapshot> seen_in(std::size_t rank) {
    return system.inspect().meshes.at(0).procs.at(rank).actors;
  }
};

/// "Threads" or "VmRSS" (in KiB) of a process.
long status_of(pid_t pid, const std::string& what) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(what + ":")) return std::stol(line.substr(what.size() + 1));
  }
  return -1;
}

std::size_t count_in(const std::filesystem::path& path, const std::string& text) {
  std::ifstream file(path);
  std::ostringstream all;
  all << file.rdbuf();
  std::size_t count = 0;
  for (auto at = all.str().find(text); at != std::string::npos; at = all.str().find(text, at + 1))
    ++count;
  return count;
}

TEST_F(StopTest, what_was_sent_before_is_handled_first_and_the_process_lives_on) {
  std::vector<std::vector<int>> heard(2);
  std::atomic<int> count{0};
  const auto listener =
      system.host<Listener>("listener", std::make_unique<ListenerActor>(heard, count));
  auto mesh = start({{"replica", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(workers.cast<&Worker::nap>(50));
  auto told = workers.call<&Worker::tell>(listener, 100);
  ASSERT_TRUE(workers.cast<&Worker::tell>(listener, 100));
  const auto stopped = workers.stop();
  ASSERT_TRUE(stopped) << stopped.error().describe();
  for (const auto& done : told.wait())
    EXPECT_TRUE(done) << done.error().describe();
  ASSERT_TRUE(system.actor(listener).call<&Listener::twice>(1).wait());
  EXPECT_EQ(heard[0].size(), 200U);
  EXPECT_EQ(heard[1].size(), 200U);
  EXPECT_FALSE(mesh.exit_of(0) || mesh.exit_of(1));
  for (const auto& sum : mesh.spawn<Worker>("another", "").call<&Worker::add>(2).wait())
    EXPECT_EQ(sum, 2);
  EXPECT_TRUE(failures.wait(0).empty()) << "to be stopped is no failure";
}

TEST_F(StopTest, the_object_is_destroyed_once_and_before_stop_returns) {
  auto mesh = start({{"replica", 1}});
  const auto nest = mesh.spawn<Nest>("nest");
  const auto hatched = nest.at(0).call_one<&Nest::hatch>(2, Reaction::replace).wait();
  ASSERT_TRUE(hatched) << hatched.error().describe();
  ASSERT_TRUE(nest.stop());
  EXPECT_EQ(count_in(log_of(0), "the nest is cleaned up"), 1U);
  for (const auto pid : *hatched)
    EXPECT_FALSE(is_alive(static_cast<pid_t>(pid))) << "what it owned went with it";
  ASSERT_TRUE(nest.stop());
  mesh.stop();
  EXPECT_EQ(count_in(log_of(0), "the nest is cleaned up"), 1U);
}

TEST_F(StopTest, later_messages_learn_that_the_owner_has_stopped_it) {
  auto mesh = start({{"replica", 3}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(workers.at(1).stop());
  const auto replies = workers.call<&Worker::add>(1).wait();
  EXPECT_EQ(replies[0], 1);
  EXPECT_EQ(replies[2], 1);
  const auto refused = [](const Error& error) {
    return error.kind == ErrorKind::disconnected &&
           contains(error.message, "was stopped by its owner");
  };
  EXPECT_TRUE(refused(replies[1].error())) << replies[1].error().describe();
  EXPECT_TRUE(contains(replies[1].error().message, "rank 1 of mesh 'workers'"));
  EXPECT_TRUE(refused(workers.cast<&Worker::add>(1).error())) << "though it reaches the others";
  EXPECT_EQ(workers.at(0).call_one<&Worker::add>(1).wait(), 3);
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(workers.choose<&Worker::add>(0).wait()) << "the living are chosen";
  EXPECT_TRUE(refused(workers.at(1).choose<&Worker::add>(0).wait().error()));
  // By reference, too.
  const auto reference = system.actor(workers.ref(1));
  const auto reply = reference.call<&Worker::add>(1).wait();
  ASSERT_FALSE(reply);
  EXPECT_TRUE(refused(reply.error())) << reply.error().describe();
  EXPECT_TRUE(contains(reply.error().message, "actor 'worker'"));
  ASSERT_TRUE(reference.cast<&Worker::add>(1));
  EXPECT_TRUE(refused(returned.wait(1)[0].error));
}

TEST_F(StopTest, an_actor_that_is_hosted_is_stopped_by_who_hosts_it) {
  std::vector<std::vector<int>> heard(1);
  std::atomic<int> count{0};
  const auto ref = system.host<Listener>("listener", std::make_unique<ListenerActor>(heard, count));
  const auto listener = system.actor(ref);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(listener.cast<&Listener::heard>(0, i));
  ASSERT_TRUE(system.stop(ref));
  EXPECT_EQ(count, 100) << "what was sent before is handled";
  const auto after = listener.call<&Listener::twice>(1).wait();
  ASSERT_FALSE(after);
  EXPECT_TRUE(contains(after.error().message, "actor 'listener' was stopped by its owner"));
  EXPECT_TRUE(system.stop(ref)) << "once more does no harm";
  auto mesh = start({{"replica", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "").ref(0);
  const auto refused = system.stop(worker);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
  EXPECT_TRUE(contains(refused.error().message, "ActorMesh::stop"));
  EXPECT_EQ(system.actor(worker).call<&Worker::add>(1).wait(), 1);
}

TEST_F(StopTest, what_is_behind_the_stop_is_refused) {
  auto mesh = start({{"replica", 1}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  const auto reference = system.actor(workers.ref(0));
  auto nap = workers.call<&Worker::nap>(200);
  std::thread stopper([&] { EXPECT_TRUE(workers.stop()); });
  // The stop has been sent once the handle refuses.
  while (workers.cast<&Worker::nap>(0))
    std::this_thread::sleep_for(1ms);
  auto behind = reference.call<&Worker::add>(1);
  ASSERT_TRUE(reference.cast<&Worker::add>(1));
  stopper.join();
  EXPECT_TRUE(nap.wait()[0]);
  const auto refused = behind.wait();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(contains(refused.error().message, "was stopped by its owner"));
  EXPECT_TRUE(contains(returned.wait(1)[0].error.message, "was stopped by its owner"));
}

TEST_F(StopTest, a_port_that_it_has_kept_tells_its_caller) {
  auto mesh = start({{"replica", 1}});
  const auto desk = mesh.spawn<Desk>("desk").at(0);
  auto kept = desk.call_one<&Desk::ask>(1);
  ASSERT_TRUE(desk.call_one<&Desk::notify>().wait());
  ASSERT_TRUE(desk.stop());
  EXPECT_TRUE(contains(kept.wait().error().message, "was stopped by its owner"));
}

TEST_F(StopTest, one_that_runs_in_place_ends_as_well) {
  auto mesh = start({{"replica", 2}});
  const auto quick = mesh.spawn<Quick>("quick");
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(quick.cast<&Quick::add>(1));
  ASSERT_TRUE(quick.at(0).stop());
  EXPECT_TRUE(contains(quick.at(0).call_one<&Quick::add>(1).wait().error().message, "stopped"));
  EXPECT_EQ(quick.at(1).call_one<&Quick::history>().wait()->size(), 6U);
  ASSERT_TRUE(quick.at(1).cast<&Quick::throws>());
  EXPECT_EQ(failures.wait(1)[0].name, "quick");
  EXPECT_TRUE(quick.stop());
}

TEST_F(StopTest, a_process_that_replaces_another_does_not_get_what_was_stopped) {
  Exits exits;
  auto mesh = start({{"replica", 2}});
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  const auto kept = mesh.spawn<Worker>("kept", "");
  const auto gone = mesh.spawn<Worker>("gone", "");
  const auto half = mesh.spawn<Worker>("half", "");
  ASSERT_TRUE(gone.stop());
  ASSERT_TRUE(half.at(0).stop());
  for (const std::size_t rank : {0, 1}) {
    ASSERT_TRUE(mesh.kill(rank, SIGKILL));
    exits.wait(rank + 1);
    ASSERT_TRUE(mesh.replace(rank));
    EXPECT_EQ(kept.at(rank).call_one<&Worker::add>(1).wait(), 1);
  }
  EXPECT_EQ(half.at(1).call_one<&Worker::add>(1).wait(), 1);
  const auto names = [&](std::size_t rank) {
    std::vector<std::string> result;
    for (const auto& actor : seen_in(rank))
      result.push_back(actor.name);
    return result;
  };
  EXPECT_EQ(names(0), std::vector<std::string>{"kept"});
  EXPECT_EQ(names(1), (std::vector<std::string>{"kept", "half"}));
  for (const auto& reply : gone.call<&Worker::add>(1).wait())
    EXPECT_TRUE(contains(reply.error().message, "was stopped by its owner"));
}

TEST_F(StopTest, is_idempotent_and_the_dead_count_as_stopped) {
  Exits exits;
  auto mesh = start({{"replica", 4}});
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  EXPECT_TRUE(mesh.spawn<Worker>("early", "").stop()) << "before they have attached";
  EXPECT_TRUE(mesh.spawn<Broken>("broken").stop()) << "what could not be made";
  const auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  ASSERT_TRUE(workers.at(0).cast<&Worker::throws>());
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  exits.wait(1);
  ASSERT_TRUE(mesh.kill(2, SIGKILL)) << "one has failed, one is dead, one is dying";
  std::thread other([&] { EXPECT_TRUE(workers.stop()); });
  const auto stopped = workers.stop();
  EXPECT_TRUE(stopped) << stopped.error().describe();
  other.join();
  EXPECT_TRUE(workers.stop());
  mesh.stop();
  EXPECT_TRUE(workers.stop());
  EXPECT_TRUE(mesh.spawn<Worker>("late", "").stop());
}

TEST_F(StopTest, names_the_ranks_that_have_not_confirmed_by_the_deadline) {
  auto mesh = start({{"replica", 3}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(workers.call<&Worker::add>(1).wait()[1]);
  auto nap = workers.at(1).call_one<&Worker::nap>(400);
  const auto begin = std::chrono::steady_clock::now();
  const auto late = workers.within(50ms).stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 300ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::timed_out);
  EXPECT_TRUE(contains(late.error().message,
                       "1 of 3 ranks failed: rank 1: timed_out: no reply from rank 1 (pid "))
      << late.error().message;
  EXPECT_TRUE(workers.stop()) << "when the handler has returned";
  EXPECT_TRUE(nap.wait());
}

TEST_F(StopTest, the_last_hundred_that_have_ended_are_seen_and_older_ones_forgotten) {
  auto mesh = start({{"replica", 1}});
  const auto first = mesh.spawn<Worker>("first", "");
  const auto failed = mesh.spawn<Worker>("failed", "");
  const auto kept = mesh.spawn<Worker>("kept", "");
  const auto first_reference = system.actor(first.ref(0));
  const auto failed_reference = system.actor(failed.ref(0));
  ASSERT_TRUE(first_reference.call<&Worker::add>(1).wait());
  ASSERT_TRUE(first.stop());
  ASSERT_TRUE(failed.cast<&Worker::throws>());
  failures.wait(1);
  ASSERT_TRUE(failed.stop());
  EXPECT_FALSE(failed_reference.call<&Worker::add>(1).wait());
  for (int i = 0; i < 98; ++i)
    ASSERT_TRUE(mesh.spawn<Worker>("short", "").stop());
  auto seen = seen_in(0);
  ASSERT_EQ(seen.size(), 101U) << "one lives";
  EXPECT_EQ(seen[0].name, "first");
  EXPECT_EQ(seen[0].class_name, "Worker");
  EXPECT_EQ(seen[0].state, ActorState::stopped);
  EXPECT_EQ(seen[0].handled, 1U);
  EXPECT_EQ(seen[0].last_failure, "");
  EXPECT_EQ(seen[0].busy, Duration::zero());
  EXPECT_EQ(seen[1].state, ActorState::failed);
  EXPECT_EQ(seen[1].refused, 1U);
  EXPECT_TRUE(contains(seen[1].last_failure, "thrown on purpose")) << seen[1].last_failure;
  EXPECT_EQ(seen[2].state, ActorState::idle);
  EXPECT_TRUE(contains(first_reference.call<&Worker::add>(1).wait().error().message, "stopped"));
  ASSERT_TRUE(mesh.spawn<Worker>("one more", "").stop());
  seen = seen_in(0);
  EXPECT_EQ(seen.size(), 101U);
  EXPECT_EQ(seen[0].name, "failed");
  const auto forgotten = first_reference.call<&Worker::add>(1).wait();
  EXPECT_EQ(forgotten.error().kind, ErrorKind::invalid);
  EXPECT_TRUE(contains(forgotten.error().message, "has no actor")) << forgotten.error().message;
  EXPECT_EQ(kept.at(0).call_one<&Worker::add>(1).wait(), 1);
}

TEST_F(StopTest, actors_that_come_and_go_leave_nothing_behind) {
  auto mesh = start({{"replica", 1}});
  const pid_t pid = mesh.pid(0);
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  const long threads = status_of(pid, "Threads");
  const long own_threads = status_of(::getpid(), "Threads");
  const auto round = [&](int i) {
    const auto worker = mesh.spawn<Worker>("worker", "");
    ASSERT_EQ(worker.at(0).call_one<&Worker::add>(i).wait(), i);
    if (i % 3 == 0) (void)worker.cast<&Worker::throws>();
    ASSERT_TRUE(worker.stop());
    if (i % 3 == 1) {
      ASSERT_TRUE(mesh.spawn<Broken>("broken").stop());
    }
  };
  for (int i = 0; i < 200; ++i)
    round(i);
  const long memory = status_of(pid, "VmRSS");
  const long own_memory = status_of(::getpid(), "VmRSS");
  for (int i = 0; i < 1000; ++i)
    round(i);
  // What has ended leaves a moment later; the last one is waited for by the next.
  for (const Instant end = in(10s); status_of(pid, "Threads") > threads + 1;) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << status_of(pid, "Threads");
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_LE(status_of(::getpid(), "Threads"), own_threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
  EXPECT_LT(status_of(pid, "VmRSS") - memory, 4096);
  EXPECT_LT(status_of(::getpid(), "VmRSS") - own_memory, 4096);
#endif
  std::printf("threads %ld, memory %+ld KiB; of the owner %+ld KiB\n", status_of(pid, "Threads"),
              status_of(pid, "VmRSS") - memory, status_of(::getpid(), "VmRSS") - own_memory);
}

}  // namespace
}  // namespace teson::actor
