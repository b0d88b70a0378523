#include "teson/quorum/lighthouse_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/quorum/member_state.h"

namespace teson::quorum {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// A lighthouse by hand: members answer what they are asked, records are durable at once.
class LighthouseStateTest : public testing::Test {
 protected:
  void make(int expected, int min = 1, std::optional<EpochRecord> record = std::nullopt,
            std::uint32_t term = 1) {
    LighthouseRules rules;
    rules.job = "job";
    rules.replicas_expected = expected;
    rules.replicas_min = min;
    state_.emplace(rules, term, std::move(record), now_);
    Observe observe;
    observe.job = "job";
    feed(state_->on_message(agent_link, observe, now_));
  }

  struct Rank {
    MemberState state;
    bool answers = true;
  };

  Link join(std::uint64_t instance, int replica, bool has_state = true) {
    const Link link = ++links_;
    ranks_.emplace(link, Rank{MemberState({instance, replica, 0}, has_state, 0, 9)});
    hello(link);
    return link;
  }
  void hello(Link link) {
    const MemberState& state = ranks_.at(link).state;
    Hello hello;
    hello.work_ns = work_.count();
    hello.incarnation = incarnation_;
    hello.job = "job";
    hello.id = state.id();
    hello.lanes_total = 4;
    hello.has_state = state.has_state();
    hello.step = state.step();
    hello.chain = state.chain();
    hello.active = state.active();
    hello.promised = state.promised();
    feed(state_->on_message(link, hello, now_));
  }

  void feed(std::vector<Output> outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Output output = outputs[i];
      if (const auto* persist = std::get_if<Persist>(&output)) {
        const auto more = state_->on_persisted(persist->record, now_);
        outputs.insert(outputs.end(), more.begin(), more.end());
      } else if (const auto* push = std::get_if<Push>(&output)) {
        events_.push_back(push->event);
      } else if (const auto* send = std::get_if<Send>(&output)) {
        const auto rank = ranks_.find(send->link);
        if (rank == ranks_.end()) continue;
        if (const auto* start = std::get_if<Start>(&send->message)) {
          ASSERT_TRUE(rank->second.state.on_start(start->record));
        }
        if (const auto* refused = std::get_if<Refused>(&send->message))
          refused_[send->link] = *refused;
        const auto* fence = std::get_if<Fence>(&send->message);
        if (fence == nullptr || !rank->second.answers) continue;
        const auto status = rank->second.state.on_fence(*fence);
        ASSERT_TRUE(status);
        if (!*status) continue;
        const auto more = state_->on_message(send->link, **status, now_);
        outputs.insert(outputs.end(), more.begin(), more.end());
      }
    }
  }

  /// Time passes in half heartbeats; members in `beating` beat.
  void pass(Duration duration, const std::vector<Link>& beating, Phase phase = Phase::compute) {
    for (const Instant end = now_ + duration; now_ < end;) {
      now_ += milliseconds(50);
      for (const Link link : beating) {
        const MemberState& state = ranks_.at(link).state;
        feed(state_->on_message(
            link, Beat{state.active(), state.has_state(), state.step(), phase, ++progress_}, now_));
      }
      feed(state_->tick(now_));
    }
  }

  std::size_t members() const { return state_->record() ? state_->record()->members.size() : 0; }
  std::vector<Cause> expulsions() const {
    std::vector<Cause> causes;
    for (const Event& event : events_) {
      if (event.kind == EventKind::expelled) causes.push_back(event.cause);
    }
    return causes;
  }

  static constexpr Link agent_link = 1000;
  Instant now_{std::chrono::seconds(100)};
  Duration work_{};
  std::uint64_t incarnation_ = 0;
  std::optional<LighthouseState> state_;
  std::map<Link, Rank> ranks_;
  std::map<Link, Refused> refused_;
  std::vector<Event> events_;
  Link links_ = 0;
  std::uint64_t progress_ = 0;
};

TEST_F(LighthouseStateTest, waits_for_all_expected_or_for_the_grace_with_the_minimum) {
  make(3, 2);
  const Link a = join(1, 0);
  pass(std::chrono::seconds(20), {a});
  EXPECT_EQ(members(), 0U) << "one is less than the minimum";
  const Link b = join(2, 1);
  pass(milliseconds(4900), {a, b});
  EXPECT_EQ(members(), 0U);
  pass(milliseconds(200), {a, b});
  EXPECT_EQ(members(), 2U) << "after 50 heartbeats";
}

