// Handlers that run on the thread that brings their message.
#include <atomic>
#include <future>
#include <thread>

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

/// Hosted by this process.
class Counter {
 public:
  std::uint64_t thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }
  void count(std::uint64_t sender, int value) {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "one handler at a time";
    heard_.at(sender).push_back(value);
    inside_.fetch_sub(1);
  }
  int heard(std::uint64_t sender) { return static_cast<int>(heard_.at(sender).size()); }
  bool in_order() {
    for (const auto& values : heard_) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] != static_cast<int>(i)) return false;
      }
    }
    return true;
  }
  void nap(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  int throws() { throw std::runtime_error("thrown on purpose"); }
  using endpoints = Endpoints<&Counter::thread, &Counter::count, &Counter::heard,
                              &Counter::in_order, &Counter::nap, &Counter::throws>;

 private:
  std::atomic<int> inside_{0};
  std::vector<std::vector<int>> heard_{8};
};

class InPlaceTest : public MeshTest {
 protected:
  static constexpr ActorOptions in_place{.handlers = Handlers::in_place};
  Actor<Counter> counter =
      system.actor(system.host<Counter>("counter", std::make_unique<Counter>(), in_place));

  std::uint64_t own_thread() const {
    return std::hash<std::thread::id>()(std::this_thread::get_id());
  }
  /// Its thread makes it, and may be about to end a turn.
  bool becomes_idle() const {
    for (int i = 0; i < 1000; ++i) {
      if (counter.call<&Counter::thread>().wait() == own_thread()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
};

TEST_F(InPlaceTest, an_idle_actor_runs_on_the_callers_thread_a_busy_one_does_not) {
  ASSERT_TRUE(becomes_idle());
  EXPECT_EQ(counter.call<&Counter::thread>().wait(), own_thread());
  auto busy = std::async(std::launch::async,
                         [&] { return counter.call<&Counter::nap>(200).wait().has_value(); });
  std::this_thread::sleep_for(50ms);
  auto queued = counter.call<&Counter::thread>();
  EXPECT_FALSE(queued.done());
  EXPECT_NE(queued.wait().value(), own_thread());
  EXPECT_TRUE(busy.get());
  EXPECT_TRUE(becomes_idle());
}

TEST_F(InPlaceTest, many_senders_keep_their_order_and_meet_no_other) {
  constexpr int messages = 5000;
  std::vector<std::thread> threads;
  for (std::uint64_t sender = 0; sender < 4; ++sender) {
    threads.emplace_back([&, sender] {
      for (int i = 0; i < messages; ++i) {
        if (i % 7 == 0) {
          ASSERT_TRUE(counter.call<&Counter::count>(sender, i).wait());
        } else {
          ASSERT_TRUE(counter.cast<&Counter::count>(sender, i));
        }
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(counter.call<&Counter::in_order>().wait(), true);
  for (std::uint64_t sender = 0; sender < 4; ++sender)
    EXPECT_EQ(counter.call<&Counter::heard>(sender).wait(), messages);
}

TEST_F(InPlaceTest, a_handler_that_fails_fails_its_caller_and_as_a_cast_ends_the_actor) {
  ASSERT_TRUE(becomes_idle());
  const auto failed = counter.call<&Counter::throws>().wait();
  ASSERT_FALSE(failed);
  EXPECT_TRUE(contains(failed.error().message, "thrown on purpose"));
  EXPECT_TRUE(counter.call<&Counter::thread>().wait());
  ASSERT_TRUE(counter.cast<&Counter::throws>());
  const auto ended = counter.call<&Counter::thread>().wait();
  ASSERT_FALSE(ended);
  EXPECT_TRUE(contains(ended.error().message, "actor 'counter' has ended"));
}

TEST_F(InPlaceTest, in_another_process_it_runs_where_messages_are_read_and_must_not_wait) {
  std::vector<std::vector<int>> heard(2);
  std::atomic<int> count{0};
  const auto listener =
      system.host<Listener>("listener", std::make_unique<ListenerActor>(heard, count));
  auto mesh = start({{"replica", 2}});
  auto quick = mesh.spawn<Quick>("quick");
  for (int i = 0; quick.at(0).call_one<&Quick::thread>().wait() != "teson-io"; ++i) {
    ASSERT_LT(i, 1000);
    std::this_thread::sleep_for(1ms);
  }
  const auto refused = quick.at(0).call_one<&Quick::ask>(listener, 21).wait();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
  EXPECT_TRUE(contains(refused.error().message, "Handlers::own_thread"));
  // What it sends without waiting goes out as ever.
  for (const auto& told : quick.call<&Quick::tell>(listener, 1000).wait())
    ASSERT_TRUE(told) << told.error().describe();
  while (system.actor(listener).call<&Listener::twice>(1).wait() && count < 2000)
    std::this_thread::sleep_for(1ms);
  for (const auto& values : heard) {
    ASSERT_EQ(values.size(), 1000U);
    for (int i = 0; i < 1000; ++i)
      EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(InPlaceTest, replies_that_wait_for_their_caller_do_not_stop_the_reading_of_messages) {
  // Many large replies at once: the callers take them one after another.
  auto mesh = start({{"replica", 1}});
  const auto quick = mesh.spawn<Quick>("quick").at(0);
  constexpr std::uint64_t bytes = 48 << 20;  // 7 are more than a channel holds
  std::vector<CallOne<std::vector<std::byte>>> calls;
  for (int i = 0; i < 7; ++i)
    calls.push_back(quick.call_one<&Quick::give>(bytes));
  for (auto& call : calls) {
    const auto reply = call.wait();
    ASSERT_TRUE(reply) << reply.error().describe();
    EXPECT_EQ(reply->size(), bytes);
  }
}

TEST_F(InPlaceTest, callers_that_read_for_themselves_see_a_death_at_once) {
  auto mesh = start({{"replica", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "").at(0);
  const auto quick = mesh.spawn<Quick>("quick").at(0);
  ASSERT_TRUE(worker.call_one<&Worker::add>(1).wait());
  std::vector<std::thread> threads;
  std::atomic<int> replies{0};
  for (int caller = 0; caller < 4; ++caller) {
    threads.emplace_back([&] {
      while (true) {
        const auto reply = quick.call_one<&Quick::add>(1).wait();
        if (!reply) {
          EXPECT_EQ(reply.error().kind, ErrorKind::disconnected) << reply.error().describe();
          EXPECT_TRUE(contains(reply.error().message, "SIGKILL")) << reply.error().message;
          return;
        }
        ++replies;
      }
    });
  }
  std::this_thread::sleep_for(100ms);
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(mesh.kill(0, SIGKILL));
  for (auto& thread : threads)
    thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  EXPECT_GT(replies, 0);
}

TEST_F(InPlaceTest, a_deadline_ends_the_wait_of_a_caller_that_reads) {
  auto mesh = start({{"replica", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_TRUE(worker.call_one<&Worker::add>(1).wait());
  const auto began = std::chrono::steady_clock::now();
  const auto late = worker.within(100ms).call_one<&Worker::nap>(2000).wait();
  const auto took = std::chrono::steady_clock::now() - began;
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::timed_out);
  EXPECT_GE(took, 100ms);
  EXPECT_LT(took, 1500ms);
}

TEST_F(InPlaceTest, the_end_of_the_mesh_lets_go_of_a_caller_that_reads) {
  auto mesh = start({{"replica", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "").at(0);
  ASSERT_TRUE(worker.call_one<&Worker::add>(1).wait());
  auto waiting = std::async(std::launch::async,
                            [&] { return worker.call_one<&Worker::nap>(30000).wait().error(); });
  std::this_thread::sleep_for(50ms);
  ASSERT_TRUE(mesh.kill(0, SIGKILL));
  EXPECT_EQ(waiting.get().kind, ErrorKind::disconnected);
  mesh.stop();
}

}  // namespace
}  // namespace teson::actor
