#include "teson/quorum/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace teson::quorum {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t chain_at_base = 500;

EpochRecord parent_of(int members, Mode mode = Mode::exact) {
  EpochRecord record;
  record.incarnation = 3;
  record.epoch = make_epoch(1, 4);
  record.mode = mode;
  record.base_step = 10;
  record.base_chain = chain_at_base;
  record.lanes_total = 4;
  record.replicas_expected = members;
  for (int i = 0; i < members; ++i) {
    Member member;
    member.id = {static_cast<std::uint64_t>(i + 1), i, 0};
    record.members.push_back(member);
  }
  return record;
}

Proposal proposal_of(const EpochRecord& parent) {
  Proposal proposal;
  proposal.epoch = make_epoch(1, 5);
  proposal.mode = parent.mode;
  proposal.lanes_total = parent.lanes_total;
  proposal.replicas_expected = parent.replicas_expected;
  return proposal;
}

Vote vote_of(std::uint64_t digest, std::int64_t step) {
  Vote vote;
  vote.epoch = make_epoch(1, 4);
  vote.step = step;
  vote.digest = digest;
  return vote;
}

/// The answer of instance `instance` (replica instance - 1) that has committed `ahead` steps since
/// the parent's base, all with digest 7, and voted for the next one if `digest` is not 0.
Answer answer_of(std::uint64_t instance, int ahead, std::uint64_t digest, bool has_state = true) {
  Answer answer;
  answer.member.id = {instance, static_cast<std::int32_t>(instance) - 1, 0};
  Status& status = answer.status;
  status.active = make_epoch(1, 4);
  status.has_state = has_state;
  status.step = 10 + ahead;
  status.chain = chain_at_base;
  status.last_outcome.step = -1;
  for (int i = 1; i <= ahead; ++i) {
    status.last_outcome = decide(std::vector{vote_of(7, 10 + i)}).outcome;
    status.chain = chain_next(status.chain, status.last_outcome);
  }
  if (digest != 0) status.vote = vote_of(digest, 11 + ahead);
  return answer;
}

struct Row {
  const char* name;
  Mode mode;
  std::vector<Answer> answers;
  Verdict verdict;
  std::int64_t base_step;
  std::vector<int> learners;  ///< replicas
};

const std::vector<Row> verdict_rows = {
    {"nobody voted: go on",
     Mode::exact,
     {answer_of(1, 0, 0), answer_of(2, 0, 0)},
     Verdict::go_on,
     10,
     {}},
    {"one of two voted: go on",
     Mode::exact,
     {answer_of(1, 0, 7), answer_of(2, 0, 0)},
     Verdict::go_on,
     10,
     {}},
    {"all left voted: commit",
     Mode::exact,
     {answer_of(1, 0, 7), answer_of(2, 0, 7)},
     Verdict::commit,
     11,
     {}},
    {"the only one left voted: commit", Mode::exact, {answer_of(3, 0, 7)}, Verdict::commit, 11, {}},
    {"digests differ: nobody commits",
     Mode::exact,
     {answer_of(1, 0, 7), answer_of(2, 0, 8)},
     Verdict::go_on,
     10,
     {}},
    {"one committed, one prepared: it rolls forward",
     Mode::exact,
     {answer_of(1, 1, 0), answer_of(2, 0, 7)},
     Verdict::go_on,
     11,
     {}},
    {"one committed and voted on: still go on",
     Mode::exact,
     {answer_of(1, 1, 9), answer_of(2, 0, 7)},
     Verdict::go_on,
     11,
     {}},
    {"all committed and all voted again",
     Mode::exact,
     {answer_of(1, 1, 9), answer_of(2, 1, 9)},
     Verdict::commit,
     12,
     {}},
    {"elastic, nobody voted: discard",
     Mode::elastic,
     {answer_of(1, 0, 0), answer_of(2, 0, 7)},
     Verdict::discard,
     10,
     {}},
    {"elastic, all voted: commit",
     Mode::elastic,
     {answer_of(1, 0, 7), answer_of(2, 0, 7)},
     Verdict::commit,
     11,
     {}},
    {"a member without state does not count",
     Mode::exact,
     {answer_of(1, 0, 7), answer_of(2, 0, 0, false)},
     Verdict::commit,
     11,
     {1}},
    {"a newcomer learns",
     Mode::exact,
     {answer_of(1, 0, 0), answer_of(9, 0, 0, false)},
     Verdict::go_on,
     10,
     {8}},
    {"a newcomer with an older checkpoint learns",
     Mode::exact,
     {answer_of(1, 1, 0), answer_of(9, 0, 0)},
     Verdict::go_on,
     11,
     {8}},
    {"a newcomer with the very state does not",
     Mode::exact,
     {answer_of(1, 0, 0), answer_of(9, 0, 0)},
     Verdict::go_on,
     10,
     {}},
    {"a newcomer's vote does not hinder",
     Mode::exact,
     {answer_of(1, 0, 7), answer_of(9, 0, 0)},
     Verdict::commit,
     11,
     {8}},
};

TEST(Rules, verdict_table) {
  for (const Row& row : verdict_rows) {
    const EpochRecord parent = parent_of(3, row.mode);
    const Decision decision = decide_next(parent, proposal_of(parent), row.answers);
    const auto* next = std::get_if<NewRecord>(&decision);
    ASSERT_NE(next, nullptr) << row.name;
    EXPECT_EQ(next->record.verdict, row.verdict) << row.name;
    EXPECT_EQ(next->record.base_step, row.base_step) << row.name;
    EXPECT_EQ(next->record.parent, parent.epoch) << row.name;
    EXPECT_EQ(next->record.incarnation, 3U) << row.name;
    std::vector<int> learners;
    for (const Member& member : next->record.members) {
      if (member.learner) learners.push_back(member.id.replica);
    }
    EXPECT_EQ(learners, row.learners) << row.name;
    EXPECT_TRUE(check_record(next->record)) << row.name;
  }
}