TEST_F(LighthouseStateTest, with_less_than_the_minimum_left_training_waits_for_others) {
  make(3, 2);
  const Link a = join(1, 0);
  join(2, 1);
  join(3, 2);
  ASSERT_EQ(members(), 3U);
  feed(state_->on_message(agent_link, ReportDead{2, Cause::process_ended, 0, "SIGKILL"}, now_));
  EXPECT_EQ(members(), 2U);
  const std::int64_t epoch = state_->record()->epoch;
  feed(state_->on_message(agent_link, ReportDead{3, Cause::process_ended, 0, "SIGKILL"}, now_));
  pass(std::chrono::seconds(20), {a});
  EXPECT_EQ(state_->record()->epoch, epoch) << "one is less than the minimum";
  EXPECT_TRUE(state_->in_round());
  EXPECT_TRUE(expulsions().empty());
  const auto told = std::count_if(events_.begin(), events_.end(), [](const Event& event) {
    return event.kind == EventKind::trouble && event.text.find("1 of at least 2") == 0;
  });
  EXPECT_EQ(told, 1);
  join(4, 1);
  ASSERT_EQ(members(), 2U);
  EXPECT_GT(state_->record()->epoch, epoch);
  EXPECT_EQ(state_->record()->members[0].id.instance, 1U);
  EXPECT_FALSE(state_->record()->members[0].learner);
}

TEST_F(LighthouseStateTest, a_process_that_changes_what_it_is_is_refused_and_harms_nobody) {
  make(2);
  const Link a = join(1, 0);
  const auto say = [&](Link link, auto change) {
    Hello hello;
    hello.job = "job";
    hello.id = {1, 0, 0};
    hello.lanes_total = 4;
    hello.has_state = true;
    hello.chain = 9;
    change(hello);
    feed(state_->on_message(link, hello, now_));
  };
  for (const std::int32_t lanes : {-5, 0, std::numeric_limits<std::int32_t>::max()}) {
    say(a, [lanes](Hello& hello) { hello.lanes_total = lanes; });
    EXPECT_EQ(refused_.at(a).field, "lanes");
  }
  say(a, [](Hello& hello) { hello.lanes_total = 8; });
  EXPECT_EQ(refused_.at(a).field, "instance");
  say(a, [](Hello& hello) { hello.id.replica = 1; });
  EXPECT_EQ(refused_.at(a).field, "instance");
  join(2, 1);
  ASSERT_EQ(members(), 2U);
  EXPECT_EQ(state_->record()->lanes_total, 4);
}

TEST_F(LighthouseStateTest, a_first_record_is_newer_than_the_checkpoints_it_begins_from) {
  incarnation_ = 7;
  make(2);
  join(1, 0);
  incarnation_ = 5;
  join(2, 1);
  ASSERT_EQ(members(), 2U);
  EXPECT_EQ(state_->record()->incarnation, 8U);
}

TEST_F(LighthouseStateTest, silent_member_is_expelled_after_ten_heartbeats) {
  make(2);
  const Link a = join(1, 0);
  join(2, 1);
  ASSERT_EQ(members(), 2U);
  pass(milliseconds(950), {a});
  EXPECT_EQ(members(), 2U);
  pass(milliseconds(150), {a});
  EXPECT_EQ(members(), 1U);
  EXPECT_THAT(expulsions(), testing::ElementsAre(Cause::silent));
}

TEST_F(LighthouseStateTest, broken_link_has_two_heartbeats_to_come_back) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  feed(state_->on_link_lost(b, now_));
  pass(milliseconds(150), {a});
  const Link again = ++links_;
  ranks_.emplace(again, ranks_.at(b));
  hello(again);
  pass(milliseconds(500), {a, again});
  EXPECT_EQ(members(), 2U);
  EXPECT_EQ(state_->record()->epoch, make_epoch(1, 1)) << "nothing happened";
  feed(state_->on_link_lost(again, now_));
  pass(milliseconds(300), {a});
  EXPECT_EQ(members(), 1U);
  EXPECT_THAT(expulsions(), testing::ElementsAre(Cause::link_lost));
}

TEST_F(LighthouseStateTest, proof_of_death_acts_at_once_and_expulsion_is_final) {
  make(2);
  const Link a = join(1, 0);
  join(2, 1);
  feed(state_->on_message(agent_link, ReportDead{2, Cause::process_ended, 5, "killed"}, now_));
  EXPECT_EQ(members(), 1U);
  const Link late = join(2, 1);
  EXPECT_EQ(refused_.at(late).field, "instance");
  (void)a;
}

TEST_F(LighthouseStateTest, reports_of_strangers_count_for_nothing) {
  make(2);
  join(1, 0);
  const Link b = join(2, 1);
  feed(state_->on_message(b, ReportDead{1, Cause::process_ended, 5, "killed"}, now_));
  EXPECT_EQ(members(), 2U) << "only an agent can prove a death";
}

