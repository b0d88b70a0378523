// simulated_actors [--seeds N] [--first S] [--twice] [--verbose]: the actor runtime in simulations, a seed each. Processes of a supervised mesh
// are killed, ended and stopped, hosts lost, cut off and damaged while threads call them in every way, on a simulated clock and network. In each: every call ends by its
// deadline; what one thread sends is handled in order, at most once; in the end all ranks answer, and no process is left. --twice: runs
// each seed again, which must give the same run.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <signal.h>

#include "teson/actor/host_agent.h"
#include "teson/actor/proc.h"
#include "teson/actor/system.h"
#include "teson/actor/testing/arguments.h"
#include "teson/base/log.h"
#include "teson/sim/cluster.h"
#include "teson/sim/draw.h"
#include "teson/sim/run_apart.h"

namespace {

using namespace teson;
using namespace teson::actor;
using namespace std::chrono_literals;

/// What was seen to be wrong. One thread of a simulation runs at a time.
std::vector<std::string> faults;

void fault(std::string text) {
  if (faults.size() < 20) faults.push_back(std::move(text));
}

class Target {
 public:
  explicit Target(Proc& proc) : proc_(proc) {}
  int add(int value) { return sum_ += value; }
  void nap(int milliseconds) { sleep_for(std::chrono::milliseconds(milliseconds)); }
  Result<int> refuse() { return fail(ErrorKind::failed, "on purpose"); }
  /// The number of a message from one thread, counted up.
  void note(int sender, std::uint64_t number) {
    auto& last = last_[sender];
    if (number <= last) fault(fmt::format("sender {}: message {} after {}", sender, number, last));
    last = number;
  }
  /// Of a neighbour. Two that ask each other wait in vain: not for long.
  Result<int> ask(const ActorRef<Target>& other, int value) {
    return proc_.actor(other).within(50ms).call<&Target::add>(value).wait();
  }
  Result<void> pass_on(const ActorRef<Target>& other, int sender, std::uint64_t number) {
    return proc_.actor(other).cast<&Target::note>(sender, number);
  }
  using endpoints = Endpoints<&Target::add, &Target::nap, &Target::refuse, &Target::note,
                              &Target::ask, &Target::pass_on>;

 private:
  Proc& proc_;
  int sum_ = 0;
  std::map<int, std::uint64_t> last_;
};

void work() {
  auto proc = Proc::attach();
  if (!proc) exit_at_once(3);  // its owner is gone
  (*proc)->serve<Target>([&](const ProcContext&) { return std::make_unique<Target>(**proc); });
  (*proc)->start();
  (*proc)->wait();
}

struct Tally {
  long calls = 0;
  long values = 0;
  long errors = 0;
  long harms = 0;
  long passed = 0;  ///< actors that came and went
  template <typename R>
  void add(const Result<R>& result) {
    ++(result ? values : errors);
  }
};

/// Beyond its deadline a call takes what its thread waits for its turn.
constexpr Duration late_max = 50ms;
constexpr Duration heartbeat = 300ms;
/// From a death to its news, with a damaged or silent line in between.
constexpr Duration told_max = 3 * heartbeat + 200ms + late_max;
constexpr int callers = 3;
constexpr const char* door = "tcp:owner:7000";

/// One owner with a mesh of processes: its own children, or those of agents on other hosts.
class Scenario {
 public:
  Scenario(sim::Scheduler& scheduler, std::uint64_t seed)
      : scheduler_(scheduler),
        seed_(seed),
        random_({seed, 1}),
        hosts_(random_.below(2) == 0 ? 0 : 1 + random_.below(3)),
        agents_(hosts_ + 1) {}

  void run() {
    sim::NetworkOptions network;
    damaged_ = hosts_ > 0 && random_.below(4) == 0;
    if (damaged_) network.damage_share = 0.002;
    cluster_.emplace(scheduler_, sim::ClusterOptions{.network = network},
                     sim::Cluster::Programs{{"worker", work}, {"agent", [this] { serve_host(); }}});
    own();
    sleep_for(10s);
    const std::size_t left = cluster_->living().size() - living_agents();
    if (left != 0) fault(fmt::format("{} processes are left", left));
    cluster_.reset();
  }

