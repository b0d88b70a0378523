// Connections between hosts that are cut and damaged, where nothing else fails: the actors notice nothing.
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "teson/actor/host_agent.h"
#include "teson/actor/proc.h"
#include "teson/actor/system.h"
#include "teson/sim/cluster.h"
#include "teson/sim/draw.h"
#include "teson/sim/run_apart.h"

namespace teson::sim {
namespace {

using namespace std::chrono_literals;
using actor::ActorRef;
using actor::Endpoints;
using actor::Proc;

constexpr std::size_t hosts = 2;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t seeds = 3;
#else
constexpr std::uint64_t seeds = 10;
#endif
constexpr const char* door = "tcp:owner:7000";

/// Counts what comes in order, from each sender.
class Counter {
 public:
  explicit Counter(Proc& proc) : proc_(proc) {}
  Result<void> count(int sender, std::uint64_t number) {
    std::uint64_t& last = last_[sender];
    if (number != last + 1)
      return fail(ErrorKind::failed, fmt::format("expected {}, found {}", last + 1, number));
    last = number;
    return {};
  }
  std::uint64_t counted(int sender) { return last_[sender]; }
  /// To another, as a sender of its own.
  Result<void> pass_on(const ActorRef<Counter>& other, int sender, std::uint64_t number) {
    return proc_.actor(other).cast<&Counter::count>(sender, number);
  }
  using endpoints = Endpoints<&Counter::count, &Counter::counted, &Counter::pass_on>;

 private:
  Proc& proc_;
  std::map<int, std::uint64_t> last_;
};

void work() {
  auto proc = Proc::attach();
  if (!proc) exit_at_once(3);
  (*proc)->serve<Counter>(
      [&](const actor::ProcContext&) { return std::make_unique<Counter>(**proc); });
  (*proc)->start();
  (*proc)->wait();
}

/// Where an agent listens that the owner connects to.
net::Address address_of(std::size_t host) {
  return *net::Address::parse(fmt::format("tcp:host{}:7001", host));
}

void serve_host(Scheduler& scheduler, Cluster& cluster, bool listens) {
  const auto host = static_cast<std::size_t>(scheduler.process().host);
  const auto server =
      actor::HostServer::start({.address = listens ? address_of(host) : *net::Address::parse(door),
                                .listen = listens,
                                .secret = "secret",
                                .launcher = cluster.launcher(),
                                .name = fmt::format("host{}", host)});
  if (!server) exit_at_once(4);
  Latch never;
  never.wait();
}

/// What went wrong; nothing if all is as it should be.
std::string disturbed_run(Scheduler& scheduler, std::uint64_t seed, double damage_share) {
  // Of every second seed the agents join; else the owner connects to them.
  const bool listen = seed % 2 == 0;
  std::string faults;
  const auto fault = [&](const std::string& text) { faults += text + "\n"; };
  std::optional<Cluster> cluster;
  cluster.emplace(scheduler, ClusterOptions{.network = {.damage_share = damage_share}},
                  Cluster::Programs{{"worker", work},
                                    {"agent", [&] { serve_host(scheduler, *cluster, listen); }}});
  {
    actor::SystemOptions options{.on_host_lost = fault, .launcher = cluster->launcher()};
    options.on_undelivered = [&](const actor::UndeliveredCast& lost) {
      fault("returned: " + lost.error.describe());
    };
    options.on_actor_failure = [&](const actor::ActorFailure& failure) {
      fault("an actor: " + failure.error.describe());
    };
    actor::System system(std::move(options));
    if (!system.listen({.address = *net::Address::parse(door), .secret = "secret"}))
      return "cannot listen";
    for (std::size_t host = 1; host <= hosts; ++host)
      cluster->start(static_cast<int>(host), "agent");
    for (std::size_t host = 1; listen && host <= hosts; ++host) {
      while (!system.connect_host(address_of(host), "secret", now() + 1s))
        sleep_for(10ms);
    }
    const auto joined = system.wait_hosts(hosts, now() + 10s);
    if (!joined) return joined.error().describe();
    auto mesh = joined->spawn_procs({{"proc", 2}}, {.name = "pool", .program = "worker"});
    if (!mesh) return mesh.error().describe();
    mesh->on_failure([&](const actor::ProcExit& exit) { fault(exit.describe("pool")); });
    const auto all = mesh->spawn<Counter>("counter").flatten("rank");
    const std::size_t ranks = all->size();
    if (!mesh->wait_attached(now() + 10s)) return "not attached";

    bool ending = false;
    Thread cutting("cuts", [&] {
      CounterRandom random({seed, 1});
      while (!ending) {
        sleep_for(draw(random, 150ms));
        cluster->network().cut(0, 1 + static_cast<int>(random.below(hosts)));
        cluster->wake_kernel();
      }
    });
    CounterRandom random({seed, 2});
    constexpr std::uint64_t messages = 400;
    for (std::uint64_t number = 1; number <= messages; ++number) {
      if (auto sent = all->cast<&Counter::count>(0, number); !sent) fault(sent.error().describe());
      const auto passed = all->at("rank", 0)
                              .value()
                              .call_one<&Counter::pass_on>(all->ref(ranks - 1), 1, number)
                              .wait();
      if (!passed) fault(passed.error().describe());
      if (random.below(4) == 0) sleep_for(draw(random, 20ms));
    }
    ending = true;
    cutting.join();
    for (const auto& reply : all->call<&Counter::counted>(0).wait()) {
      if (reply != messages)
        fault(reply ? fmt::format("{} of {}", *reply, messages) : reply.error().describe());
    }
    const auto passed = all->at("rank", ranks - 1)->call_one<&Counter::counted>(1).wait();
    if (passed != messages) fault(fmt::format("{} passed on", passed.value_or(0)));
    if (cluster->living().size() != hosts + ranks)
      fault(fmt::format("{} processes", cluster->living().size()));
  }
  sleep_for(5s);
  if (cluster->living().size() != hosts) fault("processes are left");
  cluster.reset();
  return faults;
}

std::string simulate(std::uint64_t seed, double damage_share) {
  const auto text = run_apart(
      [&] {
        Scheduler scheduler(seed);
        std::string faults;
        const auto failure =
            scheduler.run([&] { faults = disturbed_run(scheduler, seed, damage_share); },
                          std::chrono::minutes(10));
        return faults + failure.value_or("");
      },
      std::chrono::seconds(120));
  return text ? *text : text.error().describe();
}

TEST(SimulatedResume, cuts_between_hosts_are_not_noticed_by_actors) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    EXPECT_EQ(simulate(seed, 0), "") << "seed " << seed;
}

TEST(SimulatedResume, nor_are_lost_repeated_reordered_and_changed_bytes) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    EXPECT_EQ(simulate(seed, 0.002), "") << "seed " << seed;
}

}  // namespace
}  // namespace teson::sim