TEST(Rules, committed_chain_is_the_one_that_the_ranks_would_have_reached) {
  const EpochRecord parent = parent_of(2);
  const Decision decision =
      decide_next(parent, proposal_of(parent), {answer_of(1, 0, 7), answer_of(2, 0, 7)});
  EXPECT_EQ(std::get<NewRecord>(decision).record.base_chain, answer_of(1, 1, 0).status.chain);
}

TEST(Rules, a_wish_to_stop_in_one_vote_is_in_the_recorded_step) {
  const EpochRecord parent = parent_of(2);
  std::vector<Answer> answers = {answer_of(1, 0, 7), answer_of(2, 0, 7)};
  answers[1].status.vote->stop_requested = 1;
  EXPECT_TRUE(std::get<NewRecord>(decide_next(parent, proposal_of(parent), answers))
                  .record.base_outcome.stop);
}

TEST(Rules, without_an_insider_nothing_is_decided) {
  const EpochRecord parent = parent_of(2);
  EXPECT_TRUE(std::holds_alternative<NoInsider>(
      decide_next(parent, proposal_of(parent), {answer_of(9, 0, 0)})));
  EXPECT_TRUE(std::holds_alternative<NoInsider>(
      decide_next(parent, proposal_of(parent), {answer_of(1, 0, 0, false)})));
  EXPECT_TRUE(std::holds_alternative<NoInsider>(decide_next(parent, proposal_of(parent), {})));
}

TEST(Rules, holdings_of_level_insiders_are_kept_and_finals_only_if_votes_do_not_differ) {
  const EpochRecord parent = parent_of(2);
  std::vector<Answer> answers = {answer_of(2, 0, 0), answer_of(1, 0, 0)};
  answers[0].status.lanes_held = {3, 2};
  answers[0].status.tiles_final = {5};
  answers[1].status.lanes_held = {0, 2, 99};
  EpochRecord record =
      std::get<NewRecord>(decide_next(parent, proposal_of(parent), answers)).record;
  EXPECT_THAT(record.members[0].lanes_held, ElementsAre(0, 2))
      << "each lane once, only lanes that exist";
  EXPECT_THAT(record.members[1].lanes_held, ElementsAre(3));
  EXPECT_THAT(record.members[1].tiles_final, ElementsAre(5));
  answers[0].status.vote = vote_of(7, 11);
  answers[1].status.vote = vote_of(8, 11);
  record = std::get<NewRecord>(decide_next(parent, proposal_of(parent), answers)).record;
  EXPECT_THAT(record.members[1].tiles_final, IsEmpty());
  answers[1] = answer_of(1, 1, 0);
  record = std::get<NewRecord>(decide_next(parent, proposal_of(parent), answers)).record;
  EXPECT_THAT(record.members[1].lanes_held, IsEmpty()) << "they were of the step before";
}

TEST(Rules, first_record_takes_the_highest_step_and_teaches_the_rest) {
  const EpochRecord any = parent_of(3);
  Answer fresh = answer_of(1, 0, 0);
  Answer newer = answer_of(2, 1, 0);
  Answer empty = answer_of(3, 0, 0, false);
  const Decision decision = decide_first(77, 2, proposal_of(any), {empty, newer, fresh});
  const EpochRecord& record = std::get<NewRecord>(decision).record;
  EXPECT_EQ(record.parent, 77);
  EXPECT_EQ(record.incarnation, 2U);
  EXPECT_EQ(record.base_step, 11);
  EXPECT_EQ(record.base_chain, newer.status.chain);
  EXPECT_TRUE(record.members[0].learner);
  EXPECT_FALSE(record.members[1].learner);
  EXPECT_TRUE(record.members[2].learner);
  EXPECT_TRUE(std::holds_alternative<NoState>(decide_first(0, 1, proposal_of(any), {empty})));
}

TEST(Rules, first_record_refuses_the_minority_of_histories) {
  const EpochRecord any = parent_of(3);
  std::vector<Answer> answers = {answer_of(1, 0, 0), answer_of(2, 0, 0), answer_of(3, 0, 0)};
  answers[0].status.chain = 9;
  const Decision decision = decide_first(0, 1, proposal_of(any), answers);
  const auto& conflict = std::get<Conflict>(decision);
  EXPECT_THAT(conflict.instances, ElementsAre(1));
  EXPECT_EQ(conflict.chain_expected, chain_at_base);
  EXPECT_EQ(conflict.chain_found, 9U);
}

TEST(Rules, bounds_come_from_the_heartbeat) {
  Bounds bounds;
  bounds.heartbeat = std::chrono::milliseconds(100);
  EXPECT_EQ(bounds.silent(), std::chrono::seconds(1));
  EXPECT_EQ(bounds.answer(), std::chrono::milliseconds(500));
  EXPECT_EQ(bounds.reconnect(), std::chrono::milliseconds(200));
  EXPECT_EQ(bounds.forming_grace(), std::chrono::seconds(5));
  EXPECT_EQ(bounds.hang(Phase::compute, {}), std::chrono::seconds(2)) << "the floor";
  EXPECT_EQ(bounds.hang(Phase::compute, std::chrono::seconds(3)), std::chrono::seconds(12))
      << "four times the longest";
  bounds.hang_floor = std::chrono::milliseconds(1);
  EXPECT_EQ(bounds.hang(Phase::compute, {}), std::chrono::seconds(1)) << "ten heartbeats";
}

}  // namespace
}  // namespace teson::quorum
