#include "teson/job/sample_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/job/test_folder.h"

namespace teson::job {
namespace {

using testing::ElementsAre;

std::uint64_t planned(std::int64_t step, int lane) {
  return static_cast<std::uint64_t>(step * 100 + lane);
}

LedgerLine line(std::int64_t step, std::vector<int> lanes) {
  LedgerLine made{step, 1, {}};
  for (const int lane : lanes)
    made.lanes.push_back({lane, lane % 2, 8, planned(step, lane)});
  return made;
}

const LedgerPlan kPlan{3, 2, 8, planned};

TEST(SampleLedger, a_whole_ledger_is_complete) {
  const LedgerCheck check =
      check_ledger({line(1, {0, 1}), line(2, {1, 0}), line(3, {0, 1}), line(4, {0})}, kPlan);
  EXPECT_TRUE(check.complete()) << check.problems[0];
  EXPECT_EQ(check.samples_planned, 48);
  EXPECT_EQ(check.samples_used, 48);
}

TEST(SampleLedger, missing_double_and_foreign_lanes_are_named) {
  const LedgerCheck check =
      check_ledger({line(1, {0}), line(2, {0, 1, 1}), line(3, {0, 1, 5})}, kPlan);
  EXPECT_THAT(check.problems, ElementsAre("step 1 lane 1: expected once, found 0 times",
                                          "step 2 lane 1: expected once, found 2 times",
                                          "step 3: lane 5 does not exist; expected 0 to 1"));
  EXPECT_EQ(check.samples_used, 8 + 8 + 16);
  EXPECT_FALSE(check.complete());
}

TEST(SampleLedger, missing_steps_are_named) {
  EXPECT_THAT(check_ledger(std::vector<LedgerLine>{}, kPlan).problems,
              ElementsAre("steps 1 to 3: expected in the ledger, not found"));
  EXPECT_THAT(check_ledger({line(1, {0, 1}), line(3, {0, 1})}, kPlan).problems,
              ElementsAre("steps 2 to 2: expected in the ledger, not found"));
}

TEST(SampleLedger, other_samples_than_planned_are_found_by_their_hash) {
  LedgerLine wrong = line(2, {0, 1});
  wrong.lanes[1].sample_hash = 7;
  const LedgerCheck check = check_ledger({line(1, {0, 1}), wrong, line(3, {0, 1})}, kPlan);
  EXPECT_THAT(check.problems,
              ElementsAre("step 2 lane 1: replica 1 used other samples than planned"));
  EXPECT_EQ(check.samples_used, 40);
  wrong = line(2, {0, 1});
  wrong.lanes[0].samples = 7;
  EXPECT_FALSE(check_ledger({line(1, {0, 1}), wrong, line(3, {0, 1})}, kPlan).complete());
}

TEST(SampleLedger, problems_are_bounded) {
  EXPECT_EQ(check_ledger(std::vector<LedgerLine>{line(1, {})}, {1, 500, 1, {}}).problems.size(),
            10u);
}

TEST(SampleLedger, steps_computed_again_after_a_resume_count_once) {
  const TestFolder folder;
  const auto path = folder.path() / "ledger.jsonl";
  auto writer = RecordWriter::open(path).value();
  LedgerLine cut_off = line(2, {0});
  for (const LedgerLine& each : {line(1, {0, 1}), cut_off, line(2, {0, 1}), line(3, {0, 1})})
    ASSERT_TRUE(writer.write(each));
  const auto check = check_ledger(path, kPlan);
  ASSERT_TRUE(check);
  EXPECT_TRUE(check->complete());
}

}  // namespace
}  // namespace teson::job
