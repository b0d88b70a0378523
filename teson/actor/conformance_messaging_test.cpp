// Order, delivery, reductions, choice.
#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

TEST_F(MeshTest, messages_of_one_sender_arrive_in_the_order_sent_however_they_are_sent) {
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  std::vector<int> expected;
  for (int i = 0; i < 300; ++i) {
    // The children's mailboxes hold 8 messages: the calls between let them catch up.
    if (i % 3 == 0) {
      ASSERT_TRUE(workers.cast<&Worker::add>(i));
    } else if (i % 3 == 1) {
      ASSERT_TRUE(workers.at(1).cast<&Worker::add>(i));
    } else {
      ASSERT_TRUE(workers.at(1).call_one<&Worker::add>(i).wait());
    }
    expected.push_back(i);
  }
  EXPECT_EQ(workers.at(1).call_one<&Worker::history>().wait(), expected);
}

TEST_F(MeshTest, each_of_many_senders_has_its_own_order) {
  std::vector<std::vector<int>> heard(8);
  std::atomic<int> count{0};
  const auto listener =
      system.host<Listener>("listener", std::make_unique<ListenerActor>(heard, count));
  auto mesh = start({{"replica", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  auto told = workers.call<&Worker::tell>(listener, 2000);
  std::vector<std::thread> threads;
  for (std::uint64_t sender = 2; sender < 6; ++sender) {
    threads.emplace_back([&, sender] {
      for (int i = 0; i < 2000; ++i)
        ASSERT_TRUE(system.actor(listener).cast<&Listener::heard>(sender, i));
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (const auto& done : told.wait())
    ASSERT_TRUE(done) << done.error().describe();
  // Each worker asks after all that it has told, and so does this process.
  for (const auto& answer : workers.call<&Worker::ask>(listener, 1).wait())
    ASSERT_EQ(answer, 2);
  ASSERT_TRUE(system.actor(listener).call<&Listener::twice>(1).wait());
  std::vector<int> expected(2000);
  for (int i = 0; i < 2000; ++i)
    expected[static_cast<std::size_t>(i)] = i;
  for (std::size_t sender = 0; sender < 6; ++sender)
    EXPECT_EQ(heard[sender], expected) << "sender " << sender;
}

TEST_F(MeshTest, a_cast_reaches_each_member_of_a_slice_once_at_its_place_there) {
  auto mesh = start({{"replica", 3}, {"shard", 2}});
  auto workers = mesh.spawn<Worker>("worker", "");
  const auto column = workers.at("shard", 1);
  ASSERT_TRUE(column);
  ASSERT_TRUE(workers.cast<&Worker::note>("all"));
  ASSERT_TRUE(column->cast<&Worker::note>("column"));
  ASSERT_TRUE(column->slice("replica", 1, 3)->cast<&Worker::note>("lower"));
  ASSERT_TRUE(workers.at(5).cast<&Worker::note>("last"));
  using Notes = std::vector<std::string>;
  const std::vector<Notes> expected{
      {"all at 0 of 6"}, {"all at 1 of 6", "column at 0 of 3"},
      {"all at 2 of 6"}, {"all at 3 of 6", "column at 1 of 3", "lower at 0 of 2"},
      {"all at 4 of 6"}, {"all at 5 of 6", "column at 2 of 3", "lower at 1 of 2", "last at 0 of 1"},
  };
  const auto notes = workers.call<&Worker::notes>().wait();
  for (std::size_t rank = 0; rank < 6; ++rank)
    EXPECT_EQ(notes[rank], expected[rank]) << "rank " << rank;
}

TEST_F(MeshTest, a_cast_past_a_dead_member_reaches_the_others_and_says_so) {
  Exits exits;
  auto mesh = start({{"replica", 3}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ASSERT_TRUE(mesh.kill(1, SIGKILL));
  exits.wait(1);
  const auto sent = workers.cast<&Worker::note>("past");
  ASSERT_FALSE(sent);
  EXPECT_TRUE(contains(sent.error().message, "rank 1"));
  for (const std::size_t rank : {0, 2})
    EXPECT_EQ(workers.at(rank).call_one<&Worker::notes>().wait()->size(), 1U);
}

TEST_F(MeshTest, reductions_take_one_reply_of_every_member) {
  auto mesh = start({{"replica", 4}});
  auto workers = mesh.spawn<Worker>("worker", "");
  const std::vector<double> values{1e16, 1.0, -1e16, 0.5};
  for (const std::vector<int>& naps : {std::vector<int>{0, 0, 0, 0}, {30, 0, 20, 10}}) {
    const auto positive = workers.reduce<&Worker::give>(Gather{}, values, naps);
    EXPECT_FALSE(positive) << "rank 2 gives nothing that is negative";
    EXPECT_EQ(positive.error().message, "1 of 4 ranks failed: rank 2: failed: nothing to give");
    // In the order of ranks each 1 is lost; the other way round they would be 4 more.
    const auto sum = workers.reduce<&Worker::give>(Sum{}, std::vector<double>{1e16, 1, 1, 1}, naps);
    ASSERT_TRUE(sum) << sum.error().describe();
    EXPECT_EQ(sum->value, 1e16);
    EXPECT_EQ(sum->ranks, (std::vector<std::size_t>{0, 1, 2, 3}));
  }
  EXPECT_EQ(workers.reduce<&Worker::nap>(Count{}, 1)->value, 4U) << "a barrier";
  EXPECT_EQ(workers.reduce<&Worker::greeting>(Gather{})->value.size(), 4U);
  ASSERT_TRUE(mesh.kill(3, SIGKILL));
  const auto broken = workers.reduce<&Worker::nap>(Count{}, 1);
  ASSERT_FALSE(broken);
  EXPECT_TRUE(contains(broken.error().message, "1 of 4 ranks failed: rank 3: disconnected: rank 3"))
      << broken.error().message;
}

TEST_F(MeshTest, casts_that_nobody_takes_return_to_their_sender) {
  auto mesh = start({{"replica", 1}});
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_TRUE(worker.call_one<&Worker::add>(1).wait());
  // To an actor that was never there.
  const ActorRef<Worker> nobody{worker.ref(0).proc, 12345};
  ASSERT_TRUE(system.actor(nobody).cast<&Worker::add>(1));
  auto lost = returned.wait(1)[0];
  EXPECT_EQ(lost.actor, 12345U);
  EXPECT_EQ(lost.error.kind, ErrorKind::invalid);
  EXPECT_TRUE(contains(lost.where, "rank 0"));
  EXPECT_EQ(system.actor(nobody).call<&Worker::add>(1).wait().error().kind, ErrorKind::invalid);
  // To a mailbox that is full (the child's hold 8 messages).
  ASSERT_TRUE(worker.cast<&Worker::nap>(200));
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(worker.cast<&Worker::add>(1));
  const auto full = returned.wait(12);
  EXPECT_EQ(full.back().error.kind, ErrorKind::overloaded);
  // To a process that is not a relative.
  EXPECT_EQ(system.actor(ActorRef<Worker>{999, 1}).cast<&Worker::add>(1).error().kind,
            ErrorKind::disconnected);
}

TEST_F(MeshTest, casts_of_a_child_that_its_owner_does_not_take_are_logged_there) {
  auto mesh = start({{"replica", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_TRUE(worker.call_one<&Worker::tell>(ActorRef<Listener>{0, 4711}, 1).wait());
  const auto log = [&] {
    std::ifstream file(log_of(0));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (const Instant end = in(10s); !contains(log(), "for actor 4711");) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << log();
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_TRUE(contains(log(), "the parent process could not take a message")) << log();
}

TEST_F(MeshTest, choose_balances_over_the_living_and_takes_turns_among_equals) {
  Exits exits;
  auto mesh = start({{"replica", 3}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  std::map<std::uint64_t, int> chosen;
  for (int i = 0; i < 9; ++i)
    ++chosen[workers.choose<&Worker::place>().wait()->rank];
  EXPECT_EQ(chosen, (std::map<std::uint64_t, int>{{0, 3}, {1, 3}, {2, 3}}));
  // A busy rank is passed over, whatever kind of call keeps it busy, also one that was given up.
  auto busy = workers.at(1).call_one<&Worker::nap>(300);
  (void)workers.within(1ms).at(0).call_one<&Worker::nap>(300).wait();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(workers.choose<&Worker::place>().wait()->rank, 2U);
  ASSERT_TRUE(busy.wait());
  std::vector<CallOne<testing::Place>> many;
  for (int i = 0; i < 12; ++i)
    many.push_back(workers.choose<&Worker::place>());
  chosen.clear();
  for (auto& call : many)
    ++chosen[call.wait()->rank];
  EXPECT_EQ(chosen.size(), 3U);
  // A dead one is not chosen; who dies with a call says who it was.
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ASSERT_TRUE(mesh.kill(2, SIGKILL));
  exits.wait(1);
  for (int i = 0; i < 4; ++i)
    EXPECT_NE(workers.choose<&Worker::place>().wait()->rank, 2U);
  auto last = workers.at(2).choose<&Worker::place>();
  EXPECT_TRUE(contains(last.wait().error().message, "rank 2")) << "where nobody lives";
  auto dying = workers.choose<&Worker::crash>(Crash::exit_3);
  const auto error = dying.wait().error();
  EXPECT_EQ(error.kind, ErrorKind::disconnected);
  EXPECT_TRUE(contains(error.message, "exit code 3")) << error.message;
}

TEST_F(MeshTest, a_stream_yields_in_the_order_of_completion_and_ends_past_a_death) {
  auto mesh = start({{"replica", 4}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  ASSERT_TRUE(workers.call<&Worker::add>(1).wait()[3]);
  auto stream = workers.stream<&Worker::give>(std::vector<double>{1, 2, 3, 4},
                                              std::vector<int>{200, 5, 100, 60'000});
  std::vector<std::size_t> order;
  for (int i = 0; i < 3; ++i) {
    const auto one = stream.next();
    ASSERT_TRUE(one && one->reply);
    EXPECT_EQ(*one->reply, static_cast<double>(one->rank + 1));
    order.push_back(one->rank);
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{1, 2, 0}));
  ASSERT_TRUE(mesh.kill(3, SIGKILL));
  const auto dead = stream.next();
  ASSERT_TRUE(dead);
  EXPECT_EQ(dead->rank, 3U);
  EXPECT_TRUE(contains(dead->reply.error().message, "SIGKILL"));
  EXPECT_FALSE(stream.next());
}

TEST_F(MeshTest, a_quorum_does_not_wait_for_the_slow_nor_for_the_dead) {
  auto mesh = start({{"replica", 3}});
  auto workers = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(20s)));
  const std::vector<double> values{1, 2, 3};
  const auto begin = std::chrono::steady_clock::now();
  const auto answers =
      workers.call<&Worker::give>(values, std::vector<int>{0, 500, 0}).wait_for(Quorum{2});
  EXPECT_TRUE(answers.quorum);
  EXPECT_EQ(answers.unanswered, std::vector<std::size_t>{1});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 400ms);
  ASSERT_TRUE(mesh.kill(0, SIGKILL));
  const auto none =
      workers.call<&Worker::give>(values, std::vector<int>{0, 0, 0}).wait_for(Quorum{3});
  EXPECT_FALSE(none.quorum);
  const auto one = workers.call<&Worker::give>(values, std::vector<int>{0, 0, 0}).wait_for(any);
  EXPECT_TRUE(one.quorum);
}

TEST_F(MeshTest, a_call_that_is_dropped_is_forgotten_and_its_actor_serves_on) {
  auto mesh = start({{"replica", 1}});
  auto worker = mesh.spawn<Worker>("worker", "").at(0);
  {
    auto dropped = worker.call_one<&Worker::nap>(50);
  }
  Result<int> sum = 0;
  std::thread([&, call = worker.call_one<&Worker::add>(1)]() mutable { sum = call.wait(); }).join();
  EXPECT_EQ(sum, 1) << "waited for on a foreign thread";
}

}  // namespace
}  // namespace teson::actor
