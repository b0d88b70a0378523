// What is seen of actors and processes, against what a test did to them.
#include "teson/actor/inspect.h"

#include <csignal>
#include <future>
#include <stdexcept>

#include "teson/actor/testing/mesh_test_support.h"
#include "teson/actor/trace_id.h"

namespace teson::actor {
namespace {

using namespace testing;

class InspectTest : public MeshTest {
 protected:
  using MeshTest::MeshTest;

  /// What is seen once `there`; the last look after 10 s.
  SystemSnapshot look_until(const std::function<bool(const SystemSnapshot&)>& there) {
    const Instant end = in(10s);
    SystemSnapshot seen = system.inspect();
    while (!there(seen) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(2ms);
      seen = system.inspect();
    }
    return seen;
  }
  static const ActorSnapshot& only_actor(const SystemSnapshot& seen, std::size_t rank) {
    const auto& actors = seen.meshes.at(0).procs.at(rank).actors;
    if (actors.size() != 1) throw std::runtime_error("expected one actor");
    return actors[0];
  }
};

TEST_F(InspectTest, counts_what_was_handled_and_keeps_the_last_failure) {
  auto mesh = start({{"replica", 2}, {"shard", 1}});
  const auto workers = mesh.spawn<Worker>("adder", "");
  for (int i = 0; i < 5; ++i)
    (void)workers.call<&Worker::add>(1).wait();
  EXPECT_FALSE(workers.at(1).call_one<&Worker::refuse>("not today").wait());

  const auto seen = look_until([](const SystemSnapshot& now) {
    return only_actor(now, 0).state == ActorState::idle && only_actor(now, 0).handled == 5 &&
           only_actor(now, 1).state == ActorState::idle && only_actor(now, 1).handled == 6;
  });
  EXPECT_EQ(seen.pid, ::getpid());
  EXPECT_TRUE(seen.actors.empty());
  EXPECT_TRUE(seen.hosts.empty());
  ASSERT_EQ(seen.meshes.size(), 1U);
  EXPECT_EQ(seen.meshes[0].name, "workers");
  EXPECT_EQ(seen.meshes[0].dimensions, (std::vector<Dimension>{{"replica", 2}, {"shard", 1}}));
  ASSERT_EQ(seen.meshes[0].procs.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const ProcSnapshot& proc = seen.meshes[0].procs[rank];
    EXPECT_EQ(proc.rank, rank);
    EXPECT_EQ(proc.pid, mesh.pid(rank));
    EXPECT_EQ(proc.host, seen.host);
    EXPECT_EQ(proc.state, ProcState::running);
    EXPECT_EQ(proc.exit + proc.no_answer, "");
    EXPECT_EQ(proc.calls_unanswered, 0);
    const ActorSnapshot& actor = only_actor(seen, rank);
    EXPECT_EQ(actor.name, "adder");
    EXPECT_EQ(actor.class_name, "Worker");
    EXPECT_EQ(actor.handled, 5 + rank);
    EXPECT_EQ(actor.refused, 0U);
    EXPECT_EQ(actor.mailbox_messages, 0U);
    EXPECT_EQ(actor.mailbox_bytes, 0U);
    EXPECT_EQ(actor.handler, "");
    EXPECT_EQ(actor.busy, Duration::zero());
  }
  EXPECT_EQ(only_actor(seen, 0).last_failure, "");
  EXPECT_TRUE(contains(only_actor(seen, 1).last_failure, "not today"))
      << only_actor(seen, 1).last_failure;
  EXPECT_NE(only_actor(seen, 1).last_failure_trace, 0U);
}

TEST_F(InspectTest, a_stuck_handler_is_seen_with_what_waits_behind_it) {
  auto mesh = start({{"rank", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  (void)workers.call<&Worker::add>(0).wait();
  const auto nap = workers.at(1).call_one<&Worker::nap>(2000);
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(workers.at(1).cast<&Worker::add>(i));

  const auto seen = look_until([](const SystemSnapshot& now) {
    return only_actor(now, 1).mailbox_messages == 6 && only_actor(now, 1).busy > 100ms;
  });
  const ActorSnapshot& stuck = only_actor(seen, 1);
  EXPECT_EQ(stuck.state, ActorState::busy);
  EXPECT_EQ(stuck.handler, "nap");
  EXPECT_NE(stuck.trace, 0U);
  EXPECT_EQ(stuck.mailbox_messages, 6U);
  EXPECT_GE(stuck.mailbox_bytes, 6 * sizeof(int));
  EXPECT_GT(stuck.busy, 100ms);
  EXPECT_LT(stuck.busy, 10s);
  EXPECT_EQ(stuck.handled, 1U);
  EXPECT_EQ(only_actor(seen, 0).state, ActorState::idle);
  EXPECT_EQ(seen.meshes[0].procs[1].calls_unanswered, 1) << "the nap; the look has ended";
}

TEST_F(InspectTest, a_process_that_is_silent_or_gone_does_not_delay_the_others) {
  auto still = options();
  still.heartbeat = Duration::zero();
  auto mesh = start({{"rank", 3}}, std::move(still));
  mesh.on_failure([](const ProcExit&) {});
  const auto workers = mesh.spawn<Worker>("worker", "");
  (void)workers.call<&Worker::add>(0).wait();
  ASSERT_TRUE(mesh.kill(0, SIGSTOP));
  ASSERT_TRUE(mesh.kill(2, SIGKILL));
  (void)look_until([](const SystemSnapshot& now) {
    const auto& procs = now.meshes.at(0).procs;
    return procs.at(2).state == ProcState::ended && !procs.at(0).no_answer.empty();
  });

  const Instant begun = std::chrono::steady_clock::now();
  const auto seen = system.inspect(300ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
  const auto& procs = seen.meshes.at(0).procs;
  EXPECT_EQ(procs[0].state, ProcState::running);
  EXPECT_EQ(procs[0].no_answer, "no answer within 0.3 s");
  EXPECT_TRUE(procs[0].actors.empty());
  EXPECT_EQ(procs[1].no_answer, "");
  EXPECT_EQ(procs[1].actors.size(), 1U);
  EXPECT_TRUE(contains(procs[2].exit, "SIGKILL")) << procs[2].exit;
  ASSERT_TRUE(mesh.kill(0, SIGCONT));
}

TEST_F(InspectTest, processes_are_seen_while_they_start) {
  auto attached = start({{"rank", 1}}, options("attached"));
  auto silent = start({{"rank", 1}}, options("never_attach"));
  const auto worker = attached.spawn<Worker>("worker", "");
  ASSERT_TRUE(attached.wait_attached(in(10s)));
  const auto seen = system.inspect(200ms);
  ASSERT_EQ(seen.meshes.size(), 2U);
  const ProcSnapshot& first = seen.meshes[0].procs.at(0);
  EXPECT_EQ(first.state, ProcState::running) << "it has not called Proc::start";
  EXPECT_EQ(first.no_answer, "");
  EXPECT_TRUE(first.actors.empty());
  const ProcSnapshot& second = seen.meshes[1].procs.at(0);
  EXPECT_EQ(second.state, ProcState::starting);
  EXPECT_EQ(second.no_answer, "no answer within 0.2 s");
  EXPECT_EQ(second.pid, silent.pid(0));
  for (auto* mesh : {&attached, &silent})
    ASSERT_TRUE(mesh->kill(0, SIGKILL));
  attached.stop();
  EXPECT_EQ(system.inspect().meshes.size(), 1U) << "one has been stopped";
}

struct FailuresInspectTest : InspectTest {
  FailuresInspectTest()
      : InspectTest({.mailbox = {.messages_max = 2},
                     .on_actor_failure = [this](const ActorFailure& one) { failures.add(one); }}) {}
};

TEST_F(FailuresInspectTest, an_actor_that_has_ended_says_why_and_counts_what_it_refuses) {
  auto mesh = start({{"rank", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(worker.cast<&Worker::throws>());
  (void)failures.wait(1);
  EXPECT_FALSE(worker.call_one<&Worker::add>(1).wait());
  EXPECT_FALSE(worker.call_one<&Worker::add>(1).wait());
  const auto seen = look_until([](const SystemSnapshot& now) {
    return only_actor(now, 0).refused == 2 && only_actor(now, 0).handled == 1;
  });
  EXPECT_EQ(only_actor(seen, 0).state, ActorState::failed);
  EXPECT_EQ(only_actor(seen, 0).handled, 1U);
  EXPECT_EQ(only_actor(seen, 0).refused, 2U);
  EXPECT_TRUE(contains(only_actor(seen, 0).last_failure, "thrown on purpose"));
}

/// Waits to be let go.
class Gate {
 public:
  explicit Gate(std::shared_future<void> open) : open_(std::move(open)) {}
  void pass() { open_.wait(); }
  using endpoints = Endpoints<&Gate::pass>;

 private:
  std::shared_future<void> open_;
};

TEST_F(FailuresInspectTest, messages_that_find_the_mailbox_full_are_counted) {
  std::promise<void> open;
  const auto gate =
      system.actor(system.host<Gate>("gate", std::make_unique<Gate>(open.get_future().share())));
  ASSERT_TRUE(gate.cast<&Gate::pass>());
  (void)look_until([](const SystemSnapshot& now) {
    return now.actors.at(0).state == ActorState::busy && now.actors.at(0).mailbox_messages == 0;
  });
  int taken = 0;
  for (int i = 0; i < 5; ++i)
    taken += gate.cast<&Gate::pass>() ? 1 : 0;
  EXPECT_EQ(taken, 2);
  const auto seen = system.inspect();
  ASSERT_EQ(seen.actors.size(), 1U);
  EXPECT_EQ(seen.actors[0].name, "gate");
  EXPECT_EQ(seen.actors[0].class_name, "Gate");
  EXPECT_EQ(seen.actors[0].handler, "pass");
  EXPECT_EQ(seen.actors[0].mailbox_messages, 2U);
  EXPECT_EQ(seen.actors[0].refused, 3U);
  open.set_value();
}

/// Starts a chain of calls from within a handler.
class Starter {
 public:
  explicit Starter(ActorMesh<Worker> workers) : workers_(std::move(workers)) {}
  /// The trace here; calls rank 0, which calls the listener.
  Result<std::uint64_t> run(const ActorRef<Listener>& listener) {
    TESON_TRY_VOID(workers_.at(0).call_one<&Worker::ask>(listener, 1).wait());
    return trace_id();
  }
  using endpoints = Endpoints<&Starter::run>;

 private:
  const ActorMesh<Worker> workers_;
};

/// Called by rank 0, calls rank 1.
class Relay final : public Listener {
 public:
  Relay(ActorMesh<Worker> workers, Told<std::uint64_t>& traces)
      : workers_(std::move(workers)), traces_(traces) {}
  void heard(std::uint64_t, int) override {}
  int twice(int value) override {
    traces_.add(trace_id());
    traces_.add(workers_.at(1).call_one<&Worker::trace>().wait().value_or(0));
    return 2 * value;
  }

 private:
  const ActorMesh<Worker> workers_;
  Told<std::uint64_t>& traces_;
};

TEST_F(InspectTest, a_trace_is_inherited_over_the_hops_of_three_processes) {
  auto mesh = start({{"rank", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  Told<std::uint64_t> traces;
  const auto relay = system.host<Listener>("relay", std::make_unique<Relay>(workers, traces));
  const auto starter =
      system.actor(system.host<Starter>("starter", std::make_unique<Starter>(workers)));
  const auto first = starter.call<&Starter::run>(relay).wait();
  const auto second = starter.call<&Starter::run>(relay).wait();
  ASSERT_TRUE(first) << first.error().describe();
  ASSERT_TRUE(second);
  const auto seen = traces.wait(4);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{*first, *first, *second, *second}));
  EXPECT_NE(*first, 0U);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(trace_id(), 0U) << "outside a handler";
}

}  // namespace
}  // namespace teson::actor