TEST_F(LighthouseStateTest, member_that_does_not_answer_a_fence_is_left_out) {
  make(3);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  join(3, 2);
  ranks_.at(b).answers = false;
  feed(state_->on_message(agent_link, ReportDead{3, Cause::process_ended, 5, "killed"}, now_));
  EXPECT_TRUE(state_->in_round());
  pass(milliseconds(600), {a, b});
  EXPECT_EQ(members(), 1U);
  EXPECT_THAT(expulsions(), testing::ElementsAre(Cause::no_status));
}

TEST_F(LighthouseStateTest, death_within_a_round_is_folded_in) {
  make(3);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  join(3, 2);
  ranks_.at(b).answers = false;
  feed(state_->on_message(agent_link, ReportDead{3, Cause::process_ended, 5, "killed"}, now_));
  feed(state_->on_message(agent_link, ReportDead{2, Cause::process_ended, 6, "killed"}, now_));
  EXPECT_EQ(members(), 1U);
  EXPECT_EQ(state_->record()->epoch, make_epoch(1, 2)) << "no second round";
  (void)a;
}

TEST_F(LighthouseStateTest, new_process_of_a_replica_waits_for_the_old_one_s_end) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  const Link next = join(3, 1, false);
  pass(milliseconds(500), {a, b, next});
  EXPECT_EQ(state_->record()->epoch, make_epoch(1, 1));
  feed(state_->on_message(agent_link, ReportDead{2, Cause::process_ended, 5, "killed"}, now_));
  pass(milliseconds(200), {a, next});
  ASSERT_EQ(members(), 2U);
  EXPECT_EQ(state_->record()->members[1].id.instance, 3U);
  EXPECT_TRUE(state_->record()->members[1].learner);
}

TEST_F(LighthouseStateTest, newcomers_are_coalesced_and_do_not_disturb_one_that_is_being_fed) {
  make(4);
  std::vector<Link> links;
  for (std::uint64_t i = 1; i <= 4; ++i)
    links.push_back(join(i, static_cast<int>(i) - 1));
  for (const std::uint64_t instance : {2, 3, 4}) {
    feed(state_->on_message(agent_link, ReportDead{instance, Cause::process_ended, 5, "killed"},
                            now_));
  }
  const std::int64_t alone = state_->record()->epoch;
  const Link b = join(12, 1, false);
  const Link c = join(13, 2, false);
  EXPECT_EQ(state_->record()->epoch, alone) << "another one is due";
  pass(milliseconds(100), {links[0], b, c});
  pass(milliseconds(50), {links[0], b, c});
  EXPECT_EQ(members(), 3U);
  const std::int64_t feeding = state_->record()->epoch;
  const Link d = join(14, 3, false);
  pass(milliseconds(400), {links[0], b, c, d});
  EXPECT_EQ(state_->record()->epoch, feeding) << "two are still being fed";
  for (const Link link : {b, c})
    ASSERT_TRUE(ranks_.at(link).state.set_level(feeding, 0, 9));
  pass(milliseconds(200), {links[0], b, c, d});
  EXPECT_EQ(members(), 4U);
}

TEST_F(LighthouseStateTest, lighthouse_that_slept_blames_nobody) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  pass(milliseconds(200), {a, b});
  now_ += std::chrono::minutes(5);
  feed(state_->tick(now_));
  pass(milliseconds(500), {a, b});
  EXPECT_EQ(members(), 2U);
  EXPECT_TRUE(expulsions().empty());
}

TEST_F(LighthouseStateTest, after_a_restart_absence_counts_only_after_five_heartbeats) {
  make(2);
  const Link a = join(1, 0);
  join(2, 1);
  make(2, 1, state_->record(), 2);
  hello(a);
  pass(milliseconds(450), {a});
  EXPECT_EQ(members(), 2U);
  pass(milliseconds(150), {a});
  EXPECT_EQ(members(), 1U);
  EXPECT_EQ(state_->record()->epoch, make_epoch(2, 1));
}

TEST_F(LighthouseStateTest, start_that_was_never_received_is_sent_again_after_a_restart) {
  make(1);
  join(1, 0);
  const auto record = state_->record();
  ranks_.at(1).state = MemberState({1, 0, 0}, true, 0, 9);
  ASSERT_TRUE(ranks_.at(1).state.on_fence(Fence{record->epoch, "", {}, std::nullopt}));
  make(1, 1, record, 2);
  hello(1);
  EXPECT_EQ(ranks_.at(1).state.active(), record->epoch);
  EXPECT_EQ(state_->record()->epoch, record->epoch) << "no new epoch was needed";
}

