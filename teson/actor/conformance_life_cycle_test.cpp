// How processes begin and end.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(MeshTest, stop_is_idempotent_and_never_hangs) {
  Exits exits;
  {
    auto fresh = start({{"replica", 2}});
    fresh.stop();
    fresh.stop();
    EXPECT_TRUE(fresh.exit_of(0) && fresh.exit_of(1)) << "also before they have attached";
  }
  auto mesh = start({{"replica", 3}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  exits.wait(1);
  ASSERT_TRUE(mesh.kill(2, SIGKILL)) << "one is dead, one is dying";
  auto pending = workers.call<&Worker::nap>(50);
  std::thread other([&] { mesh.stop(); });
  mesh.stop();
  other.join();
  EXPECT_EQ(mesh.exit_of(0)->exit_code, 0);
  EXPECT_FALSE(pending.wait()[2]);
  EXPECT_EQ(workers.call<&Worker::add>(1).wait()[0].error().kind, ErrorKind::disconnected);
}

TEST_F(MeshTest, children_are_cleaned_up_before_their_parent_and_cleanup_runs_once) {
  std::vector<std::int64_t> pids;
  {
    auto mesh = start({{"replica", 1}});
    auto nest = mesh.spawn<Nest>("nest").at(0);
    auto hatched = nest.call_one<&Nest::hatch>(2, Reaction::replace).wait();
    ASSERT_TRUE(hatched) << hatched.error().describe();
    pids = *hatched;
    ASSERT_EQ(nest.call_one<&Nest::add>(0, 2).wait(), 2);
    mesh.stop();
    EXPECT_EQ(mesh.exit_of(0)->exit_code, 0);
    EXPECT_TRUE(mesh.exit_of(0)->expected);
  }
  for (const auto pid : pids)
    EXPECT_FALSE(is_alive(static_cast<pid_t>(pid)));
  const std::string log = text_of(log_of(0));
  const auto first = log.find("the nest is cleaned up");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("the nest is cleaned up", first + 1), std::string::npos);
}

TEST_F(MeshTest, stop_asks_first_and_kills_what_stays) {
  Exits exits;
  auto mesh = start({{"replica", 2}});
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  mesh.stop();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto exit = mesh.exit_of(rank);
    ASSERT_TRUE(exit);
    EXPECT_EQ(exit->exit_code, 0);
    EXPECT_TRUE(exit->expected);
    EXPECT_FALSE(is_alive(exit->pid));
  }
  EXPECT_TRUE(exits.wait(0).empty()) << "an expected end is no failure";
  EXPECT_EQ(mesh.replace(0).error().kind, ErrorKind::aborted);

  auto slow = options("stubborn");
  slow.stop_grace = 50ms;
  slow.term_grace = 50ms;
  auto stubborn = start({{"replica", 1}}, slow);
  ASSERT_TRUE(stubborn.wait_attached(in(20s)));
  std::this_thread::sleep_for(20ms);
  const auto begin = std::chrono::steady_clock::now();
  stubborn.stop();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 100ms);
  EXPECT_EQ(stubborn.exit_of(0)->signal, SIGKILL);
  EXPECT_NE(stubborn.exit_of(0)->describe("m").find("had to be killed"), std::string::npos);
}

TEST_F(MeshTest, a_spawn_that_fails_or_takes_too_long_on_some_ranks_says_which) {
  Exits exits;
  auto one_silent = options();
  one_silent.attach_deadline = 300ms;
  one_silent.arguments = [](const ProcPlace& place) {
    return std::vector<std::string>{place.rank == 2 ? "never_attach" : "serve"};
  };
  auto silent = start({{"replica", 3}}, one_silent);
  const auto late = silent.wait_attached(in(20s));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::disconnected);
  EXPECT_TRUE(contains(late.error().message, "rank 2")) << late.error().message;
  EXPECT_TRUE(contains(late.error().message, "handshake")) << late.error().message;

  auto one_leaves = options();
  one_leaves.arguments = [](const ProcPlace& place) {
    return std::vector<std::string>{place.rank == 1 ? "leave" : "serve"};
  };
  auto leaving = start({{"replica", 3}}, one_leaves);
  leaving.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  EXPECT_EQ(exits.wait(1)[0].rank, 1U);
  const auto gone = leaving.wait_attached(in(20s));
  ASSERT_FALSE(gone);
  for (const char* part : {"rank 1", "exit code 7", "leaving by myself"})
    EXPECT_TRUE(contains(gone.error().message, part)) << gone.error().message;
}

TEST_F(MeshTest, a_process_goes_from_starting_to_attached_to_ended_and_never_back) {
  Exits exits;
  auto mesh = start({{"replica", 1}});
  EXPECT_FALSE(mesh.exit_of(0));
  EXPECT_EQ(mesh.incarnation(0), 0U);
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ASSERT_TRUE(mesh.kill(0, SIGSTOP));
  EXPECT_FALSE(mesh.exit_of(0)) << "stopped is not ended";
  ASSERT_TRUE(mesh.kill(0, SIGKILL));
  EXPECT_EQ(exits.wait(1)[0].signal, SIGKILL);
  EXPECT_EQ(mesh.kill(0, SIGTERM).error().kind, ErrorKind::disconnected);
  EXPECT_FALSE(mesh.wait_attached(in(1s))) << "once dead it does not attach";
  ASSERT_TRUE(mesh.replace(0));
  EXPECT_FALSE(mesh.exit_of(0)) << "another process, another life";
  EXPECT_EQ(mesh.incarnation(0), 1U);
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.stop();
  EXPECT_TRUE(mesh.exit_of(0)->expected);
  EXPECT_EQ(mesh.replace(0).error().kind, ErrorKind::aborted);
  EXPECT_EQ(exits.wait(1).size(), 1U);
}

/// A parent process that is killed: its children must go.
void kill_parent_and_expect_no_child(bool death_signal, std::string child_mode) {
  int out[2];
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::string child = TESON_ACTOR_TEST_CHILD;
  std::string mode = "parent";
  std::string flag = death_signal ? "1" : "0";
  char* arguments[] = {child.data(), mode.data(),       child.data(),
                       flag.data(),  child_mode.data(), nullptr};
  pid_t parent = 0;
  ASSERT_EQ(::posix_spawn(&parent, child.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  FILE* lines = ::fdopen(out[0], "r");
  int pids[2] = {0, 0};
  ASSERT_EQ(std::fscanf(lines, "%d %d", &pids[0], &pids[1]), 2);
  std::fclose(lines);
  for (const int pid : pids)
    ASSERT_TRUE(is_alive(pid));
  const auto begin = std::chrono::steady_clock::now();
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  while (runs(pids[0]) || runs(pids[1])) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, 5s);
    std::this_thread::sleep_for(1ms);
  }
  const double ms = to_ms(std::chrono::steady_clock::now() - begin);
  std::printf("children gone %.1f ms after their parent (%s)\n", ms,
              death_signal ? "death signal" : "by themselves");
  EXPECT_LT(ms, 2000) << "the orphan's grace is 200 ms; thread sanitizer sleeps a second at exit";
}

TEST(Orphans, are_killed_with_their_parent) {
  kill_parent_and_expect_no_child(true, "hang");
}
TEST(Orphans, end_themselves_where_the_kernel_does_not_do_it_though_their_threads_hang) {
  kill_parent_and_expect_no_child(false, "hang");
}
TEST(Orphans, end_themselves_also_before_they_have_started) {
  kill_parent_and_expect_no_child(false, "attached");
}

}  // namespace
}  // namespace teson::actor
