#include "teson/quorum/lighthouse_server.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "teson/net/channel.h"
#include "teson/quorum/quorum_fixture.h"

namespace teson::quorum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Lanes = std::vector<int>;

class LighthouseServerTest : public QuorumFixture {};

/// The current process's value of a line of /proc/self/status, or the number of its descriptors.
long process_figure(const std::string& name) {
  if (name == "fds") {
    long count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return count;
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stol(line.substr(name.size() + 1));
  }
  return -1;
}

TEST_F(LighthouseServerTest, job_starts_when_all_expected_members_are_there) {
  start_lighthouse(3);
  auto first = start_member(0);
  EXPECT_EQ(first->wait_start(std::chrono::milliseconds(50)).error().kind, ErrorKind::timed_out);
  auto third = start_member(2);
  auto second = start_member(1);
  const StartOrder order = start_of(*first);
  EXPECT_EQ(order.rank, 0);
  EXPECT_EQ(start_of(*second).rank, 1);
  EXPECT_EQ(start_of(*third).rank, 2);
  EXPECT_EQ(order.record.epoch, make_epoch(1, 1));
  EXPECT_EQ(order.record.incarnation, 1U);
  EXPECT_EQ(order.record.base_step, 0);
  EXPECT_EQ(order.record.base_chain, 1000U);
  ASSERT_THAT(order.record.members, SizeIs(3));
  EXPECT_EQ(order.record.members[2].data_address, "unix:/tmp/data-2");
  EXPECT_EQ(order.record.members[0].pid, ::getpid());
  EXPECT_FALSE(order.apply_prepared);
  EXPECT_FALSE(order.learner);
  EXPECT_THAT(lanes_by_member(order.record, 1),
              ElementsAre(Lanes{0, 1, 6}, Lanes{2, 3, 7}, Lanes{4, 5}));
}

TEST_F(LighthouseServerTest,
       survivors_go_on_with_what_they_hold_when_a_member_dies_in_the_reduction) {
  start_lighthouse(3);
  start_agent();
  auto members = start_members(3);
  std::vector<StartOrder> orders;
  for (auto& member : members)
    orders.push_back(start_of(*member));
  const std::int64_t epoch = orders[0].record.epoch;
  const auto lanes = lanes_by_member(orders[0].record, 1);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(members[i]->begin_step(epoch, 1));
    for (const int lane : lanes[i])
      ASSERT_TRUE(members[i]->hold_lane(epoch, lane));
  }
  ASSERT_TRUE(members[2]->hold_final(epoch, 5));
  kill(members[1]);
  const StartOrder order = start_of(*members[0]);
  const StartOrder other = start_of(*members[2]);
  EXPECT_EQ(order.record, other.record);
  EXPECT_EQ(order.record.parent, epoch);
  EXPECT_EQ(order.record.verdict, Verdict::go_on);
  EXPECT_EQ(order.record.base_step, 0);
  EXPECT_THAT(lanes_by_member(order.record, 1), ElementsAre(Lanes{0, 1, 6, 7}, Lanes{2, 3, 4, 5}));
  const auto finals = finals_by_member(order.record, 1, 8);
  ASSERT_THAT(finals, SizeIs(2));
  EXPECT_THAT(finals[1], ElementsAre(0, 0, 0, 0, 0, 1, 0, 0));
  EXPECT_EQ(members[0]->hold_lane(epoch, 7).error().kind, ErrorKind::aborted)
      << "the old epoch is over";
  EXPECT_TRUE(members[0]->hold_lane(order.record.epoch, 7));
  const Event fenced = events_.wait_for("fence after the death", [](const Event& event) {
    return event.kind == EventKind::fenced && event.evidence_at_ns != 0;
  });
  EXPECT_THAT(fenced.text, HasSubstr("replica 1 died"));
  EXPECT_GE(fenced.at_ns, fenced.evidence_at_ns);
  EXPECT_EQ(events_.wait_for(EventKind::dead).id.replica, 1);
}

