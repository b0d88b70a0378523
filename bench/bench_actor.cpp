// What a message between actors costs, next to what the machine does without them; how quickly
// processes start, end, and are missed. This program is also its own children.
//   bench_actor [--json] [--quick]
// Processes of one machine talk over Unix sockets; over TCP only where a host agent has started them.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "teson/actor/host_agent.h"
#include "teson/actor/proc.h"
#include "teson/actor/system.h"
#include "teson/base/clock.h"
#include "teson/base/random.h"

namespace {

using namespace teson;
using namespace teson::actor;
using bench::print_figure;
using bench::quantile_of;

constexpr std::size_t floor_message_bytes = 64;
constexpr std::size_t cast_bytes = 16;
constexpr int casts = 200'000;
constexpr std::size_t payload_bytes = std::size_t{64} << 20;
constexpr std::size_t relayed_bytes = std::size_t{16} << 20;
constexpr std::uint64_t seed = 1;
/// A receiver that is slower than its sender keeps all casts instead of refusing some.
constexpr std::size_t mailbox_messages = casts + 1;
constexpr Duration full_queue_wait = std::chrono::microseconds(50);
constexpr Duration start_deadline = std::chrono::seconds(30);
constexpr Duration handler_deadline = std::chrono::seconds(30);

bool json = false;
bool quick = false;

void report(const std::string& name, double value, const char* unit) {
  print_figure(json, name, value, unit);
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_actor: %s\n", why.c_str());
  std::exit(1);
}

template <typename R>
void must(const Result<R>& result) {
  if (!result) give_up(result.error().describe());
}
template <typename R>
R must_be(Result<R> result) {
  must(result);
  return std::move(*result);
}

Instant now() {
  return SystemClock().now();
}

class Target {
 public:
  virtual ~Target() = default;
  virtual void nothing() = 0;
  virtual void take(std::span<const std::byte> bytes) = 0;
  virtual std::uint64_t taken() = 0;
  virtual std::uint64_t sum(std::span<const std::byte> words) = 0;
  using endpoints = Endpoints<&Target::nothing, &Target::take, &Target::taken, &Target::sum>;
};

/// One that may take its time.
class Worker {
 public:
  void nothing() {}
  using endpoints = Endpoints<&Worker::nothing>;
};

class TargetActor final : public Target {
 public:
  void nothing() override {}
  void take(std::span<const std::byte>) override { ++taken_; }
  std::uint64_t taken() override { return taken_; }
  std::uint64_t sum(std::span<const std::byte> words) override {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at + sizeof(sum) <= words.size(); at += sizeof(sum)) {
      std::uint64_t word = 0;
      std::memcpy(&word, words.data() + at, sizeof(word));
      sum += word;
    }
    return sum;
  }

 private:
  std::uint64_t taken_ = 0;
};

/// Microseconds of each round; as many as a tenth of them run first, unmeasured.
template <typename Round>
std::vector<double> times_us(int rounds, Round round) {
  std::vector<double> times;
  for (int i = -rounds / 10; i < rounds; ++i) {
    const Instant began = now();
    round();
    if (i >= 0) times.push_back(1000 * to_ms(now() - began));
  }
  return times;
}

/// Calls an actor of another process that is no child of its own.
class Neighbour {
 public:
  explicit Neighbour(Proc& proc) : proc_(proc) {}
  std::vector<double> call(const ActorRef<Target>& other, int rounds) {
    return times_us(rounds, [&] { must(proc_.actor(other).call<&Target::nothing>().wait()); });
  }
  using endpoints = Endpoints<&Neighbour::call>;

 private:
  Proc& proc_;
};

int serve() {
  auto proc = Proc::attach({.mailbox = {.messages_max = mailbox_messages}});
  must(proc);
  (*proc)->serve<Target>([](const ProcContext&) { return std::make_unique<TargetActor>(); },
                         {.handlers = Handlers::in_place});
  (*proc)->serve<Worker>([](const ProcContext&) { return std::make_unique<Worker>(); });
  (*proc)->serve<Neighbour>(
      [&](const ProcContext&) { return std::make_unique<Neighbour>(**proc); });
  (*proc)->start();
  (*proc)->wait();
  return 0;
}

ProcMesh start(System& system, std::size_t procs) {
  auto mesh = this_host(system).spawn_procs({{"proc", procs}}, {.name = "bench"});
  must(mesh);
  return std::move(*mesh);
}