  const Tally& tally() const { return tally_; }
  std::size_t hosts() const { return hosts_; }

 private:
  void own() {
    System system({.on_undelivered = [](const UndeliveredCast&) {},
                   .on_unhandled = [](const std::string& chain) { fault(chain); },
                   .host_heartbeat = heartbeat,
                   .on_host_lost = [](const std::string&) {},
                   // Everything that goes to two processes of a host goes there once, or nothing.
                   .relay_bytes_min = random_.below(2) == 0 ? 1 : std::size_t{1} << 20,
                   .launcher = cluster_->launcher()});
    auto mesh = spawn(system);
    if (!mesh) return fault(mesh.error().describe());
    procs_ = mesh->region().ranks();
    constexpr std::array strategies{Strategy::one_for_one, Strategy::rest_for_one,
                                    Strategy::all_for_one};
    mesh->supervise({.strategy = strategies.at(random_.below(strategies.size())),
                     .restarts = {.restarts_max = 1'000'000, .backoff_max = 100ms}});
    const auto targets = mesh->spawn<Target>("target");
    disturb(*mesh, targets);
    heal();
    const Instant limit = now() + 60s;
    while (!targets.within(2s).reduce<&Target::add>(Count{}, 1)) {
      if (now() > limit) return fault("not all ranks have come back in 60 s");
      sleep_for(50ms);
    }
    // What was replaced elsewhere ends itself.
    sleep_for(10s);
    const std::size_t living = cluster_->living().size() - living_agents();
    if (living != procs_) fault(fmt::format("{} processes for {} ranks", living, procs_));
    end_while_waited_for(targets);
  }

