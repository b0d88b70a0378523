#include "teson/job/failure_ledger.h"

#include <gtest/gtest.h>

namespace teson::job {
namespace {

Instant at(int ms) {
  return Instant(std::chrono::milliseconds(ms));
}

TEST(FailureLedger, phases_of_one_injected_kill) {
  FailureLedger ledger;
  ledger.committed(19, 1, at(900));
  ledger.injected(1, at(1000));
  ledger.died(1, "SIGKILL", at(1003));
  ledger.fenced(2, at(1005));
  ledger.started(2, {0}, at(1010));
  ledger.spawned(1, at(1020));
  ledger.committed(20, 2, at(1100));
  ledger.started(3, {0, 1}, at(1500));
  ledger.committed(22, 3, at(1600));
  ledger.rejoined(1, at(1600));
  ASSERT_EQ(ledger.rows().size(), 1u);
  const FailureRow& row = ledger.rows()[0];
  EXPECT_EQ(row.replica, 1);
  EXPECT_EQ(row.cause, "SIGKILL");
  EXPECT_EQ(row.step, 19);
  EXPECT_TRUE(row.injected);
  EXPECT_EQ(row.detect_ms, 3.0);
  EXPECT_EQ(row.fence_ms, 2.0);
  EXPECT_EQ(row.reconfigure_ms, 7.0);
  EXPECT_EQ(row.commit_ms, 97.0);
  EXPECT_EQ(row.rejoin_ms, 580.0);
}

TEST(FailureLedger, without_an_injection_the_detection_time_is_unknown) {
  FailureLedger ledger;
  ledger.died(0, "SIGSEGV", at(5));
  EXPECT_EQ(ledger.rows()[0].detect_ms, std::nullopt);
  EXPECT_FALSE(ledger.rows()[0].injected);
  EXPECT_EQ(ledger.rows()[0].commit_ms, std::nullopt);
  EXPECT_EQ(ledger.rows()[0].rejoin_ms, std::nullopt);
}

TEST(FailureLedger, an_injection_may_be_heard_of_after_the_death) {
  FailureLedger ledger;
  ledger.died(2, "SIGKILL", at(10));
  ledger.injected(2, at(8));
  EXPECT_EQ(ledger.rows()[0].detect_ms, 2.0);
  ledger.injected(2, at(50));  // the next one
  EXPECT_EQ(ledger.rows()[0].detect_ms, 2.0);
  ledger.spawned(2, at(20));
  ledger.died(2, "SIGKILL", at(53));
  ASSERT_EQ(ledger.rows().size(), 2u);
  EXPECT_EQ(ledger.rows()[1].detect_ms, 3.0);
}

TEST(FailureLedger, commits_of_the_old_epoch_do_not_end_the_failure) {
  FailureLedger ledger;
  ledger.died(1, "SIGKILL", at(10));
  ledger.committed(4, 1, at(11));
  ledger.started(2, {0}, at(20));
  ledger.committed(5, 1, at(21));
  EXPECT_EQ(ledger.rows()[0].commit_ms, std::nullopt);
  ledger.committed(5, 2, at(30));
  EXPECT_EQ(ledger.rows()[0].commit_ms, 20.0);
}

TEST(FailureLedger, a_second_death_before_the_start_is_settled_by_the_start_that_leaves_it_out) {
  FailureLedger ledger;
  ledger.died(1, "SIGKILL", at(10));
  ledger.died(2, "SIGKILL", at(15));
  ledger.started(2, {0, 2}, at(16));  // decided before 2's death was known
  EXPECT_EQ(ledger.rows()[0].reconfigure_ms, 6.0);
  EXPECT_EQ(ledger.rows()[1].reconfigure_ms, std::nullopt);
  ledger.started(3, {0}, at(25));
  ledger.committed(7, 3, at(40));
  EXPECT_EQ(ledger.rows()[0].reconfigure_ms, 6.0);
  EXPECT_EQ(ledger.rows()[1].reconfigure_ms, 10.0);
  EXPECT_EQ(ledger.rows()[0].commit_ms, 30.0);
  EXPECT_EQ(ledger.rows()[1].commit_ms, 25.0);
}

TEST(FailureLedger, a_single_replica_is_settled_by_its_own_replacement) {
  FailureLedger ledger;
  ledger.died(0, "SIGKILL", at(10));
  ledger.spawned(0, at(20));
  ledger.started(2, {0}, at(100));
  ledger.committed(3, 2, at(150));
  ledger.rejoined(0, at(150));
  EXPECT_EQ(ledger.rows()[0].reconfigure_ms, 90.0);
  EXPECT_EQ(ledger.rows()[0].commit_ms, 140.0);
  EXPECT_EQ(ledger.rows()[0].rejoin_ms, 130.0);
}

TEST(FailureLedger, a_replacement_that_dies_too_is_a_failure_of_its_own) {
  FailureLedger ledger;
  ledger.died(1, "SIGKILL", at(10));
  ledger.died(1, "end of stream", at(11));  // the same death, told by another
  ledger.spawned(1, at(20));
  ledger.died(1, "exit code 3", at(30));
  ledger.spawned(1, at(40));
  ledger.rejoined(1, at(100));
  ASSERT_EQ(ledger.rows().size(), 2u);
  EXPECT_EQ(ledger.rows()[0].rejoin_ms, std::nullopt);
  EXPECT_EQ(ledger.rows()[1].rejoin_ms, 60.0);
}

TEST(FailureLedger, first_workers_rejoin_nothing) {
  FailureLedger ledger;
  ledger.spawned(0, at(0));
  ledger.rejoined(0, at(5));
  EXPECT_TRUE(ledger.rows().empty());
  ledger.died(0, "x", at(10));
  ledger.rejoined(0, at(12));  // late word of the first life
  EXPECT_EQ(ledger.rows()[0].rejoin_ms, std::nullopt);
}

}  // namespace
}  // namespace teson::job