TEST_F(LighthouseServerTest, step_that_all_survivors_voted_for_is_committed_by_the_record) {
  start_lighthouse(3);
  start_agent();
  auto members = start_members(3);
  std::vector<Vote> votes;
  for (auto& member : members) {
    const StartOrder order = start_of(*member);
    ASSERT_TRUE(member->begin_step(order.record.epoch, 1));
    votes.push_back(vote_of(order, 1, 42));
    ASSERT_TRUE(member->prepare(votes.back()));
  }
  kill(members[1]);
  for (const int survivor : {0, 2}) {
    const StartOrder order = start_of(*members[static_cast<std::size_t>(survivor)]);
    EXPECT_EQ(order.record.verdict, Verdict::commit);
    EXPECT_EQ(order.record.base_step, 1);
    EXPECT_TRUE(order.apply_prepared);
    EXPECT_EQ(order.outcome.digest, 42U);
    EXPECT_EQ(members[static_cast<std::size_t>(survivor)]->status().chain,
              chain_next(1000, decide(votes).outcome));
  }
}

TEST_F(LighthouseServerTest, survivor_that_missed_the_last_vote_rolls_forward) {
  start_lighthouse(3);
  start_agent();
  auto members = start_members(3);
  std::vector<Vote> votes;
  std::int64_t epoch = 0;
  for (auto& member : members) {
    const StartOrder order = start_of(*member);
    epoch = order.record.epoch;
    votes.push_back(vote_of(order, 1, 42));
    ASSERT_TRUE(member->prepare(votes.back()));
  }
  ASSERT_TRUE(members[0]->commit(epoch, decide(votes).outcome));
  ASSERT_TRUE(members[0]->begin_step(epoch, 2));
  ASSERT_TRUE(members[0]->hold_lane(epoch, 0));
  kill(members[1]);
  const StartOrder ahead = start_of(*members[0]);
  const StartOrder behind = start_of(*members[2]);
  EXPECT_EQ(ahead.record.verdict, Verdict::go_on);
  EXPECT_EQ(ahead.record.base_step, 1);
  EXPECT_FALSE(ahead.apply_prepared);
  EXPECT_TRUE(behind.apply_prepared);
  EXPECT_EQ(members[0]->status().chain, members[2]->status().chain);
  EXPECT_TRUE(members[2]->begin_step(behind.record.epoch, 2));
}

TEST_F(LighthouseServerTest, late_joiner_learns_and_then_counts) {
  start_lighthouse(2);
  start_agent();
  auto members = start_members(2);
  for (auto& member : members)
    start_of(*member);
  kill(members[1]);
  EXPECT_THAT(start_of(*members[0]).record.members, SizeIs(1));
  auto joiner = start_member(1, false);
  const StartOrder order = start_of(*members[0]);
  const StartOrder learner = start_of(*joiner);
  ASSERT_THAT(order.record.members, SizeIs(2));
  EXPECT_TRUE(order.record.members[1].learner);
  EXPECT_TRUE(learner.learner);
  EXPECT_EQ(donor_of(order.record, 1), 0);
  EXPECT_EQ(joiner->begin_step(learner.record.epoch, 1).error().kind, ErrorKind::invalid);
  EXPECT_EQ(joiner->set_level(learner.record.epoch, 0, 5).error().kind, ErrorKind::invalid);
  ASSERT_TRUE(joiner->set_level(learner.record.epoch, 0, 1000));
  EXPECT_TRUE(joiner->begin_step(learner.record.epoch, 1));
  EXPECT_EQ(events_.wait_for(EventKind::level).id.replica, 1);
  kill(members[0]);
  const StartOrder alone = start_of(*joiner);
  EXPECT_FALSE(alone.learner) << "it carries the history on";
  EXPECT_EQ(alone.record.incarnation, 1U);
}

