// How failures of handlers, constructors and processes are told.
#include <ostream>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

TEST_F(MeshTest, an_error_with_a_reply_goes_to_the_caller_and_the_actor_lives) {
  auto mesh = start({{"replica", 1}});
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  const auto refused = worker.call_one<&Worker::refuse>("no room").wait();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), (Error{ErrorKind::overloaded, "no room"}));
  const auto thrown = worker.call_one<&Worker::throws>().wait();
  ASSERT_FALSE(thrown);
  EXPECT_EQ(thrown.error().kind, ErrorKind::failed);
  EXPECT_NE(thrown.error().message.find("thrown on purpose"), std::string::npos);
  EXPECT_EQ(worker.call_one<&Worker::add>(2).wait(), 2);
}

/// Hears of actors that end, and of casts that come back.
class HearingTest : public MeshTest {
 protected:
  HearingTest()
      : MeshTest({.on_actor_failure = [this](const ActorFailure& one) { failures.add(one); }}) {}
};

TEST_F(HearingTest, an_error_without_a_reply_ends_the_actor_and_tells_the_owner_once) {
  auto mesh = start({{"replica", 1}});
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_FALSE(worker.call_one<&Worker::throws>().wait()) << "with a reply it is the caller's";
  ASSERT_TRUE(worker.cast<&Worker::throws>());
  const auto told = failures.wait(1);
  EXPECT_EQ(told[0].name, "worker");
  EXPECT_TRUE(contains(told[0].where, "rank 0 (pid " + std::to_string(mesh.pid(0))));
  const auto after = worker.call_one<&Worker::add>(1).wait();
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().kind, ErrorKind::disconnected);
  EXPECT_TRUE(contains(after.error().message, "thrown on purpose"));
  // A dead actor's casts return to who sent them; it does not die twice.
  ASSERT_TRUE(worker.cast<&Worker::throws>());
  EXPECT_TRUE(contains(returned.wait(1)[0].error.message, "thrown on purpose"));
  EXPECT_EQ(failures.wait(1).size(), 1U);
  // The process is not poisoned: another actor can be spawned in it.
  EXPECT_EQ(mesh.spawn<Worker>("again", "").at(0).call_one<&Worker::add>(1).wait(), 1);
}

TEST_F(HearingTest, a_constructor_error_reaches_caller_and_owner_with_its_text) {
  auto mesh = start({{"replica", 1}});
  const auto reply = mesh.spawn<Broken>("broken").at(0).call_one<&Broken::anything>().wait();
  ASSERT_FALSE(reply);
  EXPECT_TRUE(contains(reply.error().message, "broken on purpose"));
  const auto told = failures.wait(1);
  EXPECT_EQ(told[0].name, "broken");
  EXPECT_TRUE(contains(told[0].error.message, "broken on purpose"));
}

/// How a process ends, and what is said about it.
struct End {
  Crash how;
  int signal;
  int code;
  const char* text;
};
void PrintTo(const End& end, std::ostream* out) {
  *out << end.text;
}
class CrashTest : public MeshTest, public ::testing::WithParamInterface<End> {};

TEST_P(CrashTest, completes_what_waits_and_says_who_where_and_how) {
  Exits exits;
  const End end = GetParam();
  auto mesh = start({{"replica", 2}});
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  auto workers = mesh.spawn<Worker>("worker", "");
  const auto reference = system.actor(workers.ref(1));
  ASSERT_TRUE(workers.call<&Worker::add>(1).wait()[1]);
  auto pending = workers.within(30s).call<&Worker::nap>(200);
  ASSERT_TRUE(workers.at(1).cast<&Worker::crash>(end.how));
  const auto replies = workers.within(30s).call<&Worker::add>(1).wait();
  EXPECT_EQ(replies[0], 2) << "the other rank goes on";
  ASSERT_FALSE(replies[1]);
  EXPECT_EQ(replies[1].error().kind, ErrorKind::disconnected);
  const auto exit = exits.wait(1)[0];
  const std::string pid = "pid " + std::to_string(exit.pid);
  for (const std::string& part :
       {std::string("rank 1"), pid, "host '" + exit.host + "'", std::string("mesh 'workers'"),
        std::string(end.text), std::string("about to crash")}) {
    EXPECT_TRUE(contains(replies[1].error().message, part)) << part << " is missing in\n"
                                                            << replies[1].error().message;
  }
  EXPECT_FALSE(exit.host.empty());
  EXPECT_EQ(exit.rank, 1U);
  EXPECT_EQ(exit.signal, end.signal);
  EXPECT_EQ(exit.exit_code, end.code);
  EXPECT_FALSE(exit.expected);
  // Every later message is told the same, by handle or by reference.
  EXPECT_EQ(workers.at(1).call_one<&Worker::add>(1).wait().error(), replies[1].error());
  EXPECT_EQ(reference.call<&Worker::add>(1).wait().error(), replies[1].error());
  EXPECT_EQ(workers.cast<&Worker::add>(1).error(), replies[1].error());
}

INSTANTIATE_TEST_SUITE_P(Ends, CrashTest,
                         ::testing::Values(End{Crash::kill_self, SIGKILL, -1, "signal 9 (SIGKILL)"},
                                           End{Crash::segfault, SIGSEGV, -1, "signal 11 (SIGSEGV)"},
                                           End{Crash::abort, SIGABRT, -1, "signal 6 (SIGABRT)"},
                                           End{Crash::exit_3, 0, 3, "exit code 3"}));

}  // namespace
}  // namespace teson::actor
