#include "teson/net/spin_budget.h"

#include <gtest/gtest.h>

namespace teson::net {
namespace {

/// Waits that go without a look until the next one that has it.
int skipped(SpinBudget& budget) {
  int count = 0;
  while (!budget.spend())
    ++count;
  return count;
}

TEST(SpinBudgetTest, looks_each_time_while_that_finds_something) {
  SpinBudget budget;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(skipped(budget), 0);
    budget.note(true);
  }
}

TEST(SpinBudgetTest,
     looks_ever_more_seldom_while_that_finds_nothing_and_at_once_again_when_it_does) {
  SpinBudget budget;
  ASSERT_EQ(skipped(budget), 0);
  for (const int expected : {1, 3, 7, 15, 31, 63, 127, 255, 255, 255}) {
    budget.note(false);
    EXPECT_EQ(skipped(budget), expected);
  }
  budget.note(true);
  EXPECT_EQ(skipped(budget), 0);
  budget.note(false);
  EXPECT_EQ(skipped(budget), 1);
}

}  // namespace
}  // namespace teson::net