TEST_F(LighthouseStateTest, when_all_are_gone_a_new_incarnation_needs_proof_for_each) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  feed(state_->on_link_lost(a, now_));
  feed(state_->on_link_lost(b, now_));
  pass(milliseconds(400), {});
  EXPECT_EQ(state_->stage(), LighthouseState::Stage::waiting_proof);
  const Link c = join(3, 0);
  const Link d = join(4, 1);
  feed(state_->on_message(agent_link, ReportDead{1, Cause::process_ended, 5, "killed"}, now_));
  pass(milliseconds(300), {c, d});
  EXPECT_EQ(state_->stage(), LighthouseState::Stage::waiting_proof);
  for (const std::uint64_t instance : {1, 2})
    feed(state_->on_message(agent_link, ReportDead{instance, Cause::launcher, 0, "restarted"},
                            now_));
  ASSERT_EQ(state_->stage(), LighthouseState::Stage::running);
  EXPECT_EQ(state_->record()->incarnation, 2U);
  EXPECT_EQ(state_->record()->parent, make_epoch(1, 1));
}

TEST_F(LighthouseStateTest, only_who_does_not_wait_is_suspected_of_a_hang) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  const auto beat = [&](Link link, Phase phase, std::uint64_t progress) {
    feed(state_->on_message(link, Beat{state_->record()->epoch, true, 0, phase, progress}, now_));
  };
  for (int i = 0; i < 100; ++i) {
    now_ += milliseconds(50);
    beat(a, Phase::compute, 1);
    beat(b, Phase::compute, static_cast<std::uint64_t>(i));
    feed(state_->tick(now_));
  }
  EXPECT_TRUE(expulsions().empty()) << "the other one still computes";
  for (int i = 0; i < 100 && expulsions().empty(); ++i) {
    now_ += milliseconds(50);
    beat(a, Phase::compute, 1);
    beat(b, Phase::waiting_for_peers, 100);
    feed(state_->tick(now_));
  }
  ASSERT_THAT(expulsions(), testing::ElementsAre(Cause::hang));
  EXPECT_EQ(state_->record()->members[0].id.instance, 2U);
  EXPECT_THAT(refused_.at(a).message, HasSubstr("phase compute"));
}

TEST_F(LighthouseStateTest, who_needs_long_for_a_piece_of_work_is_given_the_time) {
  work_ = std::chrono::seconds(5);
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  const auto stand_still = [&](Duration time) {
    for (const Instant until = now_ + time; now_ < until && expulsions().empty();) {
      now_ += milliseconds(50);
      feed(state_->on_message(a, Beat{state_->record()->epoch, true, 0, Phase::compute, 1}, now_));
      feed(state_->on_message(
          b, Beat{state_->record()->epoch, true, 0, Phase::waiting_for_peers, 1}, now_));
      feed(state_->tick(now_));
    }
  };
  stand_still(std::chrono::seconds(19));
  EXPECT_TRUE(expulsions().empty()) << "four times 5 s are not over";
  stand_still(std::chrono::seconds(3));
  EXPECT_THAT(expulsions(), testing::ElementsAre(Cause::hang));
}

TEST_F(LighthouseStateTest, idle_members_at_the_end_of_a_job_are_left_alone) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  for (int i = 0; i < 2000; ++i) {
    now_ += milliseconds(50);
    for (const Link link : {a, b}) {
      feed(state_->on_message(link, Beat{state_->record()->epoch, true, 0, Phase::idle, 1}, now_));
    }
    feed(state_->tick(now_));
  }
  EXPECT_EQ(state_->record()->epoch, make_epoch(1, 1));
}

TEST_F(LighthouseStateTest, members_that_all_wait_for_each_other_get_a_new_epoch) {
  make(2);
  const Link a = join(1, 0);
  const Link b = join(2, 1);
  for (int i = 0; i < 60; ++i) {
    now_ += milliseconds(50);
    for (const Link link : {a, b}) {
      feed(state_->on_message(
          link, Beat{state_->record()->epoch, true, 0, Phase::waiting_for_peers, 1}, now_));
    }
    feed(state_->tick(now_));
  }
  EXPECT_EQ(state_->record()->epoch, make_epoch(1, 2));
  EXPECT_EQ(members(), 2U);
}

TEST_F(LighthouseStateTest, votes_that_differ_twice_expel_the_minority) {
  make(3);
  const Link a = join(1, 0);
  join(2, 1);
  join(3, 2);
  feed(state_->on_message(a, Mismatch{make_epoch(1, 1), 1, {3}}, now_));
  EXPECT_EQ(members(), 3U);
  EXPECT_EQ(state_->record()->epoch, make_epoch(1, 2));
  feed(state_->on_message(a, Mismatch{make_epoch(1, 2), 1, {3}}, now_));
  EXPECT_EQ(members(), 2U);
  EXPECT_THAT(expulsions(), testing::ElementsAre(Cause::mismatch));
}

}  // namespace
}  // namespace teson::quorum
