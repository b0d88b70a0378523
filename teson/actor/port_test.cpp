// Replies that are given later, over real processes.
#include <future>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

static_assert(std::is_same_v<ReplyOf<&Desk::ask>, int>);
static_assert(std::is_same_v<ReplyOf<&Desk::notify>, void>);
static_assert(std::is_same_v<detail::MethodTraits<decltype(&Desk::fail_with)>::Arguments,
                             std::tuple<std::string, bool>>);
static_assert(!std::is_copy_constructible_v<Port<int>>);

class PortTest : public MeshTest {
 protected:
  PortTest()
      : MeshTest({.on_actor_failure = [this](const ActorFailure& one) { failures.add(one); }}) {
    mesh.emplace(start({{"replica", 1}}));
    desk.emplace(mesh->spawn<Desk>("desk").at(0));
  }
  Told<ActorFailure> failures;
  std::optional<ProcMesh> mesh;
  std::optional<ActorMesh<Desk>> desk;
};

TEST_F(PortTest, a_kept_port_is_answered_by_another_message_while_its_actor_goes_on) {
  auto first = desk->call_one<&Desk::ask>(1);
  auto second = desk->call_one<&Desk::ask>(2);
  EXPECT_TRUE(*desk->call_one<&Desk::settle>(2, 20).wait());
  EXPECT_EQ(second.wait(), 20);
  EXPECT_FALSE(first.done());
  EXPECT_TRUE(*desk->call_one<&Desk::settle>(1, fail(ErrorKind::overloaded, "no room")).wait());
  EXPECT_EQ(first.wait().error(), (Error{ErrorKind::overloaded, "no room"}));
  EXPECT_TRUE(desk->call_one<&Desk::notify>().wait());
}

TEST_F(PortTest, another_thread_answers) {
  auto slow = desk->call_one<&Desk::ask_thread>(1, 100);
  auto quick = desk->call_one<&Desk::ask_thread>(2, 1);
  EXPECT_EQ(quick.wait(), 2);
  EXPECT_FALSE(slow.done());
  EXPECT_EQ(slow.wait(), 1);
}

TEST_F(PortTest, one_that_is_dropped_fails_its_call_and_says_so) {
  const auto dropped = desk->call_one<&Desk::drop>().wait();
  ASSERT_FALSE(dropped);
  EXPECT_EQ(dropped.error().kind, ErrorKind::failed);
  EXPECT_TRUE(contains(dropped.error().message, "dropped")) << dropped.error().message;
  // One that is replaced in the actor's hands is dropped as well.
  auto first = desk->call_one<&Desk::ask>(1);
  auto second = desk->call_one<&Desk::ask>(1);
  EXPECT_TRUE(contains(first.wait().error().message, "dropped"));
  EXPECT_TRUE(*desk->call_one<&Desk::settle>(1, 5).wait());
  EXPECT_EQ(second.wait(), 5);
}

TEST_F(PortTest, a_handler_with_a_port_that_fails_ends_its_actor_and_tells_every_caller) {
  auto kept = desk->call_one<&Desk::ask>(7);
  const auto failed = desk->call_one<&Desk::fail_with>("on purpose", false).wait();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::failed);
  EXPECT_TRUE(contains(failed.error().message, "on purpose")) << failed.error().message;
  const auto told = failures.wait(1);
  EXPECT_EQ(told[0].name, "desk");
  EXPECT_TRUE(contains(told[0].error.message, "on purpose"));
  for (const auto& error : {kept.wait().error(), desk->call_one<&Desk::notify>().wait().error()}) {
    EXPECT_EQ(error.kind, ErrorKind::disconnected);
    EXPECT_TRUE(contains(error.message, "actor 'desk' has ended: ")) << error.message;
    EXPECT_TRUE(contains(error.message, "on purpose")) << error.message;
  }
  auto other = mesh->spawn<Desk>("other").at(0);
  const auto kept_and_failed = other.call_one<&Desk::fail_with>("again", true).wait();
  EXPECT_TRUE(contains(kept_and_failed.error().message, "again"));
}

TEST_F(PortTest, a_cast_has_no_port_to_wait_at) {
  ASSERT_TRUE(desk->cast<&Desk::ask>(3));
  EXPECT_TRUE(*desk->call_one<&Desk::settle>(3, 1).wait()) << "it is there, and answers nobody";
  ASSERT_TRUE(desk->cast<&Desk::drop>());
  EXPECT_TRUE(desk->call_one<&Desk::notify>().wait());
}

TEST_F(PortTest, a_second_answer_ends_the_process) {
  Exits exits;
  mesh->on_failure([&](const ProcExit& exit) { exits.add(exit); });
  EXPECT_EQ(desk->call_one<&Desk::answer_twice>().wait(), 1);
  const auto exit = exits.wait(1)[0];
  EXPECT_EQ(exit.signal, SIGABRT);
  EXPECT_TRUE(contains(exit.describe("m"), "a port is answered once"));
  mesh->stop();
}

TEST_F(PortTest, a_process_that_stops_answers_what_it_has_kept) {
  auto kept = desk->call_one<&Desk::ask>(1);
  ASSERT_TRUE(desk->call_one<&Desk::notify>().wait());
  mesh->stop();
  const auto reply = kept.wait();
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::aborted);
  EXPECT_TRUE(contains(reply.error().message, "actor 'desk' was stopped"));
}

class Keeper {
 public:
  explicit Keeper(std::promise<Port<int>>& kept) : kept_(kept) {}
  void ask(Port<int> port) { kept_.set_value(std::move(port)); }
  using endpoints = Endpoints<&Keeper::ask>;

 private:
  std::promise<Port<int>>& kept_;
};

TEST(Port, outlives_its_system) {
  std::promise<Port<int>> kept;
  Port<int> port;
  std::optional<CallOne<int>> call;
  {
    System system;
    const auto keeper = system.host<Keeper>("keeper", std::make_unique<Keeper>(kept));
    call.emplace(system.actor(keeper).call<&Keeper::ask>());
    port = kept.get_future().get();
    EXPECT_TRUE(port.awaited());
  }
  EXPECT_EQ(call->wait().error().kind, ErrorKind::aborted);
  port.answer(1);
  EXPECT_FALSE(port.open());
}

}  // namespace
}  // namespace teson::actor
