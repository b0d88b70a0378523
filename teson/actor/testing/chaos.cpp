// chaos [--seconds N] [--seed S]: processes of two supervised meshes are killed, crashed and stopped at
// random instants while threads call them in every way. Each call must end by its deadline, whatever
// happens; in the end all ranks answer again, and nothing is left: no process, no descriptor, no memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"
#include "teson/actor/testing/arguments.h"
#include "teson/base/random.h"
#include "teson/net/payload.h"

namespace {

using namespace teson;
using namespace teson::actor;
using namespace std::chrono_literals;

constexpr std::size_t procs = 4;
constexpr std::size_t large_bytes = 1 << 20;
/// Beyond its deadline a call may take what a machine takes that runs much else.
constexpr Duration late_max = 2s;
#ifdef __SANITIZE_ADDRESS__
constexpr double growth_mb_max = 1024;  // it keeps what was freed for a while
#else
constexpr double growth_mb_max = 64;
#endif

class Target {
 public:
  int add(int value) { return sum_ += value; }
  std::vector<std::byte> echo(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
  }
  void nap(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  Result<int> refuse() { return fail(ErrorKind::failed, "on purpose"); }
  using endpoints = Endpoints<&Target::add, &Target::echo, &Target::nap, &Target::refuse>;

 private:
  int sum_ = 0;
};

int serve() {
  auto proc = Proc::attach();
  if (!proc) return 1;
  (*proc)->serve<Target>([](const ProcContext&) { return std::make_unique<Target>(); });
  (*proc)->start();
  (*proc)->wait();
  return 0;
}

struct Tally {
  std::atomic<long> calls{0};
  std::atomic<long> values{0};
  std::array<std::atomic<long>, 7> errors{};  ///< by kind
  std::atomic<long> kills{0};
  std::atomic<long> restarts{0};

  template <typename R>
  void add(const Result<R>& result) {
    ++(result ? values : errors.at(static_cast<std::size_t>(result.error().kind)));
  }
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "chaos: %s\n", why.c_str());
  std::_Exit(1);
}

/// One call of some kind, with a random deadline, and how long it took.
void call_somehow(const ActorMesh<Target>& all, CounterRandom& random, Tally& tally) {
  const auto deadline = std::chrono::milliseconds(20 + random.below(1000));
  const auto mesh = all.within(deadline);
  const auto one = mesh.at(random.below(procs));
  const auto began = std::chrono::steady_clock::now();
  const auto kind = random.below(8);
  ++tally.calls;
  switch (kind) {
    case 0:
      for (const auto& result : mesh.call<&Target::add>(1).wait())
        tally.add(result);
      break;
    case 1:
      tally.add(one.call_one<&Target::add>(1).wait());
      break;
    case 2:
      tally.add(mesh.choose<&Target::refuse>().wait());
      break;
    case 3:
      for (auto stream = mesh.stream<&Target::nap>(static_cast<int>(random.below(50)));
           auto reply = stream.next();)
        tally.add(reply->reply);
      break;
    case 4:
      tally.add(mesh.reduce<&Target::add>(Sum{}, 1));
      break;
    case 5:
      tally.add(one.cast<&Target::add>(1));
      break;
    case 6:
      tally.add(one.call_one<&Target::echo>(std::span<const std::byte>(
                                                std::vector<std::byte>(large_bytes, std::byte{7})))
                    .wait());
      break;
    default:
      (void)mesh.call<&Target::nap>(10).wait_for(any);
  }
  const auto took = std::chrono::steady_clock::now() - began;
  if (took > deadline + late_max) {
    give_up(fmt::format("call of kind {} with a deadline of {} ms ended after {:.0f} ms", kind,
                        deadline.count(), to_ms(took)));
  }
}

/// Something happens to some process.
void harm(ProcMesh& mesh, CounterRandom& random, Tally& tally) {
  constexpr std::array signals{SIGKILL, SIGKILL, SIGSEGV, SIGTERM, SIGSTOP};
  if (mesh.kill(random.below(procs), signals.at(random.below(signals.size())))) ++tally.kills;
}

std::size_t children() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string pid; file >> pid;)
      ++count;
  }
  return count;
}

