#include "teson/quorum/vote.h"

#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace teson::quorum {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Vote vote_of(std::uint64_t digest) {
  Vote vote;
  vote.epoch = 7;
  vote.step = 3;
  vote.digest = digest;
  vote.sample_hash = std::numeric_limits<std::uint64_t>::max();
  vote.lanes_computed = 2;
  return vote;
}

TEST(Vote, equal_votes_commit_and_add_up) {
  const std::vector<Vote> votes = {vote_of(1), vote_of(1), vote_of(1)};
  const VoteResult result = decide(votes);
  EXPECT_TRUE(result.unanimous());
  EXPECT_EQ(result.outcome.step, 3);
  EXPECT_EQ(result.outcome.digest, 1U);
  EXPECT_EQ(result.outcome.lanes_counted, 6);
  EXPECT_EQ(result.outcome.sample_hash, std::numeric_limits<std::uint64_t>::max() - 2);
  EXPECT_FALSE(result.outcome.stop || result.outcome.checkpoint);
}

TEST(Vote, one_request_to_stop_or_to_save_counts_for_all) {
  std::vector<Vote> votes = {vote_of(1), vote_of(1)};
  votes[0].stop_requested = 1;
  votes[1].checkpoint_requested = 1;
  EXPECT_TRUE(decide(votes).outcome.stop);
  EXPECT_TRUE(decide(votes).outcome.checkpoint);
}

TEST(Vote, a_rank_that_computed_other_samples_than_planned_is_named) {
  std::vector<Vote> votes = {vote_of(1), vote_of(1), vote_of(1)};
  const std::vector<PlannedLanes> planned(3, {std::numeric_limits<std::uint64_t>::max(), 2});
  EXPECT_THAT(ranks_off_plan(votes, planned), IsEmpty());
  votes[1].sample_hash -= 1;
  EXPECT_THAT(ranks_off_plan(votes, planned), ElementsAre(1));
  votes[2].lanes_computed = 1;
  EXPECT_THAT(ranks_off_plan(votes, planned), ElementsAre(1, 2));
}

TEST(Vote, any_difference_is_a_mismatch_that_names_the_minority) {
  const auto changed = [](auto change) {
    std::vector<Vote> votes = {vote_of(1), vote_of(1), vote_of(1), vote_of(1)};
    change(votes[2]);
    return decide(votes);
  };
  for (const VoteResult& result :
       {changed([](Vote& v) { v.digest = 2; }), changed([](Vote& v) { v.step = 4; }),
        changed([](Vote& v) { v.epoch = 8; }), changed([](Vote& v) { v.state_digest = 1; })}) {
    EXPECT_FALSE(result.unanimous());
    EXPECT_THAT(result.mismatched, ElementsAre(2));
  }
  const std::vector<Vote> tie = {vote_of(5), vote_of(1), vote_of(1), vote_of(5)};
  EXPECT_THAT(decide(tie).mismatched, ElementsAre(1, 2))
      << "ties: the lowest rank's group is the reference";
}

TEST(Vote, chain_depends_on_the_history_and_not_on_who_computed_it) {
  Outcome outcome = decide(std::vector{vote_of(1), vote_of(1)}).outcome;
  const std::uint64_t chain = chain_next(99, outcome);
  Outcome by_others = decide(std::vector{vote_of(1)}).outcome;
  EXPECT_EQ(chain, chain_next(99, by_others));
  std::set<std::uint64_t> chains = {chain, chain_next(98, outcome)};
  Outcome other = outcome;
  other.digest = 2;
  chains.insert(chain_next(99, other));
  other = outcome;
  other.step = 4;
  chains.insert(chain_next(99, other));
  EXPECT_EQ(chains.size(), 4U);
}

}  // namespace
}  // namespace teson::quorum
