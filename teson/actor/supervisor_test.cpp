// Strategies, against a mesh that only notes what is done to it, on a simulated clock.
#include "teson/actor/supervisor.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

class NotedMesh : public detail::Supervisor::Mesh {
 public:
  std::string name() const override { return "workers"; }
  std::size_t size() const override { return incarnations.size(); }
  std::uint64_t incarnation(std::size_t rank) const override { return incarnations.at(rank); }
  void end(std::size_t rank) override { notes += "end " + std::to_string(rank) + "; "; }
  Result<void> replace(std::size_t rank) override {
    if (broken) return fail(ErrorKind::failed, "no such program");
    notes += "start " + std::to_string(rank) + "; ";
    ++incarnations.at(rank);
    return {};
  }
  void later(std::size_t key, Duration delay, std::function<void()> function) override {
    timers[key] = std::move(function);
    delays.push_back(delay);
  }
  void unhandled(const std::string& chain) override { notes += "unhandled: " + chain; }

  /// What waits happens.
  void pass() {
    for (auto waiting = std::exchange(timers, {}); auto& [key, function] : waiting)
      function();
  }
  std::string told() { return std::exchange(notes, ""); }

  std::vector<std::uint64_t> incarnations = {0, 0, 0, 0};
  std::map<std::size_t, std::function<void()>> timers;
  std::vector<Duration> delays;
  std::string notes;
  bool broken = false;
};

class SupervisorTest : public ::testing::Test {
 protected:
  void supervise(Strategy strategy, std::size_t restarts_max = 5) {
    supervisor = std::make_shared<detail::Supervisor>(
        mesh,
        Supervision{
            .strategy = strategy,
            .restarts = {.restarts_max = restarts_max, .jitter = 0},
            .on_exit = [this](const ProcExit& exit) { deaths.push_back(exit.rank); },
            .on_restart =
                [this](const std::vector<std::size_t>& ranks) { restarted.push_back(ranks); }},
        clock);
  }
  void die(std::size_t rank) {
    supervisor->ended(
        {.rank = rank, .incarnation = mesh.incarnations[rank], .pid = 7, .signal = SIGKILL});
  }

  ManualClock clock;
  NotedMesh mesh;
  std::shared_ptr<detail::Supervisor> supervisor;
  std::vector<std::size_t> deaths;
  std::vector<std::vector<std::size_t>> restarted;
};

TEST_F(SupervisorTest, one_for_one_restarts_the_dead_each_by_its_own_count) {
  supervise(Strategy::one_for_one, 2);
  die(1);
  die(3);
  EXPECT_EQ(mesh.told(), "") << "after its delay, not before";
  mesh.pass();
  EXPECT_EQ(mesh.told(), "start 1; start 3; ");
  die(1);
  mesh.pass();
  EXPECT_EQ(mesh.told(), "start 1; ");
  EXPECT_EQ(mesh.delays, (std::vector<Duration>{0ms, 0ms, 200ms}));
  die(1);
  EXPECT_TRUE(contains(mesh.notes, "mesh 'workers' is given up, restarted 2 times within 60 s"));
  EXPECT_TRUE(contains(mesh.told(), "SIGKILL"));
  EXPECT_EQ(deaths, (std::vector<std::size_t>{1, 3, 1, 1}));
  EXPECT_EQ(restarted, (std::vector<std::vector<std::size_t>>{{1}, {3}, {1}}));
  die(3);
  mesh.pass();
  EXPECT_EQ(mesh.told(), "") << "given up is given up, and said once";
}

TEST_F(SupervisorTest, rest_for_one_restarts_it_and_those_after_it) {
  supervise(Strategy::rest_for_one);
  die(2);
  EXPECT_EQ(mesh.told(), "end 3; ");
  die(1);
  EXPECT_EQ(mesh.told(), "end 1; ") << "the restart that is on its way gets wider";
  mesh.pass();
  EXPECT_EQ(mesh.told(), "start 1; start 2; start 3; ");
  EXPECT_EQ(mesh.delays.size(), 1U);
}

TEST_F(SupervisorTest, all_for_one_restarts_all_and_counts_deaths_that_come_together_once) {
  supervise(Strategy::all_for_one, 1);
  die(2);
  EXPECT_EQ(mesh.told(), "end 0; end 1; end 3; ");
  die(0);
  die(3);
  EXPECT_EQ(mesh.told(), "");
  mesh.pass();
  EXPECT_EQ(mesh.told(), "start 0; start 1; start 2; start 3; ");
  supervisor->ended({.rank = 1, .incarnation = 0, .signal = SIGKILL});
  EXPECT_EQ(mesh.told(), "") << "of the incarnation before";
  die(1);
  EXPECT_TRUE(contains(mesh.told(), "is given up"));
}

TEST_F(SupervisorTest, escalate_gives_up_at_once_and_others_after_starts_that_fail) {
  supervise(Strategy::escalate);
  die(0);
  EXPECT_TRUE(contains(mesh.told(), "is given up, as its strategy says; the last: rank 0"));
  supervise(Strategy::all_for_one, 3);
  mesh.broken = true;
  die(0);
  for (int i = 0; i < 3; ++i)
    mesh.pass();
  EXPECT_TRUE(contains(mesh.told(), "it cannot be started again (failed: no such program)"));
  EXPECT_TRUE(mesh.timers.empty());
}

TEST_F(SupervisorTest, deaths_long_ago_are_forgotten) {
  supervise(Strategy::all_for_one, 1);
  die(0);
  mesh.pass();
  clock.advance(61s);
  die(0);
  mesh.pass();
  EXPECT_EQ(restarted.size(), 2U);
}

TEST_F(MeshTest, a_supervised_mesh_comes_back_as_its_strategy_says) {
  std::mutex mutex;
  std::vector<std::vector<std::size_t>> restarted;
  Told<std::size_t> rounds;
  auto mesh = start({{"replica", 3}});
  mesh.supervise({.strategy = Strategy::rest_for_one,
                  .on_restart = [&](const std::vector<std::size_t>& ranks) {
                    {
                      std::lock_guard lock(mutex);
                      restarted.push_back(ranks);
                    }
                    rounds.add(ranks.size());
                  }});
  const auto workers = mesh.spawn<Worker>("worker", "");
  for (const auto& reply : workers.call<&Worker::add>(5).wait())
    ASSERT_EQ(reply, 5);
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  rounds.wait(1);
  const auto sums = workers.call<&Worker::add>(1).wait();
  EXPECT_EQ(sums[0], 6) << "it lived on";
  EXPECT_EQ(sums[1], 1);
  EXPECT_EQ(sums[2], 1);
  EXPECT_EQ(restarted, (std::vector<std::vector<std::size_t>>{{1, 2}}));
  mesh.stop();
  EXPECT_TRUE(unhandled.wait(0).empty());
}

TEST_F(MeshTest, an_owner_without_a_word_about_giving_up_has_it_unhandled) {
  auto mesh = start({{"replica", 2}});
  mesh.supervise({.strategy = Strategy::one_for_one, .restarts = {.restarts_max = 0}});
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  ASSERT_TRUE(mesh.kill(1, SIGTERM));
  const std::string chain = unhandled.wait(1)[0];
  for (const char* part : {"mesh 'workers' is given up", "rank 1"})
    EXPECT_TRUE(contains(chain, part)) << chain;
}

}  // namespace
}  // namespace teson::actor