/// But for those of memory that is kept for large payloads, which has bounds of its own.
std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all))) -
         net::SharedPool::of_process().usage().idle_blocks;
}

double resident_mb() {
  std::ifstream statm("/proc/self/statm");
  double total = 0;
  double resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

void run(Duration length, std::uint64_t seed, Tally& tally) {
  System system({.on_undelivered = [](const UndeliveredCast&) {},
                 .on_unhandled = [](const std::string& chain) { give_up(chain); }});
  std::vector<ProcMesh> meshes;
  std::vector<ActorMesh<Target>> targets;
  for (const char* name : {"left", "right"}) {
    // One that is stopped before it has attached is missed after that deadline, not by its heartbeats.
    auto mesh = this_host(system).spawn_procs(
        {{"proc", procs}},
        {.name = name, .attach_deadline = 10s, .stop_grace = 500ms, .heartbeat = 300ms});
    if (!mesh) give_up(mesh.error().describe());
    mesh->supervise({.strategy = meshes.empty() ? Strategy::one_for_one : Strategy::all_for_one,
                     .restarts = {.restarts_max = 1'000'000, .backoff_max = 100ms},
                     .on_restart = [&](const auto& ranks) {
                       tally.restarts += static_cast<long>(ranks.size());
                     }});
    targets.push_back(mesh->spawn<Target>("target"));
    meshes.push_back(std::move(*mesh));
  }
  std::atomic<bool> ending{false};
  std::vector<std::thread> threads;
  for (std::uint64_t caller = 0; caller < 4; ++caller) {
    threads.emplace_back([&, caller] {
      CounterRandom random({seed, 1, caller});
      while (!ending)
        call_somehow(targets[random.below(2)], random, tally);
    });
  }
  threads.emplace_back([&] {
    CounterRandom random({seed, 2});
    while (!ending) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random.below(200)));
      harm(meshes[random.below(2)], random, tally);
    }
  });
  std::this_thread::sleep_for(length);
  ending = true;
  for (auto& thread : threads)
    thread.join();
  const auto limit = std::chrono::steady_clock::now() + 60s;
  for (const auto& mesh : targets) {
    while (!mesh.within(2s).reduce<&Target::add>(Count{}, 1)) {
      if (std::chrono::steady_clock::now() > limit) give_up("not all ranks have come back in 60 s");
      std::this_thread::sleep_for(50ms);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (Proc::is_child()) return serve();
  const auto seconds = testing::number(argc, argv, "--seconds", 5);
  const auto seed = testing::number(argc, argv, "--seed", 1);
  Tally warm_up;
  run(1s, seed, warm_up);  // what is made once is made
  const std::size_t open_before = descriptors();
  const double before_mb = resident_mb();
  Tally tally;
  run(std::chrono::seconds(seconds), seed, tally);
  const double growth_mb = resident_mb() - before_mb;
  std::printf("seed %llu: %ld calls, %ld values, %ld kills, %ld restarts, memory %+.1f MB\n",
              static_cast<unsigned long long>(seed), tally.calls.load(), tally.values.load(),
              tally.kills.load(), tally.restarts.load(), growth_mb);
  for (std::size_t kind = 0; kind < tally.errors.size(); ++kind) {
    if (const long count = tally.errors[kind].load())
      std::printf("  %ld %s\n", count,
                  std::string(to_string(static_cast<ErrorKind>(kind))).c_str());
  }
  if (children() != 0) give_up(fmt::format("{} children are left", children()));
  if (descriptors() > open_before)
    give_up(fmt::format("{} descriptors before, {} after", open_before, descriptors()));
  if (growth_mb > growth_mb_max) give_up(fmt::format("memory has grown by {:.0f} MB", growth_mb));
  return 0;
}
