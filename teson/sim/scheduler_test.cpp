#include "teson/sim/scheduler.h"

#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "teson/base/thread.h"
#include "teson/sim/run_apart.h"

namespace teson::sim {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// What `body` returns, run in a simulation of its own.
std::string simulated(std::uint64_t seed, const std::function<std::string(Scheduler&)>& body) {
  const auto text = run_apart(
      [&] {
        Scheduler scheduler(seed);
        std::string result;
        const auto failure = scheduler.run([&] { result = body(scheduler); }, 1h);
        return failure ? "failed: " + *failure : result;
      },
      30s);
  return text ? *text : text.error().describe();
}

/// The order in which three threads get a lock five times each.
std::string order(Scheduler& scheduler) {
  std::string text;
  Mutex mutex;
  std::vector<Thread> threads;
  for (const char name : {'a', 'b', 'c'}) {
    threads.emplace_back("letter", [&, name] {
      for (int i = 0; i < 5; ++i) {
        const std::lock_guard lock(mutex);
        text += name;
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  return fmt::format("{} {:x}", text, scheduler.fingerprint());
}

TEST(Scheduler, the_same_seed_is_the_same_run_and_other_seeds_are_others) {
  std::set<std::string> runs;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string run = simulated(seed, order);
    EXPECT_EQ(simulated(seed, order), run);
    EXPECT_EQ(run.find_first_of("abc"), 0U) << run;
    runs.insert(run.substr(0, run.find(' ')));
  }
  EXPECT_GT(runs.size(), 10U);
}

TEST(Scheduler, sleeping_takes_the_time_of_the_simulation_only) {
  const auto real = std::chrono::steady_clock::now();
  EXPECT_EQ(simulated(1,
                      [](Scheduler&) {
                        const Instant began = now();
                        sleep_for(30min);
                        return fmt::format("{:.0f}", to_seconds(now() - began));
                      }),
            "1800");
  EXPECT_LT(std::chrono::steady_clock::now() - real, 10s);
}

TEST(Scheduler, a_wait_ends_at_its_deadline_or_when_it_is_told) {
  EXPECT_EQ(simulated(2,
                      [](Scheduler&) {
                        Mutex mutex;
                        Condition changed;
                        bool is = false;
                        Thread other("other", [&] {
                          sleep_for(3s);
                          const std::lock_guard lock(mutex);
                          is = true;
                          changed.notify_one();
                        });
                        std::unique_lock lock(mutex);
                        const Instant began = now();
                        const bool first = changed.wait_until(lock, began + 1s, [&] { return is; });
                        const double until_first = to_seconds(now() - began);
                        const bool second =
                            changed.wait_until(lock, began + 9s, [&] { return is; });
                        const double until_second = to_seconds(now() - began);
                        lock.unlock();
                        other.join();
                        return fmt::format("{} {:.3f} {} {:.3f}", first, until_first, second,
                                           until_second);
                      }),
            "false 1.000 true 3.000");
}

TEST(Scheduler, says_who_waits_for_what_when_nobody_can_go_on) {
  const std::string text = simulated(3, [](Scheduler&) {
    Mutex first;
    Mutex second;
    Latch has_second;
    Thread other("other", [&] {
      const std::lock_guard hold(second);
      has_second.set();
      const std::lock_guard never(first);
    });
    const std::lock_guard hold(first);
    has_second.wait();
    const std::lock_guard never(second);
    return std::string("not reached");
  });
  EXPECT_THAT(text, HasSubstr("nobody can ever go on"));
  EXPECT_THAT(text, HasSubstr("thread main waits"));
  EXPECT_THAT(text, HasSubstr("thread other waits"));
}

TEST(Scheduler, says_so_when_the_time_is_over) {
  EXPECT_THAT(simulated(4,
                        [](Scheduler&) {
                          sleep_for(2h);
                          return std::string("not reached");
                        }),
              HasSubstr("the time is over"));
}

TEST(Scheduler, the_end_of_a_process_ends_all_its_threads_where_they_are) {
  EXPECT_EQ(simulated(5,
                      [](Scheduler& scheduler) {
                        int beats = 0;
                        std::string ends;
                        scheduler.on_end = [&](Process& process, int code, int signal) {
                          ends += fmt::format("{} {} {};", process.name, code, signal);
                        };
                        const auto beat = [&] {
                          Thread second("second", [&] {
                            while (true) {
                              sleep_for(100ms);
                              ++beats;
                            }
                          });
                          second.join();
                        };
                        Process& child = scheduler.start(scheduler.process(), 0, "child", {}, beat);
                        sleep_for(1050ms);
                        scheduler.end(child, -1, 9);
                        const int before = beats;
                        sleep_for(10s);
                        scheduler.start(scheduler.process(), 0, "other", {},
                                        [] { exit_at_once(3); });
                        sleep_for(1s);
                        return fmt::format("{} {} {}", before, beats, ends);
                      }),
            "10 10 child -1 9;other 3 0;");
}

TEST(Scheduler, a_stopped_process_goes_on_where_it_was) {
  EXPECT_EQ(simulated(6,
                      [](Scheduler& scheduler) {
                        int beats = 0;
                        Process& child = scheduler.start(scheduler.process(), 0, "child", {}, [&] {
                          while (true) {
                            sleep_for(100ms);
                            ++beats;
                          }
                        });
                        sleep_for(1050ms);
                        child.stopped = true;
                        sleep_for(10s);
                        const int stopped = beats;
                        child.stopped = false;
                        sleep_for(1s);
                        return fmt::format("{} {}", stopped, beats);
                      }),
            "10 20");
}

TEST(RunApart, tells_of_a_body_that_ends_its_process_or_hangs) {
  EXPECT_EQ(*run_apart([] { return std::string(100'000, 'x'); }, 10s), std::string(100'000, 'x'));
  EXPECT_THAT(run_apart([]() -> std::string { std::abort(); }, 10s).error().message,
              HasSubstr("signal 6"));
  EXPECT_THAT(run_apart([]() -> std::string { ::_exit(3); }, 10s).error().message,
              HasSubstr("exit code 3"));
  const auto hangs = run_apart(
      [] {
        ::pause();
        return std::string();
      },
      200ms);
  EXPECT_EQ(hangs.error().kind, ErrorKind::timed_out);
}

}  // namespace
}  // namespace teson::sim
