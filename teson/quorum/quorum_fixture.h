#pragma once

// For tests: a lighthouse, members and an agent in one process, over a Unix socket in a temporary
// folder.

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "teson/base/random.h"
#include "teson/net/loop.h"
#include "teson/quorum/agent.h"
#include "teson/quorum/lighthouse_server.h"
#include "teson/quorum/member.h"

namespace teson::quorum {

/// Events of an agent, to wait for.
class EventLog {
 public:
  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    added_.notify_all();
  }
  /// The first event that `matches`, from the beginning; fails the test after ten seconds.
  template <typename Predicate>
  Event wait_for(const char* what, Predicate&& matches) {
    std::unique_lock lock(mutex_);
    Event found;
    const bool is_there = added_.wait_for(lock, std::chrono::seconds(10), [&] {
      const auto at = std::find_if(events_.begin(), events_.end(), matches);
      if (at != events_.end()) found = *at;
      return at != events_.end();
    });
    EXPECT_TRUE(is_there) << "no event: " << what;
    return found;
  }
  Event wait_for(EventKind kind) {
    return wait_for(std::string(to_string(kind)).c_str(),
                    [kind](const Event& event) { return event.kind == kind; });
  }
  std::size_t count(EventKind kind) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(
        events_.begin(), events_.end(), [kind](const Event& event) { return event.kind == kind; }));
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<Event> events_;
};

class QuorumFixture : public testing::Test {
 protected:
  using MemberPtr = std::unique_ptr<MemberClient>;
  static constexpr Duration patience = std::chrono::seconds(10);

  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("teson-quorum-" + std::to_string(entropy64()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    agent_.reset();
    lighthouse_.reset();
    std::filesystem::remove_all(folder_);
  }

  net::Address address() const {
    return *net::Address::unix_path((folder_ / "lighthouse.sock").string());
  }

  LighthouseOptions lighthouse_options(int replicas) const {
    LighthouseOptions options;
    options.address = address();
    options.job = "job";
    options.secret = "secret";
    options.heartbeat = heartbeat_;
    options.replicas_expected = replicas;
    options.replicas_min = 1;
    options.record_path = folder_ / "record";
    return options;
  }
  void start_lighthouse(int replicas) {
    auto server = LighthouseServer::start(lighthouse_loop_, lighthouse_options(replicas));
    ASSERT_TRUE(server) << server.error().describe();
    lighthouse_ = std::move(*server);
  }
  void start_agent() {
    AgentOptions options;
    options.lighthouse = address();
    options.job = "job";
    options.secret = "secret";
    options.on_event = [this](const Event& event) { events_.add(event); };
    agent_ = Agent::start(member_loop_, std::move(options));
  }

  MemberOptions member_options(int replica, bool has_state = true) const {
    MemberOptions options;
    options.lighthouse = address();
    options.job = "job";
    options.secret = "secret";
    options.replica = replica;
    options.data_address = "unix:/tmp/data-" + std::to_string(replica);
    options.plan_hash = 7;
    options.lanes_total = 8;
    options.has_state = has_state;
    options.chain = has_state ? 1000 : 0;
    return options;
  }
  MemberPtr start_member(MemberOptions options) {
    return MemberClient::start(member_loop_, std::move(options));
  }
  MemberPtr start_member(int replica, bool has_state = true) {
    return start_member(member_options(replica, has_state));
  }
  std::vector<MemberPtr> start_members(int count) {
    std::vector<MemberPtr> members;
    for (int i = 0; i < count; ++i)
      members.push_back(start_member(i));
    return members;
  }

  static StartOrder start_of(MemberClient& member) {
    auto order = member.wait_start(patience);
    EXPECT_TRUE(order) << order.error().describe();
    return order ? *order : StartOrder{};
  }
  /// The member is dead: its end of stream and the agent's proof, as after a SIGKILL.
  void kill(MemberPtr& member) {
    const std::uint64_t instance = member->instance();
    member->close();
    member.reset();
    agent_->report_dead(instance, Cause::process_ended, "signal 9",
                        std::chrono::steady_clock::now());
  }
  static Vote vote_of(const StartOrder& order, std::int64_t step, std::uint64_t digest) {
    Vote vote;
    vote.epoch = order.record.epoch;
    vote.step = step;
    vote.digest = digest;
    return vote;
  }

  std::filesystem::path folder_;
  Duration heartbeat_ = std::chrono::milliseconds(100);
  net::Loop lighthouse_loop_{"lighthouse"};
  net::Loop member_loop_{"members"};
  EventLog events_;
  std::unique_ptr<LighthouseServer> lighthouse_;
  std::unique_ptr<Agent> agent_;
};

}  // namespace teson::quorum