/// Ping-pong between two processes that do nothing else, with blocking reads and writes.
void bench_floor() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) give_up("no socketpair");
  char message[floor_message_bytes] = {};
  const auto pass = [&](int end) {
    return ::recv(end, message, sizeof(message), MSG_WAITALL) == sizeof(message);
  };
  const auto send = [&](int end) {
    return ::send(end, message, sizeof(message), MSG_NOSIGNAL) == sizeof(message);
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    while (pass(ends[1]) && send(ends[1])) {
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  const auto times = times_us(quick ? 5000 : 50000, [&] {
    if (!send(ends[0]) || !pass(ends[0])) give_up("the other end of the socketpair is gone");
  });
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  report("floor.socketpair.p50_us", quantile_of(times, 0.5), "us");
}

void bench_calls() {
  const int rounds = quick ? 5000 : 50000;
  System system;
  const auto own = system.actor(system.host<Target>("target", std::make_unique<TargetActor>(),
                                                    {.handlers = Handlers::in_place}));
  const auto same_proc = times_us(rounds, [&] { must(own.call<&Target::nothing>().wait()); });
  report("call.same_proc.p50_us", quantile_of(same_proc, 0.5), "us");
  report("call.same_proc.p99_us", quantile_of(same_proc, 0.99), "us");
  const auto worker = system.actor(system.host<Worker>("worker", std::make_unique<Worker>()));
  const auto own_thread = times_us(rounds, [&] { must(worker.call<&Worker::nothing>().wait()); });
  report("call.same_proc.own_thread.p50_us", quantile_of(own_thread, 0.5), "us");

  ProcMesh mesh = start(system, 2);
  const auto all = mesh.spawn<Target>("target");
  const auto other = all.at(0);
  const auto same_host = times_us(rounds, [&] { must(other.call_one<&Target::nothing>().wait()); });
  report("call.same_host.unix.p50_us", quantile_of(same_host, 0.5), "us");
  report("call.same_host.unix.p90_us", quantile_of(same_host, 0.9), "us");
  report("call.same_host.unix.p99_us", quantile_of(same_host, 0.99), "us");
  const auto workers = mesh.spawn<Worker>("worker").at(0);
  const auto threaded =
      times_us(rounds, [&] { must(workers.call_one<&Worker::nothing>().wait()); });
  report("call.same_host.unix.own_thread.p50_us", quantile_of(threaded, 0.5), "us");

  const auto neighbours = mesh.spawn<Neighbour>("neighbour");
  const auto between =
      must_be(neighbours.at(1).call_one<&Neighbour::call>(all.ref(0), rounds).wait());
  report("call.neighbour.unix.p50_us", quantile_of(between, 0.5), "us");
}

/// Processes that a host agent, here within this one, has started.
struct Hosted {
  explicit Hosted(std::size_t procs, SystemOptions options = {}) : system(std::move(options)) {
    const auto at = must_be(system.listen(
        {.address = must_be(net::Address::parse("tcp:127.0.0.1:0")), .secret = "bench"}));
    agent = must_be(HostServer::start({.address = at, .secret = "bench"}));
    const auto hosts = must_be(system.wait_hosts(1, now() + start_deadline));
    mesh.emplace(must_be(hosts.spawn_procs({{"proc", procs}}, {.name = "bench"})));
    must(mesh->wait_attached(now() + start_deadline));
    target.emplace(mesh->spawn<Target>("target"));
  }
  System system;
  std::unique_ptr<HostServer> agent;
  std::optional<ProcMesh> mesh;
  std::optional<ActorMesh<Target>> target;
};

void bench_tcp() {
  const Hosted other(1);
  const auto times = times_us(quick ? 5000 : 50000,
                              [&] { must(other.target->call_one<&Target::nothing>().wait()); });
  report("call.same_host.tcp.p50_us", quantile_of(times, 0.5), "us");
  report("call.same_host.tcp.p99_us", quantile_of(times, 0.99), "us");
}

/// A large call to the processes of a host: through its agent, and to each by itself.
void bench_relay() {
  const std::vector<std::byte> bytes(relayed_bytes, std::byte{1});
  for (const bool relayed : {true, false}) {
    SystemOptions options;
    if (!relayed) options.relay_bytes_min = std::numeric_limits<std::size_t>::max();
    const Hosted all(8, options);
    const auto times = times_us(quick ? 10 : 50, [&] {
      for (const auto& reply : all.target->call<&Target::take>(std::span(bytes)).wait())
        must(reply);
    });
    report(fmt::format("call_all.8_procs.16MiB.tcp.{}.p50_ms", relayed ? "relayed" : "direct"),
           quantile_of(times, 0.5) / 1e3, "ms");
  }
}

double resident_mb() {
  std::ifstream status("/proc/self/statm");
  double total = 0;
  double resident = 0;
  status >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

/// From the first cast to the reply of a call sent after the last one.
void bench_casts() {
  System system;
  ProcMesh mesh = start(system, 1);
  const auto target = mesh.spawn<Target>("target");
  must(target.call_one<&Target::nothing>().wait());
  const std::vector<std::byte> bytes(cast_bytes);
  const double before = resident_mb();
  const Instant began = now();
  for (int i = 0; i < casts; ++i) {
    while (true) {
      const auto sent = target.cast<&Target::take>(std::span(bytes));
      if (sent) break;
      if (sent.error().kind != ErrorKind::overloaded) give_up(sent.error().describe());
      std::this_thread::sleep_for(full_queue_wait);
    }
  }
  const double after = resident_mb();
  const auto taken = target.call_one<&Target::taken>().wait();
  const double seconds = to_seconds(now() - began);
  must(taken);
  if (*taken != casts) give_up(fmt::format("expected {} casts to arrive, found {}", casts, *taken));
  report("cast.messages_per_s", casts / seconds, "1/s");
  report("cast.sender_growth_MB", std::max(0.0, after - before), "MB");
}

void bench_call_all(std::size_t procs) {
  System system;
  ProcMesh mesh = start(system, procs);
  const auto targets = mesh.spawn<Target>("target");
  const auto times = times_us(quick ? 500 : 5000, [&] {
    for (const auto& reply : targets.call<&Target::nothing>().wait())
      must(reply);
  });
  report(fmt::format("call_all.{}_procs.p50_us", procs), quantile_of(times, 0.5), "us");
}

void bench_payload() {
  std::vector<std::byte> bytes(payload_bytes, std::byte{1});
  std::vector<std::byte> copy(payload_bytes);
  const int rounds = quick ? 5 : 20;
  const auto copied = times_us(rounds, [&] {
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    if (copy.back() != bytes.back()) std::abort();
  });
  System system;
  ProcMesh mesh = start(system, 1);
  const auto target = mesh.spawn<Target>("target");
  must(target.call_one<&Target::nothing>().wait());
  const auto sent =
      times_us(rounds, [&] { must(target.call_one<&Target::take>(std::span(bytes)).wait()); });
  const auto speed = [](const std::vector<double>& times) {
    return static_cast<double>(payload_bytes) / 1e3 / quantile_of(times, 0.5);
  };
  const auto read = times_us(rounds, [&] {
    if (must_be(target.call_one<&Target::sum>(std::span(bytes)).wait()) !=
        payload_bytes / sizeof(std::uint64_t) * 0x0101010101010101)
      give_up("a payload arrived damaged");
  });
  report("payload.64MiB.unix.GBps", speed(sent), "GB/s");
  report("payload.64MiB.unix.read.GBps", speed(read), "GB/s");
  report("memcpy.GBps", speed(copied), "GB/s");
}

/// Spawning: from the request to the first replies of all.
void bench_spawn_and_stop() {
  constexpr std::size_t procs = 8;
  std::vector<double> spawned_ms;
  std::vector<double> stopped_ms;
  for (int round = 0; round < (quick ? 5 : 20); ++round) {
    System system;
    const Instant began = now();
    ProcMesh mesh = start(system, procs);
    for (const auto& reply : mesh.spawn<Target>("target").call<&Target::nothing>().wait())
      must(reply);
    spawned_ms.push_back(to_ms(now() - began));
    const Instant asked = now();
    mesh.stop();
    stopped_ms.push_back(to_ms(now() - asked));
  }
  report("spawn.8_procs.ms", quantile_of(spawned_ms, 0.5), "ms");
  report("stop.8_procs.ms", quantile_of(stopped_ms, 0.5), "ms");
}

/// From the signal to the first line of the owner's handler, at random instants.
void bench_kills() {
  CounterRandom random({seed});
  System system;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Instant> told;
  ProcMesh mesh = start(system, 1);
  mesh.on_failure([&](const ProcExit&) {
    const Instant at = now();
    std::lock_guard lock(mutex);
    told.push_back(at);
    changed.notify_one();
  });
  std::vector<double> times_ms;
  for (std::size_t round = 0; round < (quick ? 20 : 100); ++round) {
    if (round > 0) must(mesh.replace(0));
    must(mesh.wait_attached(now() + start_deadline));
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + random.below(20000)));
    const Instant killed = now();
    must(mesh.kill(0, SIGKILL));
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, handler_deadline, [&] { return told.size() > round; }))
      give_up(fmt::format("the handler was not called in 30 s (seed {}, kill {})", seed, round));
    times_ms.push_back(to_ms(told.back() - killed));
  }
  report("kill_to_handler.p50_ms", quantile_of(times_ms, 0.5), "ms");
  report("kill_to_handler.p99_ms", quantile_of(times_ms, 0.99), "ms");
}

}  // namespace

int main(int argc, char** argv) {
  if (Proc::is_child()) return serve();
  json = bench::has_flag(argc, argv, "--json");
  quick = bench::has_flag(argc, argv, "--quick");
  bench_floor();
  bench_calls();
  bench_tcp();
  bench_casts();
  bench_call_all(8);
  bench_call_all(16);
  bench_spawn_and_stop();
  bench_payload();
  bench_relay();
  bench_kills();
  return 0;
}
