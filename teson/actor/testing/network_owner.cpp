// network_owner MARK HEARTBEAT_MS: an owner whose network the tests disturb, and the program of its processes.
//
// It does what lines on its input say and answers each with one line of JSON; what it is told meanwhile
// comes between them. MARK is the last argument of each process that it starts on a host, to find them by;
// HEARTBEAT_MS the heartbeat of host agents.
//
//   listen ADDRESS ADVERTISED       opens the door
//   hosts COUNT SECONDS             waits for agents
//   spawn COUNT HEARTBEAT_MS        so many processes on each of those hosts, instead of the last ones
//   expect COUNT HEARTBEAT_MS       the same with tickets, for others to start
//   supervise                       keeps them alive from now on
//   call NUMBER METHOD RANK ARGUMENT SECONDS
//   count FROM TO                   casts these numbers to every process
//   stop                            ends the processes
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"

namespace {

using namespace teson;
using namespace teson::actor;
using Json = nlohmann::json;

class Target {
 public:
  int add(int value) { return value + 1; }
  std::vector<std::byte> echo(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
  }
  /// Each byte times its place, from 1 on.
  std::uint64_t sum(std::span<const std::byte> bytes) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      sum += (i + 1) * std::to_integer<std::uint64_t>(bytes[i]);
    return sum;
  }
  void nap(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  void count(long number) {
    if (number == counted_)
      ++counted_;
    else
      disorder_ = true;
  }
  /// How many numbers have come, from 0 on, each once and in order.
  Result<long> counted() const {
    if (disorder_) return fail(ErrorKind::failed, "a number was lost, or came twice");
    return counted_;
  }
  using endpoints = Endpoints<&Target::add, &Target::echo, &Target::sum, &Target::nap,
                              &Target::count, &Target::counted>;

 private:
  long counted_ = 0;
  bool disorder_ = false;
};

Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// A line of output. `at` is the machine's steady clock, as of Python's time.monotonic.
void tell(Json line) {
  static std::mutex mutex;
  line["at"] = to_seconds(std::chrono::steady_clock::now().time_since_epoch());
  std::lock_guard lock(mutex);
  std::cout << line.dump() << std::endl;
}

Json error_of(const Error& error) {
  return {{"error", error.message}, {"kind", to_string(error.kind)}};
}

int serve() {
  auto proc = Proc::attach();
  if (!proc) {
    std::fprintf(stderr, "%s\n", proc.error().describe().c_str());
    return 1;
  }
  (*proc)->serve<Target>([](const ProcContext&) { return std::make_unique<Target>(); });
  (*proc)->start();
  (*proc)->wait();
  return 0;
}

class Owner {
 public:
  Owner(std::string mark, Duration host_heartbeat)
      : mark_(std::move(mark)),
        system_({.host_heartbeat = host_heartbeat, .on_host_lost = [](const std::string& why) {
                   tell({{"event", "host_lost"}, {"error", why}});
                 }}) {}

  void run() {
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string verb;
      words >> verb;
      Json answer = obey(verb, words);
      answer["event"] = verb;
      tell(std::move(answer));
    }
    mesh_.reset();
  }

 private:
  Json obey(const std::string& verb, std::istream& words) {
    if (verb == "listen") return listen(words);
    if (verb == "hosts") return wait_hosts(words);
    if (verb == "spawn" || verb == "expect") return start(words, verb == "expect");
    if (verb == "supervise") return supervise();
    if (verb == "call") return call(words);
    if (verb == "count") return count(words);
    if (verb != "stop") return {{"error", "no such verb"}};
    mesh_.reset();
    return Json::object();
  }

  Json listen(std::istream& words) {
    std::string address;
    std::string advertised;
    words >> address >> advertised;
    const char* secret = std::getenv("TESON_JOB_SECRET");
    const auto listening = system_.listen({.address = *net::Address::parse(address),
                                           .advertised = *net::Address::parse(advertised),
                                           .secret = secret == nullptr ? "" : secret});
    if (!listening) return error_of(listening.error());
    return {{"port", listening->port()}};
  }

  Json wait_hosts(std::istream& words) {
    std::size_t count = 0;
    double seconds = 0;
    words >> count >> seconds;
    auto hosts =
        system_.wait_hosts(count, std::chrono::steady_clock::now() + from_seconds(seconds));
    if (!hosts) return error_of(hosts.error());
    hosts_ = std::move(*hosts);
    return {{"host", hosts_->host(0).name()}};
  }

