// Times an epoch change: from the report that a member died to START at every survivor, and from a
// newcomer's start to its START. One process; each member has its own I/O thread, the record is
// written and fsynced.
//   bench_quorum [--json] [--quick] [--folder DIR]      DIR: where the record lies (default: /tmp)

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "teson/base/clock.h"
#include "teson/base/log.h"
#include "teson/net/loop.h"
#include "teson/quorum/agent.h"
#include "teson/quorum/lighthouse_server.h"
#include "teson/quorum/member.h"

namespace {

using namespace teson;
using namespace teson::quorum;

bool is_json = false;

void report(const std::string& name, double value, const char* unit) {
  if (is_json) {
    std::printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", name.c_str(), value, unit);
  } else {
    std::printf("%-44s %10.4g %s\n", name.c_str(), value, unit);
  }
  std::fflush(stdout);
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_quorum: %s\n", why.c_str());
  std::exit(1);
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

class Job {
 public:
  Job(int size, const std::filesystem::path& folder) : size_(size), folder_(folder) {
    LighthouseOptions options;
    options.address = address();
    options.job = "bench";
    options.replicas_expected = size;
    options.record_path = folder / "record";
    auto server = LighthouseServer::start(lighthouse_loop_, options);
    if (!server) give_up(server.error().describe());
    lighthouse_ = std::move(*server);
    AgentOptions agent;
    agent.lighthouse = address();
    agent.job = "bench";
    agent_ = Agent::start(agent_loop_, agent);
    for (int replica = 0; replica < size; ++replica)
      loops_.push_back(std::make_unique<net::Loop>());
    for (int replica = 0; replica < size; ++replica)
      members_.push_back(start(replica, true));
    wait_all(size);
    while (!agent_->connected())
      ::usleep(1000);
  }

  void measure(int rounds) {
    std::vector<double> deaths;
    std::vector<double> joins;
    for (int round = 0; round < rounds; ++round) {
      const auto victim = static_cast<std::size_t>(round % size_);
      const std::uint64_t instance = members_[victim]->instance();
      const Instant died = now();
      agent_->report_dead(instance, Cause::process_ended, "signal 9", died);
      wait_others(victim);
      deaths.push_back(to_ms(now() - died));
      members_[victim].reset();
      const Instant began = now();
      members_[victim] = start(static_cast<int>(victim), false);
      wait_all(size_);
      joins.push_back(to_ms(now() - began));
      const Status status = members_[victim]->status();
      if (!members_[victim]->set_level(status.active, 0, 1))
        give_up("a learner could not become level");
    }
    const std::string members = "_" + std::to_string(size_) + "_members";
    report("quorum_death_to_start_p50" + members, percentile(deaths, 0.5), "ms");
    report("quorum_death_to_start_p99" + members, percentile(deaths, 0.99), "ms");
    report("quorum_join_to_start_p50" + members, percentile(joins, 0.5), "ms");
    report("quorum_join_to_start_p99" + members, percentile(joins, 0.99), "ms");
  }

 private:
  static Instant now() { return SystemClock().now(); }
  net::Address address() const {
    return *net::Address::unix_path((folder_ / "lighthouse.sock").string());
  }

  std::unique_ptr<MemberClient> start(int replica, bool has_state) {
    MemberOptions options;
    options.lighthouse = address();
    options.job = "bench";
    options.replica = replica;
    options.lanes_total = 64;
    options.has_state = has_state;
    options.chain = 1;
    return MemberClient::start(*loops_[static_cast<std::size_t>(replica)], options);
  }

  static void wait_one(MemberClient& member, std::size_t members) {
    while (true) {
      const auto order = member.wait_start(std::chrono::seconds(20));
      if (!order) give_up(order.error().describe());
      if (order->record.members.size() == members) return;
    }
  }
  void wait_all(int members) {
    for (const auto& member : members_)
      wait_one(*member, static_cast<std::size_t>(members));
  }
  void wait_others(std::size_t victim) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (i != victim) wait_one(*members_[i], static_cast<std::size_t>(size_ - 1));
    }
  }

  int size_;
  std::filesystem::path folder_;
  net::Loop lighthouse_loop_{"lighthouse"};
  net::Loop agent_loop_{"agent"};
  std::vector<std::unique_ptr<net::Loop>> loops_;
  std::unique_ptr<LighthouseServer> lighthouse_;
  std::unique_ptr<Agent> agent_;
  std::vector<std::unique_ptr<MemberClient>> members_;
};

}  // namespace

int main(int argc, char** argv) {
  log_start("bench_quorum", LogLevel::error);
  int rounds = 300;
  std::string parent = "/tmp";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      is_json = true;
    else if (std::strcmp(argv[i], "--quick") == 0)
      rounds = 30;
    else if (std::strcmp(argv[i], "--folder") == 0 && i + 1 < argc)
      parent = argv[++i];
    else
      give_up(std::string("expected --json, --quick or --folder DIR, found ") + argv[i]);
  }
  for (const int size : {3, 8}) {
    std::string folder = parent + "/teson_quorum_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) give_up("cannot make a folder in " + parent);
    Job(size, folder).measure(rounds);
    std::filesystem::remove_all(folder);
  }
  return 0;
}