  /// Who waits for processes that die is told so, long before the deadline.
  void end_while_waited_for(const ActorMesh<Target>& targets) {
    auto waiting = targets.within(60s).call<&Target::nap>(60'000);
    sleep_for(100ms);
    for (const int process : cluster_->living()) {
      if (std::ranges::find(agents_, process) == agents_.end()) cluster_->signal(process, SIGKILL);
    }
    const Instant began = now();
    for (const auto& reply : waiting.wait()) {
      if (reply || reply.error().kind != ErrorKind::disconnected)
        fault("a call to a process that was killed has not said so");
    }
    if (now() - began > told_max)
      fault(fmt::format("a death was told after {:.0f} ms", to_ms(now() - began)));
  }

  Result<ProcMesh> spawn(System& system) {
    const ProcOptions options{.name = "pool",
                              .program = "worker",
                              .attach_deadline = 5s,
                              .stop_grace = 500ms,
                              .heartbeat = heartbeat};
    if (hosts_ == 0)
      return this_host(system).spawn_procs({{"proc", 1 + random_.below(4)}}, options);
    TESON_TRY(auto address, net::Address::parse(door));
    TESON_TRY_VOID(system.listen({.address = address, .secret = "secret"}));
    start_agents();
    const Shape shape{{"proc", 1 + random_.below(2)}};
    // Damage may take an agent's first connection, with what was started over it.
    for (int tries = 5;; --tries) {
      TESON_TRY(const auto hosts, system.wait_hosts(hosts_, now() + 10s));
      auto mesh = hosts.spawn_procs(shape, options);
      if (mesh || !damaged_ || tries == 0) return mesh;
      sleep_for(1s);
    }
  }

  /// What an agent's process runs.
  void serve_host() {
    auto server = HostServer::start({.address = *net::Address::parse(door),
                                     .secret = "secret",
                                     .launcher = cluster_->launcher(),
                                     .name = fmt::format("host{}", scheduler_.process().host)});
    if (!server) return fault(server.error().describe());
    Latch never;
    never.wait();
  }

  bool has_agent(std::size_t host) const {
    const auto living = cluster_->living(static_cast<int>(host));
    return std::ranges::find(living, agents_[host]) != living.end();
  }
  std::size_t living_agents() const {
    std::size_t count = 0;
    for (std::size_t host = 1; host <= hosts_; ++host)
      count += has_agent(host) ? 1 : 0;
    return count;
  }
  void start_agents() {
    for (std::size_t host = 1; host <= hosts_; ++host) {
      if (!has_agent(host)) agents_[host] = cluster_->start(static_cast<int>(host), "agent");
    }
  }

  void disturb(ProcMesh& mesh, const ActorMesh<Target>& targets) {
    bool ending = false;
    std::vector<Thread> threads;
    for (int caller = 0; caller < callers; ++caller) {
      threads.emplace_back("caller", [&, caller] {
        CounterRandom random({seed_, 2, static_cast<std::uint64_t>(caller)});
        std::uint64_t number = 0;
        while (!ending) {
          const long failed = tally_.errors;
          call_somehow(targets, caller, number, random);
          // What fails at once would fail thousands of times before its rank is back.
          if (tally_.errors > failed) sleep_for(std::chrono::milliseconds(random.below(20)));
        }
      });
    }
    threads.emplace_back("passing", [&] {
      CounterRandom random({seed_, 3});
      while (!ending)
        come_and_go(mesh, random);
    });
    threads.emplace_back("harm", [&] {
      while (!ending) {
        sleep_for(std::chrono::milliseconds(random_.below(400)));
        hosts_ > 0 && random_.below(3) == 0 ? harm_host() : harm_process();
        if (random_.below(3) == 0) start_agents();
      }
    });
    sleep_for(hosts_ > 0 ? 6s : 2s);
    ending = true;
    for (auto& thread : threads)
      thread.join();
  }

  void heal() {
    sleep_for(hold_max);
    for (const int process : cluster_->living())
      cluster_->signal(process, SIGCONT);
    start_agents();
  }

  /// Spawns actors and stops them.
  void come_and_go(ProcMesh& mesh, CounterRandom& random) {
    const Duration deadline = std::chrono::milliseconds(5 + random.below(500));
    const auto passing = mesh.spawn<Target>("passing").within(deadline);
    (void)passing.cast<&Target::nap>(static_cast<int>(random.below(20)));
    const Instant began = now();
    (void)passing.stop();
    if (now() - began > deadline + late_max)
      fault(fmt::format("a stop took {:.1f} ms of {:.1f}", to_ms(now() - began), to_ms(deadline)));
    for (const auto& reply : passing.call<&Target::add>(1).wait()) {
      if (reply || (reply.error().kind != ErrorKind::disconnected &&
                    reply.error().kind != ErrorKind::timed_out))
        fault("a stopped actor has answered");
    }
    ++tally_.passed;
    sleep_for(std::chrono::milliseconds(1 + random.below(20)));
  }

  void call_somehow(const ActorMesh<Target>& all, int caller, std::uint64_t& number,
                    CounterRandom& random) {
    const Duration deadline = std::chrono::milliseconds(5 + random.below(500));
    const auto mesh = all.within(deadline).flatten("proc");
    const std::size_t rank = random.below(procs_);
    const auto one = mesh->at("proc", rank);
    const std::size_t neighbour = random.below(procs_);
    const Instant began = now();
    const auto kind = random.below(10);
    ++tally_.calls;
    switch (kind) {
      case 0:
        for (const auto& result : mesh->call<&Target::add>(1).wait())
          tally_.add(result);
        break;
      case 1:
        tally_.add(mesh->choose<&Target::refuse>().wait());
        break;
      case 2:
        for (auto stream = mesh->stream<&Target::nap>(static_cast<int>(random.below(50)));
             auto reply = stream.next();)
          tally_.add(reply->reply);
        break;
      case 3:
        tally_.add(mesh->reduce<&Target::add>(Sum{}, 1));
        break;
      case 4:
        (void)mesh->call<&Target::nap>(10).wait_for(any);
        break;
      case 5:
        tally_.add(one->call_one<&Target::note>(caller, ++number).wait());
        break;
      case 6:
        tally_.add(mesh->cast<&Target::note>(caller, ++number));
        break;
      case 7:
        tally_.add(one->call_one<&Target::ask>(mesh->ref(neighbour), 1).wait());
        break;
      case 8:
        // What comes by way of another rank is a sender of its own.
        tally_.add(one->call_one<&Target::pass_on>(mesh->ref(neighbour),
                                                   callers * (1 + static_cast<int>(rank)) + caller,
                                                   ++number)
                       .wait());
        break;
      default:
        sleep_for(std::chrono::milliseconds(random.below(20)));
    }
    const Duration took = now() - began;
    if (took > deadline + late_max) {
      fault(fmt::format("a call of kind {} with a deadline of {:.0f} ms ended after {:.0f} ms",
                        kind, to_ms(deadline), to_ms(took)));
    }
  }

  void harm_process() {
    const auto living = cluster_->living();
    if (living.empty()) return;
    constexpr std::array signals{SIGKILL, SIGKILL, SIGSEGV, SIGTERM, SIGSTOP, SIGSTOP, SIGCONT};
    cluster_->signal(living.at(random_.below(living.size())),
                     signals.at(random_.below(signals.size())));
    ++tally_.harms;
  }

  void harm_host() {
    const int host = 1 + static_cast<int>(random_.below(hosts_));
    switch (random_.below(4)) {
      case 0:
        cluster_->lose_host(host);
        break;
      case 1:
        cluster_->network().cut(0, host);
        break;
      default:
        cluster_->network().hold(0, host, now() + sim::draw(random_, hold_max));
    }
    cluster_->wake_kernel();
    ++tally_.harms;
  }

  static constexpr Duration hold_max = 4s;

  sim::Scheduler& scheduler_;
  const std::uint64_t seed_;
  CounterRandom random_;
  const std::size_t hosts_;  ///< beside the owner's; 0: the processes are its children
  std::vector<int> agents_;  ///< by host: the last one's process
  bool damaged_ = false;
  std::size_t procs_ = 0;
  std::optional<sim::Cluster> cluster_;
  Tally tally_;
};

struct Outcome {
  std::string summary;
  bool good = false;
};

Outcome simulate(std::uint64_t seed) {
  const auto body = [seed] {
    sim::Scheduler scheduler(seed);
    // What a simulation leaves that has failed stands still: it cannot be ended, but with its process.
    Scenario& scenario = *new Scenario(scheduler, seed);
    if (auto failure = scheduler.run([&] { scenario.run(); }, std::chrono::minutes(10)))
      fault(*failure);
    std::string text = faults.empty() ? "+" : "-";
    const Tally& tally = scenario.tally();
    text += fmt::format(
        "{:016x}: {} hosts, {} turns, {} calls, {} values, {} errors, {} harms, {} passed",
        scheduler.fingerprint(), scenario.hosts(), scheduler.turns(), tally.calls, tally.values,
        tally.errors, tally.harms, tally.passed);
    for (const auto& one : faults)
      text += "\n  " + one;
    return text;
  };
  const auto text = sim::run_apart(body, std::chrono::seconds(120));
  if (!text) return {text.error().describe(), false};
  return {text->substr(1), text->front() == '+'};
}

}  // namespace

int main(int argc, char** argv) {
  const auto first = testing::number(argc, argv, "--first", 1);
  const auto seeds = testing::number(argc, argv, "--seeds", 100);
  const bool twice = testing::has_flag(argc, argv, "--twice");
  const bool verbose = testing::has_flag(argc, argv, "--verbose");
  std::uint64_t bad = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = simulate(seed);
    const bool same = !twice || simulate(seed).summary == outcome.summary;
    if (verbose || !outcome.good) std::printf("seed %lu: %s\n", seed, outcome.summary.c_str());
    if (!same) std::printf("seed %lu: a second run was another one\n", seed);
    if (!outcome.good || !same) ++bad;
  }
  std::printf("%lu of %lu seeds without a fault\n", seeds - bad, seeds);
  return bad == 0 ? 0 : 1;
}