  Json start(std::istream& words, bool expected) {
    std::size_t count = 0;
    int heartbeat_ms = 0;
    words >> count >> heartbeat_ms;
    mesh_.reset();
    const Shape shape{{"proc", count}};
    ProcOptions options{
        .name = "workers",
        .program = std::filesystem::read_symlink("/proc/self/exe"),
        .arguments = [this](const ProcPlace&) { return std::vector<std::string>{mark_}; },
        .stop_grace = std::chrono::seconds(1),
        .heartbeat = std::chrono::milliseconds(heartbeat_ms)};
    auto mesh = expected ? system_.expect_procs(shape, std::move(options))
                         : hosts_->spawn_procs(shape, std::move(options));
    if (!mesh) return error_of(mesh.error());
    mesh_ = std::move(*mesh);
    mesh_->on_failure(tell_exit);
    targets_ = mesh_->spawn<Target>("target");
    Json answer{{"pids", Json::array()}, {"tickets", Json::array()}};
    for (std::size_t rank = 0; rank < mesh_->region().ranks(); ++rank) {
      answer["pids"].push_back(mesh_->pid(rank));
      answer["tickets"].push_back(mesh_->ticket(rank));
    }
    return answer;
  }

  static void tell_exit(const ProcExit& exit) {
    tell({{"event", "exit"}, {"rank", exit.rank}, {"error", exit.describe("workers")}});
  }

  Json supervise() {
    mesh_->supervise(
        {.restarts = {.restarts_max = 1000, .backoff_max = std::chrono::milliseconds(200)},
         .on_exit = tell_exit,
         .on_restart = [](const auto& ranks) { tell({{"event", "restart"}, {"ranks", ranks}}); }});
    return Json::object();
  }

  Json call(std::istream& words) {
    int number = 0;
    std::string method;
    std::size_t rank = 0;
    int argument = 0;
    double seconds = 0;
    words >> number >> method >> rank >> argument >> seconds;
    calls_.emplace_back(
        [number, method, rank, argument, targets = targets_->within(from_seconds(seconds))] {
          Json reply = method == "sum" ? sum(targets, argument)
                                       : answer_of(targets.at(rank), method, argument);
          reply["event"] = "reply";
          reply["number"] = number;
          tell(std::move(reply));
        });
    return {{"number", number}};
  }

  static Json answer_of(const ActorMesh<Target>& target, const std::string& method, int argument) {
    const auto json = [](const auto& result) {
      return result ? Json{{"value", *result}} : error_of(result.error());
    };
    if (method == "add") return json(target.call_one<&Target::add>(argument).wait());
    if (method == "counted") return json(target.call_one<&Target::counted>().wait());
    if (method == "nap") {
      const auto slept = target.call_one<&Target::nap>(argument).wait();
      return slept ? Json{{"value", true}} : error_of(slept.error());
    }
    const std::vector<std::byte> bytes(static_cast<std::size_t>(argument), std::byte{7});
    const auto echoed = target.call_one<&Target::echo>(std::span(bytes)).wait();
    return echoed ? Json{{"value", *echoed == bytes}} : error_of(echoed.error());
  }

  /// Of so many bytes, the squares of their places; in each rank.
  static Json sum(const ActorMesh<Target>& targets, int count) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * i % 251);
    Json values = Json::array();
    for (const auto& sum : targets.call<&Target::sum>(std::span(bytes)).wait()) {
      if (!sum) return error_of(sum.error());
      values.push_back(*sum);
    }
    return {{"value", values}};
  }

  Json count(std::istream& words) {
    long from = 0;
    long to = 0;
    words >> from >> to;
    for (long number = from; number < to; ++number) {
      if (auto sent = targets_->cast<&Target::count>(number); !sent) return error_of(sent.error());
    }
    return Json::object();
  }

  const std::string mark_;
  System system_;
  std::optional<HostMesh> hosts_;
  std::optional<ProcMesh> mesh_;
  std::optional<ActorMesh<Target>> targets_;
  std::vector<std::jthread> calls_;
};

}  // namespace

int main(int count, char** arguments) {
  if (Proc::is_child()) return serve();
  if (count != 3) {
    std::fprintf(stderr, "network_owner: expected MARK HEARTBEAT_MS\n");
    return 2;
  }
  Owner(arguments[1], std::chrono::milliseconds(std::atoi(arguments[2]))).run();
  return 0;
}
