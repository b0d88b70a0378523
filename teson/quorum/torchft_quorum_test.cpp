#include "teson/quorum/torchft_quorum.h"

#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace teson::quorum::torchft_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Instant start{hours(1)};

TorchftMember member(std::string id) {
  return {std::move(id), false, 0, "payload"};
}
TorchftMember shrinking(std::string id) {
  return {std::move(id), true, 0, {}};
}
TorchftMember failing(std::string id) {
  return {std::move(id), false, 1, {}};
}

TorchftRules rules(std::size_t min_replicas, Duration join_timeout = hours(1)) {
  return {min_replicas, join_timeout, seconds(5)};
}

std::vector<std::string> ids(const TorchftQuorum& quorum) {
  std::vector<std::string> found;
  for (const auto& each : quorum.members)
    found.push_back(each.replica_id);
  return found;
}

/// All join at `now`; the quorum must be formed by the last one and not before.
TorchftQuorum form(TorchftLighthouse& lighthouse, const std::vector<TorchftMember>& members,
                   Instant now) {
  std::optional<TorchftQuorum> formed;
  for (const auto& each : members) {
    EXPECT_FALSE(formed) << each.replica_id;
    EXPECT_TRUE(lighthouse.join(each, now));
    formed = lighthouse.tick(now);
  }
  EXPECT_TRUE(formed) << lighthouse.reason();
  return formed ? *formed : TorchftQuorum{};
}

TEST(TorchftQuorum, without_participants_says_how_many_are_needed) {
  const auto decision = torchft_decide({}, rules(2), start);
  EXPECT_FALSE(decision.ready);
  EXPECT_EQ(decision.reason,
            "New quorum not ready, only have 0 participants, need min_replicas 2 "
            "[0/0 participants healthy][0 heartbeating][shrink_only=false]");
}

TEST(TorchftQuorum, forms_when_every_heartbeating_member_asked) {
  TorchftLighthouse lighthouse(rules(2));
  ASSERT_TRUE(lighthouse.join(member("b"), start));
  EXPECT_FALSE(lighthouse.tick(start));
  EXPECT_THAT(lighthouse.reason(),
              HasSubstr("only have 1 participants, need min_replicas 2 [1/1 "));
  ASSERT_TRUE(lighthouse.join(member("a"), start));
  const auto quorum = lighthouse.tick(start);
  ASSERT_TRUE(quorum);
  EXPECT_THAT(ids(*quorum), ElementsAre("a", "b"));
  EXPECT_THAT(quorum->tickets, ElementsAre(1, 2));
  EXPECT_EQ(quorum->quorum_id, 1);
  EXPECT_EQ(quorum->members[0].payload, "payload");
  EXPECT_THAT(lighthouse.reason(), StartsWith("Valid quorum found [2/2 participants healthy]"));
  EXPECT_EQ(lighthouse.waiting(), 0u);
}

TEST(TorchftQuorum, waits_for_a_straggler_that_heartbeats_until_the_join_timeout) {
  TorchftLighthouse lighthouse(rules(1, seconds(2)));
  ASSERT_TRUE(lighthouse.heartbeat("straggler", start));
  ASSERT_TRUE(lighthouse.join(member("a"), start));
  ASSERT_TRUE(lighthouse.join(member("b"), start + seconds(1)));
  EXPECT_FALSE(lighthouse.tick(start + milliseconds(1999)));
  EXPECT_EQ(lighthouse.reason(),
            "Valid quorum with 2 participants, waiting for 1 healthy but not participating "
            "stragglers due to join timeout [2/2 participants healthy][3 "
            "heartbeating][shrink_only=false]");
  EXPECT_EQ(lighthouse.next_change(start + seconds(1)), start + seconds(2));
  const auto quorum = lighthouse.tick(start + seconds(2));
  ASSERT_TRUE(quorum);
  EXPECT_THAT(ids(*quorum), ElementsAre("a", "b"));
}

