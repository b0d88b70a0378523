#include "teson/job/inject.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/job/test_folder.h"

namespace teson::job {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& text) {
  const auto plan = parse_faults({text});
  return plan ? "no error" : plan.error().message;
}

TEST(Inject, faults_at_a_place_are_read) {
  const auto plan = parse_faults(
      {"kill:replica=1,step=20", "hang:step=3,replica=0,phase=reduce", "nan:replica=0,step=1"});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->faults.size(), 3u);
  EXPECT_EQ(plan->faults[0], (Fault{FaultKind::kill, 1, 20, FaultPhase::compute}));
  EXPECT_EQ(plan->faults[1], (Fault{FaultKind::hang, 0, 3, FaultPhase::reduce}));
  EXPECT_EQ(plan->faults[0].name(), "kill-replica1-step20-compute");
  EXPECT_EQ(plan->due(1, 20, FaultPhase::compute).size(), 1u);
  EXPECT_TRUE(plan->due(1, 20, FaultPhase::vote).empty());
  EXPECT_TRUE(plan->due(0, 20, FaultPhase::compute).empty());
  EXPECT_FALSE(plan->empty());
  EXPECT_TRUE(parse_faults({})->empty());
}

TEST(Inject, random_faults_are_read) {
  const auto plan = parse_faults({"kill:every=15s,seed=7", "stop:every=1.5m,count=3"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->random[0],
            (RandomFaults{FaultKind::kill, std::chrono::seconds(15), 7, std::nullopt}));
  EXPECT_EQ(plan->random[1], (RandomFaults{FaultKind::stop, std::chrono::seconds(90), 0, 3}));
}

TEST(Inject, texts_give_the_same_plan_again) {
  const auto plan =
      parse_faults({"segfault:replica=3,step=1000000,phase=checkpoint",
                    "exception:replica=0,step=2,phase=vote", "kill:every=250ms,seed=9,count=4"});
  ASSERT_TRUE(plan);
  const auto again = parse_faults(to_texts(*plan));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->faults, plan->faults);
  EXPECT_EQ(again->random, plan->random);
}