TEST_F(LighthouseServerTest,
       death_of_the_donor_before_the_learner_is_level_begins_a_new_incarnation) {
  start_lighthouse(2);
  start_agent();
  auto members = start_members(2);
  for (auto& member : members)
    start_of(*member);
  kill(members[1]);
  start_of(*members[0]);
  auto joiner = start_member(1, false);
  EXPECT_TRUE(start_of(*joiner).learner);
  kill(members[0]);
  events_.wait_for(EventKind::waiting_proof);
  MemberOptions restored = member_options(0);
  restored.step = 20;
  restored.chain = 77;
  auto from_checkpoint = start_member(restored);
  const StartOrder order = start_of(*from_checkpoint);
  EXPECT_EQ(order.record.incarnation, 2U);
  EXPECT_EQ(order.record.base_step, 20);
  EXPECT_FALSE(order.learner);
  EXPECT_TRUE(start_of(*joiner).learner);
}

TEST_F(LighthouseServerTest,
       all_dead_members_are_replaced_under_a_new_incarnation_only_when_proven_dead) {
  heartbeat_ = std::chrono::milliseconds(30);
  start_lighthouse(1);
  start_agent();
  auto member = start_member(0);
  start_of(*member);
  const std::uint64_t instance = member->instance();
  member->close();
  const Event expelled = events_.wait_for(EventKind::expelled);
  EXPECT_EQ(expelled.cause, Cause::link_lost);
  EXPECT_EQ(expelled.id.instance, instance);
  events_.wait_for(EventKind::waiting_proof);
  auto next = start_member(0);
  EXPECT_EQ(next->wait_start(std::chrono::milliseconds(200)).error().kind, ErrorKind::timed_out);
  agent_->report_dead(instance, Cause::process_ended, "exit 1", std::chrono::steady_clock::now());
  EXPECT_EQ(start_of(*next).record.incarnation, 2U);
}

TEST_F(LighthouseServerTest,
       restarted_lighthouse_adopts_the_record_and_training_goes_on_meanwhile) {
  start_lighthouse(2);
  auto members = start_members(2);
  std::int64_t epoch = 0;
  for (auto& member : members)
    epoch = start_of(*member).record.epoch;
  lighthouse_.reset();
  for (auto& member : members) {
    Vote vote;
    vote.epoch = epoch;
    vote.step = 1;
    EXPECT_TRUE(member->begin_step(epoch, 1));
    EXPECT_TRUE(member->prepare(vote));
    EXPECT_TRUE(member->commit(epoch, decide(std::vector{vote, vote}).outcome));
  }
  start_lighthouse(2);
  start_agent();
  for (int i = 0; i < 200 && !(members[0]->connected() && members[1]->connected()); ++i)
    ::usleep(10000);
  ::usleep(700000);
  EXPECT_EQ(lighthouse_->snapshot().record->epoch, epoch) << "no FENCE was needed";
  EXPECT_FALSE(members[0]->fenced());
  auto joiner = start_member(2, false);
  EXPECT_EQ(term_of(start_of(*members[0]).record.epoch), 2U);
  EXPECT_TRUE(start_of(*joiner).learner);
  EXPECT_EQ(joiner->set_level(start_of(*members[1]).record.epoch, 1, members[0]->status().chain)
                .has_value(),
            true);
}

TEST_F(LighthouseServerTest, member_that_died_while_no_lighthouse_lived_is_missed_by_the_next_one) {
  start_lighthouse(2);
  start_agent();
  auto members = start_members(2);
  for (auto& member : members)
    start_of(*member);
  lighthouse_.reset();
  kill(members[1]);
  start_lighthouse(2);
  const StartOrder order = start_of(*members[0]);
  EXPECT_THAT(order.record.members, SizeIs(1));
  EXPECT_EQ(term_of(order.record.epoch), 2U);
}

