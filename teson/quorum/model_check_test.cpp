#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "teson/quorum/model_world.h"

namespace teson::quorum {
namespace {

/// TESON_SOAK multiplies the number of schedules that are explored.
std::uint64_t schedules(std::uint64_t usual) {
  const char* soak = std::getenv("TESON_SOAK");
  return usual * (soak != nullptr ? std::max(1, std::atoi(soak)) : 1);
}

struct Found {
  std::uint64_t explored = 0;
  ModelWorld::Coverage coverage;
  std::string violation;
  std::string trace;
};

Found explore(const ModelOptions& options, std::uint64_t first_seed, std::uint64_t count) {
  Found found;
  for (std::uint64_t seed = first_seed; seed < first_seed + count && found.violation.empty();
       ++seed) {
    ModelWorld world(options, seed);
    found.violation = world.run();
    const ModelWorld::Coverage& coverage = world.coverage();
    found.coverage.records += coverage.records;
    found.coverage.commits_by_record += coverage.commits_by_record;
    found.coverage.roll_forwards += coverage.roll_forwards;
    found.coverage.incarnations += coverage.incarnations;
    found.coverage.finals_kept += coverage.finals_kept;
    found.coverage.learners += coverage.learners;
    ++found.explored;
    if (!found.violation.empty())
      found.trace = "seed " + std::to_string(seed) + "\n" + world.trace();
  }
  return found;
}

void expect_no_violation(const ModelOptions& options, std::uint64_t first_seed,
                         std::uint64_t count) {
  const Found found = explore(options, first_seed, count);
  EXPECT_EQ(found.violation, "") << found.trace;
  EXPECT_GT(found.coverage.records, static_cast<std::int64_t>(found.explored));
  EXPECT_GT(found.coverage.commits_by_record, 0);
  EXPECT_GT(found.coverage.roll_forwards, 0);
  EXPECT_GT(found.coverage.incarnations, 0);
  EXPECT_GT(found.coverage.learners, 0);
  EXPECT_EQ(found.coverage.finals_kept > 0, options.mode == Mode::exact);
}

TEST(ModelCheck, three_ranks_in_exact_mode_keep_every_invariant) {
  expect_no_violation({.ranks = 3, .tiles = 2, .mode = Mode::exact}, 1, schedules(1000));
}

TEST(ModelCheck, three_ranks_in_elastic_mode_keep_every_invariant) {
  expect_no_violation({.ranks = 3, .tiles = 1, .mode = Mode::elastic}, 100'000'000,
                      schedules(1000));
}

TEST(ModelCheck, two_ranks_keep_every_invariant) {
  expect_no_violation({.ranks = 2, .tiles = 1, .mode = Mode::exact}, 200'000'000, schedules(700));
  expect_no_violation({.ranks = 2, .tiles = 2, .mode = Mode::elastic}, 300'000'000, schedules(700));
}

TEST(ModelCheck, many_faults_keep_every_invariant) {
  expect_no_violation(
      {.ranks = 3, .steps = 4, .tiles = 2, .mode = Mode::exact, .faults = 40, .transitions = 1200},
      400'000'000, schedules(150));
}

/// The check can see: without one of the rules it must find a violation.
void expect_violation(BrokenRules broken, const std::string& what) {
  ModelOptions options{.ranks = 3, .tiles = 1, .mode = Mode::elastic, .broken = broken};
  const Found found = explore(options, 1, 20000);
  EXPECT_NE(found.violation, "") << what << ": nothing found in " << found.explored << " schedules";
  std::printf("  %s: '%s' in schedule %llu\n", what.c_str(), found.violation.c_str(),
              static_cast<unsigned long long>(found.explored));
}

TEST(ModelCheck, finds_the_flaw_when_a_majority_commits) {
  expect_violation({.majority_commits = true}, "majority");
}
TEST(ModelCheck, finds_the_flaw_when_no_insider_is_needed) {
  expect_violation({.no_insider_needed = true}, "no_insider");
}
TEST(ModelCheck, finds_the_flaw_when_start_comes_before_the_record) {
  expect_violation({.start_before_durable = true}, "start_before_durable");
}
TEST(ModelCheck, finds_the_flaw_when_ranks_talk_after_a_promise) {
  expect_violation({.noise_after_promise = true}, "noise");
}
TEST(ModelCheck, finds_the_flaw_when_the_record_is_not_applied_before_the_status) {
  expect_violation({.status_without_record = true}, "status_without_record");
}

}  // namespace
}  // namespace teson::quorum