TEST(TorchftQuorum, a_straggler_that_falls_silent_is_waited_for_no_longer) {
  TorchftLighthouse lighthouse(rules(1));
  ASSERT_TRUE(lighthouse.heartbeat("ghost", start));
  ASSERT_TRUE(lighthouse.join(member("a"), start + seconds(1)));
  ASSERT_TRUE(lighthouse.join(member("b"), start + seconds(1)));
  EXPECT_FALSE(lighthouse.tick(start + milliseconds(4999)));
  EXPECT_EQ(lighthouse.next_change(start + seconds(1)), start + seconds(5));
  EXPECT_TRUE(lighthouse.tick(start + seconds(5)));
}

TEST(TorchftQuorum, half_of_the_heartbeating_members_is_not_enough) {
  TorchftLighthouse lighthouse(rules(1, milliseconds(0)));
  ASSERT_TRUE(lighthouse.heartbeat("other", start));
  ASSERT_TRUE(lighthouse.join(member("a"), start));
  EXPECT_FALSE(lighthouse.tick(start + seconds(1)));
  EXPECT_EQ(lighthouse.reason(),
            "New quorum not ready, only have 1 participants, need at least half of 2 healthy "
            "workers [1/1 participants healthy][2 heartbeating][shrink_only=false]");
}

TEST(TorchftQuorum, a_waiting_member_whose_heartbeat_is_too_old_does_not_count_until_it_is_heard) {
  TorchftLighthouse lighthouse(rules(2));
  ASSERT_TRUE(lighthouse.join(member("a"), start));
  ASSERT_TRUE(lighthouse.join(member("b"), start + seconds(5)));
  EXPECT_FALSE(lighthouse.tick(start + seconds(5)));
  EXPECT_THAT(lighthouse.reason(), HasSubstr("[1/2 participants healthy][1 heartbeating]"));
  ASSERT_TRUE(lighthouse.heartbeat("a", start + seconds(6)));
  EXPECT_TRUE(lighthouse.tick(start + seconds(6)));
}

TEST(TorchftQuorum, a_complete_last_quorum_forms_at_once_without_a_newcomer_that_did_not_ask) {
  TorchftLighthouse lighthouse(rules(1));
  form(lighthouse, {member("a")}, start);
  ASSERT_TRUE(lighthouse.heartbeat("b", start));
  ASSERT_TRUE(lighthouse.heartbeat("c", start));
  const auto quorum = form(lighthouse, {member("a")}, start);
  EXPECT_THAT(ids(quorum), ElementsAre("a"));
  EXPECT_EQ(quorum.quorum_id, 1);
  EXPECT_FALSE(quorum.changed);
  EXPECT_THAT(lighthouse.reason(), StartsWith("Fast quorum found! [1/1 participants healthy]"));
}

TEST(TorchftQuorum, a_complete_last_quorum_takes_in_a_newcomer_that_already_waits) {
  TorchftLighthouse lighthouse(rules(1));
  form(lighthouse, {member("b")}, start);
  ASSERT_TRUE(lighthouse.heartbeat("b", start));
  ASSERT_TRUE(lighthouse.join(member("a"), start));
  EXPECT_FALSE(lighthouse.tick(start));
  ASSERT_TRUE(lighthouse.join(member("b"), start));
  const auto quorum = lighthouse.tick(start);
  ASSERT_TRUE(quorum);
  EXPECT_THAT(ids(*quorum), ElementsAre("a", "b"));
  EXPECT_EQ(quorum->quorum_id, 2);
}

TEST(TorchftQuorum, shrink_only_leaves_newcomers_waiting_for_the_next_ordinary_quorum) {
  TorchftLighthouse lighthouse(rules(1));
  form(lighthouse, {member("a")}, start);
  ASSERT_TRUE(lighthouse.join(member("new"), start));
  ASSERT_TRUE(lighthouse.join(shrinking("a"), start));
  const auto shrunk = lighthouse.tick(start);
  ASSERT_TRUE(shrunk);
  EXPECT_THAT(ids(*shrunk), ElementsAre("a"));
  EXPECT_THAT(lighthouse.reason(), HasSubstr("[shrink_only=true]"));
  EXPECT_EQ(lighthouse.waiting(), 1u);
  EXPECT_EQ(shrunk->quorum_id, 1);

  ASSERT_TRUE(lighthouse.join(member("a"), start + seconds(1)));
  const auto grown = lighthouse.tick(start + seconds(1));
  ASSERT_TRUE(grown);
  EXPECT_THAT(ids(*grown), ElementsAre("a", "new"));
}