TEST(Inject, errors_name_the_part) {
  EXPECT_THAT(error_of("kil:replica=1,step=2"), HasSubstr("unknown fault \"kil\""));
  EXPECT_THAT(error_of(""), HasSubstr("unknown fault"));
  EXPECT_THAT(error_of("kill"), HasSubstr("expected replica=NUMBER"));
  EXPECT_THAT(error_of("kill:replica=1"), HasSubstr("expected step=NUMBER"));
  EXPECT_THAT(error_of("kill:replica=1,step=0"), HasSubstr("step: expected a whole number from 1"));
  EXPECT_THAT(error_of("kill:replica=-1,step=1"), HasSubstr("replica: expected"));
  EXPECT_THAT(error_of("kill:replica=1,step=1e3"), HasSubstr("found \"1e3\""));
  EXPECT_THAT(error_of("kill:replica=1,step=99999999999999999999"), HasSubstr("step: expected"));
  EXPECT_THAT(error_of("kill:replica=1,stp=2"), HasSubstr("the nearest known one is step"));
  EXPECT_THAT(error_of("kill:replica=1,step=2,phase=voting"),
              HasSubstr("phase: expected one of compute, reduce, vote, apply, checkpoint"));
  EXPECT_THAT(error_of("kill:replica=1,step=2,step=3"), HasSubstr("\"step\" occurs twice"));
  EXPECT_THAT(error_of("kill:replica=1,step"), HasSubstr("expected name=value, found \"step\""));
  EXPECT_THAT(error_of("kill:replica=1,step=2,seed=1"), HasSubstr("goes with every="));
  EXPECT_THAT(error_of("kill:every=15s,step=2"), HasSubstr("goes with step="));
  EXPECT_THAT(error_of("kill:every=15"), HasSubstr("expected a duration"));
  EXPECT_THAT(error_of("kill:every=0s"), HasSubstr("expected a duration"));
  EXPECT_THAT(error_of("kill:every=1e9s"), HasSubstr("expected a duration"));
  EXPECT_THAT(error_of("nan:every=15s"), HasSubstr("only kill, stop and segfault"));
  EXPECT_THAT(error_of("nan:replica=1,step=2,phase=vote"), HasSubstr("compute only"));
  EXPECT_THAT(parse_faults({"kill:replica=1,step=2", "kill:step=2,replica=1"}).error().message,
              HasSubstr("named twice"));
  EXPECT_FALSE(parse_faults(std::vector<std::string>(20'000, "kill:every=1s")));
}

TEST(Inject, faults_must_fit_the_job) {
  Config config;
  EXPECT_TRUE(check_faults(parse_faults({"kill:replica=1,step=100"}).value(), config));
  EXPECT_THAT(check_faults(parse_faults({"kill:replica=2,step=1"}).value(), config).error().message,
              testing::StartsWith("--inject kill:replica=2,step=1: there is no replica 2"));
  EXPECT_THAT(
      check_faults(parse_faults({"kill:replica=1,step=101"}).value(), config).error().message,
      HasSubstr("train.steps is 100"));
}

TEST(Inject, random_times_have_the_mean_asked_for_and_depend_only_on_the_seed) {
  const RandomFaults random{FaultKind::kill, std::chrono::seconds(10), 3, std::nullopt};
  const RandomFaults same = random;
  RandomFaults other = random;
  other.seed = 4;
  Duration last{};
  std::vector<int> hits(3, 0);
  for (int n = 0; n < 1000; ++n) {
    const Duration gap = random.time_of(n) - last;
    EXPECT_GE(gap, std::chrono::seconds(5) - std::chrono::nanoseconds(1));
    EXPECT_LT(gap, std::chrono::seconds(15) + std::chrono::nanoseconds(1));
    last = random.time_of(n);
    ++hits[static_cast<std::size_t>(random.victim_of(n, 3))];
  }
  // Standard error of the mean gap: 10 s / sqrt(12 · 1000) = 0.091 s.
  EXPECT_NEAR(to_seconds(last) / 1000, 10, 0.5);
  for (const int hit : hits)
    EXPECT_NEAR(hit, 333, 90);
  EXPECT_EQ(random.time_of(5), same.time_of(5));
  EXPECT_NE(random.time_of(5), other.time_of(5));
}

TEST(Inject, a_fault_fires_in_one_of_many_processes) {
  const TestFolder folder;
  const Fault fault{FaultKind::kill, 1, 20, FaultPhase::vote};
  EXPECT_EQ(claimed_at(folder.path(), fault), std::nullopt);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto claimed = claim_fault(folder.path(), fault, Instant(Duration(1234 + i)));
      ::_exit(claimed ? *claimed : 2);
    }
    children.push_back(child);
  }
  int fired = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    fired += WEXITSTATUS(status);
  }
  EXPECT_EQ(fired, 1);
  const auto at = claimed_at(folder.path(), fault);
  ASSERT_TRUE(at);
  EXPECT_GE(at->time_since_epoch().count(), 1234);
  EXPECT_FALSE(claim_fault(folder.path(), fault, Instant{}).value());
  const auto plan = parse_faults({"kill:replica=1,step=20,phase=vote", "nan:replica=0,step=7"});
  EXPECT_EQ(unfired(folder.path(), *plan), std::vector<std::string>{"nan:replica=0,step=7"});
  EXPECT_FALSE(claim_fault(folder.path() / "none", fault, Instant{}));
}

TEST(Inject, a_cut_claim_has_no_instant) {
  const TestFolder folder;
  const Fault fault;
  const std::string whole = "12345\n";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(folder.path() / fault.name()) << whole.substr(0, length);
    EXPECT_EQ(claimed_at(folder.path(), fault), std::nullopt);
  }
  std::ofstream(folder.path() / fault.name()) << std::string(1000, '1');
  EXPECT_EQ(claimed_at(folder.path(), fault), std::nullopt);
}

}  // namespace
}  // namespace teson::job
