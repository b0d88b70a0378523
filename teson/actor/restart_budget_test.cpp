#include "teson/actor/restart_budget.h"

#include <gtest/gtest.h>

namespace teson::actor {
namespace {

using namespace std::chrono_literals;

TEST(RestartBudget, restarts_at_once_then_after_doubling_delays_then_gives_up) {
  ManualClock clock;
  RestartBudget budget(
      {.restarts_max = 5, .window = 60s, .backoff_first = 100ms, .backoff_max = 250ms, .jitter = 0},
      clock);
  EXPECT_EQ(budget.next(0), Duration(0));
  EXPECT_EQ(budget.next(0), Duration(100ms));
  EXPECT_EQ(budget.next(0), Duration(200ms));
  EXPECT_EQ(budget.next(0), Duration(250ms));
  EXPECT_EQ(budget.next(0), Duration(250ms));
  EXPECT_EQ(budget.next(0), std::nullopt);
  EXPECT_EQ(budget.next(1), Duration(0)) << "another rank has its own budget";
}

TEST(RestartBudget, forgets_what_is_older_than_the_window) {
  ManualClock clock;
  RestartBudget budget({.restarts_max = 2, .window = 10s, .jitter = 0}, clock);
  EXPECT_TRUE(budget.next(0));
  clock.advance(6s);
  EXPECT_TRUE(budget.next(0));
  EXPECT_FALSE(budget.next(0));
  clock.advance(5s);
  EXPECT_EQ(budget.used(0), 1U);
  EXPECT_TRUE(budget.next(0));
  clock.advance(20s);
  EXPECT_EQ(budget.next(0), Duration(0));
}

TEST(RestartBudget, jitter_stays_in_its_bounds_and_follows_the_seed) {
  ManualClock clock;
  const RestartPolicy policy{
      .restarts_max = 100, .backoff_first = 1s, .backoff_max = 1s, .jitter = 0.5, .seed = 7};
  RestartBudget one(policy, clock);
  RestartBudget two(policy, clock);
  Duration least = 10s;
  Duration most = 0s;
  one.next(0);
  two.next(0);
  for (int i = 0; i < 50; ++i) {
    const Duration delay = *one.next(0);
    EXPECT_EQ(delay, *two.next(0));
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, 1s);
  EXPECT_LT(most, 1500ms);
  EXPECT_LT(least, most);
}

}  // namespace
}  // namespace teson::actor