TEST(TorchftQuorum, shrink_only_does_not_go_below_min_replicas) {
  TorchftLighthouse lighthouse(rules(2, milliseconds(0)));
  form(lighthouse, {member("a"), member("b")}, start);
  const auto later = start + seconds(5);  // b is silent by now
  ASSERT_TRUE(lighthouse.join(shrinking("a"), later));
  ASSERT_TRUE(lighthouse.join(member("new"), later));
  EXPECT_FALSE(lighthouse.tick(later));
  EXPECT_THAT(lighthouse.reason(), HasSubstr("only have 1 participants, need min_replicas 2"));
}

TEST(TorchftQuorum, a_stranger_that_shrinks_never_forms_an_empty_quorum) {
  TorchftLighthouse lighthouse(rules(1, milliseconds(0)));
  form(lighthouse, {member("old")}, start);
  ASSERT_TRUE(lighthouse.join(shrinking("stranger"), start + seconds(1)));
  EXPECT_FALSE(lighthouse.tick(start + seconds(1)));  // "old" is alive and may still ask
  ASSERT_TRUE(lighthouse.heartbeat("stranger", start + seconds(5)));
  const auto quorum = lighthouse.tick(start + seconds(5));  // "old" is gone: nothing to shrink from
  ASSERT_TRUE(quorum) << lighthouse.reason();
  EXPECT_THAT(ids(*quorum), ElementsAre("stranger"));
}

TEST(TorchftQuorum, the_id_changes_with_membership_and_with_commit_failures_only) {
  TorchftLighthouse lighthouse(rules(1), {}, 41);
  EXPECT_EQ(form(lighthouse, {member("a")}, start).quorum_id, 42);
  auto moved = member("a");
  moved.payload = "another address, step and store";
  EXPECT_EQ(form(lighthouse, {moved}, start).quorum_id, 42);
  const auto failed = form(lighthouse, {failing("a")}, start);
  EXPECT_EQ(failed.quorum_id, 43);
  EXPECT_TRUE(failed.changed);
  EXPECT_EQ(form(lighthouse, {failing("a")}, start).quorum_id, 44);
  EXPECT_EQ(form(lighthouse, {member("a")}, start).quorum_id, 44);
  ASSERT_TRUE(lighthouse.join(member("b"), start + seconds(6)));
  EXPECT_EQ(lighthouse.tick(start + seconds(6))->quorum_id, 45);
}

TEST(TorchftQuorum, members_are_sorted_bytewise) {
  TorchftLighthouse lighthouse(rules(4));
  const auto quorum = form(
      lighthouse, {member("name_2"), member("\xc3\xa9"), member("name_10"), member("Z")}, start);
  EXPECT_THAT(ids(quorum), ElementsAre("Z", "name_10", "name_2", "\xc3\xa9"));
}

TEST(TorchftQuorum, a_second_call_under_the_same_id_replaces_the_first_and_both_are_answered) {
  TorchftLighthouse lighthouse(rules(2));
  auto newer = member("a");
  newer.payload = "newer";
  ASSERT_TRUE(lighthouse.join(member("a"), start));
  ASSERT_TRUE(lighthouse.join(newer, start));
  EXPECT_FALSE(lighthouse.tick(start));
  ASSERT_TRUE(lighthouse.join(member("b"), start));
  const auto quorum = lighthouse.tick(start);
  ASSERT_TRUE(quorum);
  EXPECT_THAT(ids(*quorum), ElementsAre("a", "b"));
  EXPECT_EQ(quorum->members[0].payload, "newer");
  EXPECT_THAT(quorum->tickets, ElementsAre(1, 2, 3));
}