TEST_F(LighthouseServerTest, refusals_name_the_field_and_both_values) {
  start_lighthouse(2);
  auto first = start_member(0);
  for (int i = 0; i < 500 && lighthouse_->snapshot().known.empty(); ++i)
    ::usleep(5000);
  const auto refusal_of = [this](MemberOptions options) {
    auto member = start_member(std::move(options));
    auto order = member->wait_start(patience);
    EXPECT_FALSE(order);
    EXPECT_EQ(order.error().kind, ErrorKind::invalid);
    return order.error().message;
  };
  MemberOptions other = member_options(1);
  other.plan_hash = 8;
  EXPECT_THAT(refusal_of(other),
              testing::AllOf(HasSubstr("plan_hash"), HasSubstr("0000000000000007"),
                             HasSubstr("0000000000000008")));
  other = member_options(1);
  other.lanes_total = 16;
  EXPECT_THAT(refusal_of(other),
              testing::AllOf(HasSubstr("lanes"), HasSubstr("expected 8"), HasSubstr("found 16")));
  other = member_options(1);
  other.mode = Mode::elastic;
  EXPECT_THAT(refusal_of(other),
              testing::AllOf(HasSubstr("mode"), HasSubstr("exact"), HasSubstr("elastic")));
  other = member_options(1);
  other.job = "another";
  EXPECT_THAT(refusal_of(other), HasSubstr("job"));
  other = member_options(1);
  other.secret = "guess";
  EXPECT_THAT(refusal_of(other), HasSubstr("secret"));
  auto second = start_member(1);
  start_of(*second);
  EXPECT_EQ(start_of(*first).record.members.size(), 2U) << "refusals disturb nobody";
}

TEST_F(LighthouseServerTest, member_with_another_history_is_refused_at_the_start) {
  start_lighthouse(3);
  auto first = start_member(0);
  auto second = start_member(1);
  MemberOptions odd = member_options(2);
  odd.chain = 1001;
  auto third = start_member(odd);
  auto refused = third->wait_start(patience);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(HasSubstr("chain"), HasSubstr("00000000000003e8"),
                             HasSubstr("00000000000003e9")));
  start_of(*first);
}

TEST_F(LighthouseServerTest, hung_member_is_expelled_while_all_others_wait) {
  heartbeat_ = std::chrono::milliseconds(40);
  LighthouseOptions options = lighthouse_options(2);
  options.hang_floor = std::chrono::milliseconds(300);
  lighthouse_ = std::move(*LighthouseServer::start(lighthouse_loop_, options));
  start_agent();
  auto members = start_members(2);
  for (auto& member : members)
    start_of(*member);
  members[0]->set_phase(Phase::waiting_for_peers);
  members[1]->set_phase(Phase::compute);
  const Event expelled = events_.wait_for(EventKind::expelled);
  EXPECT_EQ(expelled.cause, Cause::hang);
  EXPECT_EQ(expelled.id.replica, 1);
  EXPECT_THAT(start_of(*members[0]).record.members, SizeIs(1));
  auto order = members[1]->wait_start(patience);
  ASSERT_FALSE(order);
  EXPECT_THAT(order.error().message, HasSubstr("hang"));
}

TEST_F(LighthouseServerTest, fence_is_heard_on_the_loop_s_thread_without_the_step_loop) {
  start_lighthouse(2);
  start_agent();
  std::atomic<std::int64_t> fenced{0};
  MemberOptions options = member_options(0);
  options.on_fence = [&](std::int64_t epoch) { fenced = epoch; };
  auto first = start_member(options);
  auto second = start_member(1);
  start_of(*first);
  start_of(*second);
  kill(second);
  for (int i = 0; i < 1000 && fenced < make_epoch(1, 2); ++i)
    ::usleep(1000);
  EXPECT_EQ(fenced, make_epoch(1, 2));
  EXPECT_TRUE(first->fenced());
  start_of(*first);
  EXPECT_FALSE(first->fenced());
}

TEST_F(LighthouseServerTest, finished_members_leave_without_disturbing_the_others) {
  start_lighthouse(2);
  start_agent();
  auto members = start_members(2);
  for (auto& member : members)
    start_of(*member);
  members[0]->leave(true, "done", patience);
  EXPECT_EQ(members[0]->wait_start(patience).error().kind, ErrorKind::aborted);
  EXPECT_EQ(members[1]->wait_start(std::chrono::milliseconds(300)).error().kind,
            ErrorKind::timed_out);
  members[1]->leave(true, "done", patience);
  events_.wait_for("second leave", [](const Event& event) {
    return event.kind == EventKind::left && event.id.replica == 1;
  });
  EXPECT_EQ(events_.count(EventKind::expelled), 0U);
}