TEST(TorchftQuorum, a_call_that_ended_takes_part_no_longer) {
  TorchftLighthouse lighthouse(rules(2));
  const auto ticket = lighthouse.join(member("a"), start);
  lighthouse.leave(*ticket, start);
  lighthouse.leave(*ticket, start);
  lighthouse.leave(99, start);
  ASSERT_TRUE(lighthouse.join(member("b"), start));
  EXPECT_FALSE(lighthouse.tick(start));
  EXPECT_EQ(lighthouse.waiting(), 1u);
}

TEST(TorchftQuorum, when_the_newer_of_two_calls_ends_the_older_one_is_the_member_again) {
  TorchftLighthouse lighthouse(rules(1));
  auto newer = member("a");
  newer.payload = "newer";
  const auto first = lighthouse.join(member("a"), start);
  const auto second = lighthouse.join(newer, start);
  lighthouse.leave(*second, start);
  const auto quorum = lighthouse.tick(start);
  ASSERT_TRUE(quorum);
  EXPECT_EQ(quorum->members[0].payload, "payload");
  EXPECT_THAT(quorum->tickets, ElementsAre(*first));
}

TEST(TorchftQuorum, when_the_older_of_two_calls_ends_the_newer_one_stays_the_member) {
  TorchftLighthouse lighthouse(rules(1));
  const auto first = lighthouse.join(member("a"), start);
  const auto second = lighthouse.join(member("a"), start);
  lighthouse.leave(*first, start);
  const auto quorum = lighthouse.tick(start);
  ASSERT_TRUE(quorum);
  EXPECT_THAT(quorum->tickets, ElementsAre(*second));
}

TEST(TorchftQuorum, silent_members_are_forgotten_after_ten_timeouts) {
  TorchftLighthouse lighthouse(rules(1));
  ASSERT_TRUE(lighthouse.heartbeat("gone", start));
  ASSERT_TRUE(lighthouse.heartbeat("here", start + seconds(49)));
  EXPECT_EQ(lighthouse.state().heartbeats.size(), 2u);
  ASSERT_TRUE(lighthouse.heartbeat("here", start + seconds(53)));
  EXPECT_EQ(lighthouse.state().heartbeats.size(), 1u);
}

TEST(TorchftQuorum, a_full_table_of_members_refuses_newcomers_until_some_are_silent) {
  TorchftLimits limits;
  limits.heartbeats_max = 3;
  TorchftLighthouse lighthouse(rules(1), limits);
  for (const auto* id : {"a", "b", "c"})
    ASSERT_TRUE(lighthouse.heartbeat(id, start));
  EXPECT_EQ(lighthouse.heartbeat("d", start + seconds(4)).error().kind, ErrorKind::overloaded);
  EXPECT_EQ(lighthouse.join(member("d"), start + seconds(4)).error().kind, ErrorKind::overloaded);
  EXPECT_TRUE(lighthouse.heartbeat("a", start + seconds(4)));
  EXPECT_TRUE(lighthouse.heartbeat("d", start + seconds(7)));
  EXPECT_EQ(lighthouse.state().heartbeats.size(), 2u);
}

TEST(TorchftQuorum, inputs_are_bounded_and_refusals_say_why) {
  TorchftLimits limits;
  limits.replica_id_bytes_max = 8;
  limits.payload_bytes_max = 100;
  limits.quorum_bytes_max = 166;  // 100 and 50, and 8 for each
  limits.waiting_max = 2;
  TorchftLighthouse lighthouse(rules(9), limits);
  EXPECT_EQ(lighthouse.heartbeat("", start).error().kind, ErrorKind::invalid);
  EXPECT_THAT(lighthouse.heartbeat("123456789", start).error().message,
              HasSubstr("expected at most 8 bytes, found 9"));
  EXPECT_EQ(lighthouse.join({"a", false, 0, std::string(101, 'x')}, start).error().kind,
            ErrorKind::invalid);
  const auto first = lighthouse.join({"a", false, 0, std::string(100, 'x')}, start);
  ASSERT_TRUE(first);
  EXPECT_THAT(lighthouse.join({"b", false, 0, std::string(51, 'x')}, start).error().message,
              HasSubstr("send less data"));
  ASSERT_TRUE(lighthouse.join({"b", false, 0, std::string(50, 'x')}, start));
  EXPECT_THAT(lighthouse.join(member("c"), start).error().message,
              HasSubstr("already 2 calls wait"));
  lighthouse.leave(*first, start);
  EXPECT_TRUE(lighthouse.join({"c", false, 0, std::string(100, 'x')}, start));
}

// The rules again, written as sets, so that random histories have an independent answer. Only the
// strict additions are shared in spirit: min_replicas after shrinking, and no shrinking when nobody
// of the last quorum lives.
std::optional<std::vector<std::string>> expected(const TorchftState& state,
                                                 const TorchftRules& rules, Instant now) {
  std::set<std::string> healthy, present, previous;
  for (const auto& [id, last] : state.heartbeats)
    if (last + rules.heartbeat_timeout > now) healthy.insert(id);
  bool shrink = false;
  Instant first = Instant::max();
  for (const auto& [id, participant] : state.participants) {
    if (!healthy.contains(id)) continue;
    present.insert(id);
    shrink |= participant.shrink_only;
    first = std::min(first, participant.joined);
  }
  if (state.previous) previous.insert(state.previous->begin(), state.previous->end());
  bool complete = state.previous.has_value(), alive = false;
  for (const auto& id : previous) {
    complete &= present.contains(id);
    alive |= healthy.contains(id);
  }
  std::vector<std::string> chosen;
  for (const auto& id : present)
    if (!(shrink && alive) || previous.contains(id)) chosen.push_back(id);
  if (chosen.size() < rules.min_replicas) return std::nullopt;
  const bool majority = 2 * present.size() > healthy.size();
  const bool waited = present == healthy || now >= first + rules.join_timeout;
  if (complete || (majority && waited)) return chosen;
  return std::nullopt;
}

TEST(TorchftQuorum, random_histories_agree_with_the_rules_written_as_sets) {
  constexpr std::uint64_t seed = 20250101;
  std::mt19937_64 random(seed);
  const auto pick = [&](std::uint64_t below) { return random() % below; };
  int formed = 0;
  for (int history = 0; history < 300; ++history) {
    const TorchftRules some{1 + pick(3), milliseconds(pick(400)), milliseconds(50 + pick(200))};
    TorchftLighthouse lighthouse(some);
    std::set<TorchftTicket> open;
    auto now = start;
    std::int64_t last_id = 0;
    for (int event = 0; event < 60; ++event) {
      now += milliseconds(pick(40));
      const auto id = std::string(1, static_cast<char>('a' + pick(5)));
      switch (pick(4)) {
        case 0:
          ASSERT_TRUE(lighthouse.heartbeat(id, now));
          break;
        case 1:
          if (!open.empty()) lighthouse.leave(*open.begin(), now), open.erase(open.begin());
          break;
        default:
          open.insert(*lighthouse.join({id, pick(6) == 0, pick(6) == 0, id}, now));
      }
      const auto want = expected(lighthouse.state(), some, now);
      const auto got = lighthouse.tick(now);
      ASSERT_EQ(got.has_value(), want.has_value())
          << "seed " << seed << ": " << lighthouse.reason();
      if (got) {
        ++formed;
        ASSERT_EQ(ids(*got), *want);
        ASSERT_GE(got->quorum_id, last_id);
        last_id = got->quorum_id;
        for (const auto ticket : got->tickets)
          ASSERT_EQ(open.erase(ticket), 1u);
      }
      ASSERT_EQ(lighthouse.waiting(), open.size());
      // Nothing happens by itself before next_change says so.
      const auto before = torchft_decide(lighthouse.state(), some, now).ready;
      const auto change = lighthouse.next_change(now).value_or(now + hours(1));
      for (const auto between : {now, now + (change - now) / 2, change - Duration(1)})
        ASSERT_EQ(torchft_decide(lighthouse.state(), some, between).ready, before)
            << "seed " << seed;
    }
  }
  EXPECT_GT(formed, 1000);
}

}  // namespace
}  // namespace teson::quorum::torchft_test