TEST_F(LighthouseServerTest, member_that_drains_is_left_out_at_once) {
  start_lighthouse(2);
  auto members = start_members(2);
  for (auto& member : members)
    start_of(*member);
  members[0]->leave(false, "SIGTERM", patience);
  EXPECT_THAT(start_of(*members[1]).record.members, SizeIs(1));
}

TEST_F(LighthouseServerTest,
       peers_report_of_a_broken_connection_builds_a_new_epoch_and_then_expels) {
  heartbeat_ = std::chrono::milliseconds(40);
  start_lighthouse(3);
  start_agent();
  auto members = start_members(3);
  std::int64_t epoch = 0;
  for (auto& member : members)
    epoch = start_of(*member).record.epoch;
  members[0]->report_peer_lost(epoch, 2, "reset");
  for (auto& member : members)
    epoch = start_of(*member).record.epoch;
  EXPECT_EQ(epoch, make_epoch(1, 2)) << "all again, with new connections";
  members[0]->report_peer_lost(epoch, 2, "reset");
  members[1]->report_peer_lost(epoch, 2, "reset");
  EXPECT_THAT(start_of(*members[0]).record.members, SizeIs(2));
  EXPECT_EQ(events_.wait_for(EventKind::expelled).cause, Cause::unreachable);
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool freed_memory_is_kept = true;
#else
constexpr bool freed_memory_is_kept = false;
#endif

TEST_F(LighthouseServerTest, many_epoch_changes_leave_nothing_behind) {
  start_lighthouse(3);
  start_agent();
  auto members = start_members(3);
  for (auto& member : members)
    start_of(*member);
  long memory_before = 0;
  long fds_before = 0;
  constexpr int changes =
      750;  // each is two epochs: one without the dead member, one with its replacement
  for (int i = 0; i < changes; ++i) {
    if (i == 150) {
      memory_before = process_figure("VmRSS");
      fds_before = process_figure("fds");
    }
    kill(members[2]);
    ASSERT_EQ(start_of(*members[0]).record.members.size(), 2U);
    ASSERT_EQ(start_of(*members[1]).record.members.size(), 2U);
    members[2] = start_member(2, false);
    for (auto& member : members)
      ASSERT_EQ(start_of(*member).record.members.size(), 3U);
    ASSERT_TRUE(members[2]->set_level(members[2]->status().active, 0, 1000));
    if (HasFailure()) return;
    events_.clear();
  }
  EXPECT_EQ(process_figure("fds"), fds_before);
  if (!freed_memory_is_kept) {
    EXPECT_LT(process_figure("VmRSS"), memory_before + 8192) << "kB";
  }
  EXPECT_GE(lighthouse_->snapshot().record->epoch, make_epoch(1, 2 * changes));
}

TEST_F(LighthouseServerTest, garbage_on_a_link_closes_that_link_only) {
  start_lighthouse(1);
  net::ChannelOptions options;
  options.handshake.job_id = "job";
  options.handshake.purpose = "quorum";
  options.handshake.secret = "secret";
  auto channel = net::Channel::connect(member_loop_, address(), options,
                                       std::chrono::steady_clock::now() + patience);
  ASSERT_TRUE(channel);
  std::atomic<bool> is_closed{false};
  (*channel)->start(
      {.on_open = {}, .on_message = {}, .on_closed = [&](const Error&) { is_closed = true; }});
  ASSERT_TRUE((*channel)->send(0, "garbage"));
  for (int i = 0; i < 2000 && !is_closed; ++i)
    ::usleep(1000);
  EXPECT_TRUE(is_closed);
  auto member = start_member(0);
  start_of(*member);
}

TEST_F(LighthouseServerTest, record_of_another_job_and_bad_options_are_refused) {
  start_lighthouse(1);
  auto member = start_member(0);
  start_of(*member);
  lighthouse_.reset();
  LighthouseOptions other = lighthouse_options(1);
  other.job = "another";
  auto server = LighthouseServer::start(lighthouse_loop_, other);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr("record of job 'job'"));
  other = lighthouse_options(1);
  other.replicas_min = 2;
  EXPECT_EQ(LighthouseServer::start(lighthouse_loop_, other).error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace teson::quorum
