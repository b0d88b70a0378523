// child.cpp MODE: what the tests of actor/ start.
//   serve         attaches and serves; ends when asked
//   stubborn      the same, but ignores being asked, and SIGTERM
//   hang          the same, but a thread of its own never ends, nor does main
//   attached      attaches and does nothing more, for ever
//   never_attach  sleeps
//   leave         attaches, prints a line and leaves with 7
//   host ADDRESS SECRET, host-listen ADDRESS SECRET   a host agent
//   parent PATH DEATH_SIGNAL MODE   starts two children of that mode, prints their process ids and
//   waits
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "teson/actor/host_agent.h"
#include "teson/actor/proc.h"
#include "teson/actor/system.h"
#include "teson/actor/testing/interfaces.h"
#include "teson/actor/trace_id.h"

namespace {

using namespace teson;
using namespace teson::actor;
using namespace teson::actor::testing;

class WorkerActor final : public Worker {
 public:
  WorkerActor(Proc& proc, MeshPlace place, std::string greeting)
      : proc_(proc), place_(std::move(place)), greeting_(std::move(greeting)) {}

  int add(int value) override {
    history_.push_back(value);
    return sum_ += value;
  }
  std::vector<int> history() const override { return history_; }
  std::vector<std::byte> echo(std::span<const std::byte> bytes) override {
    return {bytes.begin(), bytes.end()};
  }
  Result<int> refuse(const std::string& why) override { return fail(ErrorKind::overloaded, why); }
  int throws() override { throw std::runtime_error("thrown on purpose"); }
  void nap(int milliseconds) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  void crash(Crash how) override {
    std::fprintf(stderr, "about to crash\n");
    if (how == Crash::segfault) {
      ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit code of it
      ::raise(SIGSEGV);
    }
    if (how == Crash::abort) ::abort();
    if (how == Crash::kill_self) ::kill(::getpid(), SIGKILL);
    ::_exit(3);
  }
  Place place() override {
    const auto& context = proc_.context();
    std::uint64_t open = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      char target[256] = {};
      // Those it has opened itself (epoll, timers) have no names that begin so.
      if (::readlink(entry.path().c_str(), target, sizeof(target) - 1) > 0 &&
          std::string_view(target).starts_with("/tmp/"))
        ++open;
    }
    return {context.rank,
            context.size,
            context.incarnation,
            context.coordinate("replica").value_or(99),
            ::getpid(),
            ::getpgrp(),
            open};
  }
  std::string greeting() override { return greeting_; }
  Result<void> tell(const ActorRef<Listener>& listener, int count) override {
    for (int i = 0; i < count; ++i)
      TESON_TRY_VOID(proc_.actor(listener).cast<&Listener::heard>(proc_.context().rank, i));
    return {};
  }
  Result<int> ask(const ActorRef<Listener>& listener, int value) override {
    return proc_.actor(listener).call<&Listener::twice>(value).wait();
  }
  Seen see() override {
    const MeshPlace here = message_context();
    return {place_.rank, place_.size, place_.shape.describe(),
            here.rank,   here.size,   here.shape.describe()};
  }
  void note(const std::string& what) override {
    const MeshPlace here = message_context();
    notes_.push_back(what + " at " + std::to_string(here.rank) + " of " +
                     std::to_string(here.size));
  }
  std::vector<std::string> notes() override { return notes_; }
  Result<double> give(const std::vector<double>& values,
                      const std::vector<int>& milliseconds) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds.at(place_.rank)));
    const double value = values.at(place_.rank);
    if (value < 0) return fail(ErrorKind::failed, "nothing to give");
    return value;
  }
  std::uint64_t trace() override { return trace_id(); }

 private:
  Proc& proc_;
  const MeshPlace place_;
  std::string greeting_;
  std::vector<std::string> notes_;
  std::vector<int> history_;
  int sum_ = 0;
};

class NeighbourActor final : public Neighbour {
 public:
  explicit NeighbourActor(Proc& proc) : proc_(proc) {}
  Result<int> add(const ActorRef<Worker>& other, int value) override {
    return proc_.actor(other).call<&Worker::add>(value).wait();
  }
  Result<void> tell(const ActorRef<Worker>& other, const std::vector<std::string>& notes) override {
    for (const auto& note : notes)
      TESON_TRY_VOID(proc_.actor(other).cast<&Worker::note>(note));
    return {};
  }
  Result<bool> echo(const ActorRef<Worker>& other, std::uint64_t bytes) override {
    std::vector<std::byte> sent(bytes);
    for (std::size_t i = 0; i < sent.size(); ++i)
      sent[i] = static_cast<std::byte>(i * 31 >> 3);
    TESON_TRY(const auto back, proc_.actor(other).call<&Worker::echo>(std::span(sent)).wait());
    return back == sent;
  }
  Result<void> nap(const ActorRef<Worker>& other, int milliseconds) override {
    return proc_.actor(other).call<&Worker::nap>(milliseconds).wait();
  }

 private:
  Proc& proc_;
};

class QuickActor final : public Quick {
 public:
  explicit QuickActor(Proc& proc) : proc_(proc) {}
  int add(int value) override {
    history_.push_back(value);
    return value;
  }
  std::vector<int> history() override { return history_; }
  std::string thread() override {
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof(name));
    return name;
  }
  Result<int> ask(const ActorRef<Listener>& listener, int value) override {
    return proc_.actor(listener).call<&Listener::twice>(value).wait();
  }
  Result<void> tell(const ActorRef<Listener>& listener, int count) override {
    for (int i = 0; i < count; ++i)
      TESON_TRY_VOID(proc_.actor(listener).cast<&Listener::heard>(proc_.context().rank, i));
    return {};
  }
  std::vector<std::byte> give(std::uint64_t bytes) override {
    return std::vector<std::byte>(bytes, std::byte{7});
  }
  void throws() override { throw std::runtime_error("thrown on purpose"); }

 private:
  Proc& proc_;
  std::vector<int> history_;
};

class DeskActor final : public Desk {
 public:
  ~DeskActor() override {
    for (auto& thread : threads_)
      thread.join();
  }
  void ask(int key, Port<int> port) override { ports_[key] = std::move(port); }
  bool settle(int key, const Result<int>& answer) override {
    const auto found = ports_.find(key);
    if (found == ports_.end()) return false;
    found->second.answer(answer);
    ports_.erase(found);
    return true;
  }
  void ask_thread(int value, int milliseconds, Port<int> port) override {
    threads_.emplace_back([value, milliseconds, port = std::move(port)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      port.answer(value);
    });
  }
  void drop(Port<int>) override {}
  void fail_with(const std::string& why, bool keep, Port<int> port) override {
    if (keep) ports_[0] = std::move(port);
    throw std::runtime_error(why);
  }
  void answer_twice(Port<int> port) override {
    port.answer(1);
    port.answer(2);
  }
  void notify(Port<void> port) override { port.answer({}); }

 private:
  std::map<int, Port<int>> ports_;
  std::vector<std::thread> threads_;
};

class NestActor final : public Nest {
 public:
  ~NestActor() override {
    mesh_.reset();
    std::fprintf(stderr, "the nest is cleaned up\n");
  }
  Result<std::vector<std::int64_t>> hatch(std::uint64_t count, Reaction on_death) override {
    TESON_TRY(mesh_, this_host(system_).spawn_procs(
                         {{"egg", count}}, {.name = "nest", .arguments = [](const ProcPlace&) {
                                              return std::vector<std::string>{"serve"};
                                            }}));
    workers_ = mesh_->spawn<Worker>("worker", "");
    if (on_death != Reaction::nothing) react(on_death);
    std::vector<std::int64_t> pids;
    for (std::size_t rank = 0; rank < count; ++rank)
      pids.push_back(mesh_->pid(rank));
    return pids;
  }
  Result<int> add(std::uint64_t rank, int value) override {
    return workers_->at(rank).call_one<&Worker::add>(value).wait();
  }

 private:
  void react(Reaction on_death) {
    mesh_->on_failure([this, on_death](const ProcExit& exit) {
      if (on_death == Reaction::replace && mesh_->replace(exit.rank)) return;
      if (on_death == Reaction::fail) throw std::runtime_error("at a loss");
      std::fprintf(stderr, "giving up: %s\n", exit.describe("nest").c_str());
      ::_exit(9);
    });
  }

  System system_;
  std::optional<ProcMesh> mesh_;
  std::optional<ActorMesh<Worker>> workers_;
};

int run_child(const std::string& mode) {
  auto attached = Proc::attach({.mailbox = {.messages_max = 8}});
  if (!attached) {
    std::fprintf(stderr, "%s\n", attached.error().describe().c_str());
    return 1;
  }
  Proc& proc = **attached;
  proc.serve<Worker>([&proc](const ProcContext& context, std::string greeting) {
    return std::make_unique<WorkerActor>(proc, context, std::move(greeting));
  });
  proc.serve<Broken>([](const ProcContext&) -> Result<std::unique_ptr<Broken>> {
    return fail(ErrorKind::invalid, "broken on purpose");
  });
  proc.serve<Nest>([](const ProcContext&) { return std::make_unique<NestActor>(); });
  proc.serve<Quick>([&proc](const ProcContext&) { return std::make_unique<QuickActor>(proc); },
                    {.handlers = Handlers::in_place});
  proc.serve<Neighbour>(
      [&proc](const ProcContext&) { return std::make_unique<NeighbourActor>(proc); });
  proc.serve<Desk>([](const ProcContext&) { return std::make_unique<DeskActor>(); });
  if (mode == "leave") {
    std::printf("leaving by myself\n");
    return 7;
  }
  if (mode == "attached") {
    while (true)
      ::pause();
  }
  if (mode == "stubborn") ::signal(SIGTERM, SIG_IGN);
  proc.start();
  if (mode == "hang" || mode == "stubborn") {
    std::thread([] {
      while (true)
        ::pause();
    }).detach();
    while (true)
      ::pause();
  }
  proc.wait();
  return 0;
}

int run_host(bool listen, const std::string& address, const std::string& secret) {
  const auto tls = net::Tls::from_environment();
  const auto server = HostServer::start({.address = *net::Address::parse(address),
                                         .listen = listen,
                                         .secret = secret,
                                         .tls = tls.value_or(nullptr),
                                         .connect_interval = std::chrono::milliseconds(50)});
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().describe().c_str());
    return 1;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (true)
    ::pause();
}

int run_parent(const std::string& self, bool death_signal, const std::string& mode) {
  System system;
  auto mesh = this_host(system).spawn_procs(
      {{"replica", 2}},
      {.program = self,
       .arguments = [mode](const ProcPlace&) { return std::vector<std::string>{mode}; },
       .orphan_grace = std::chrono::milliseconds(200),
       .parent_death_signal = death_signal});
  if (!mesh || !mesh->wait_attached(std::chrono::steady_clock::now() + std::chrono::seconds(20)))
    return 1;
  std::printf("%d %d\n", mesh->pid(0), mesh->pid(1));
  std::fflush(stdout);
  while (true)
    ::pause();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "serve";
  if (mode == "parent")
    return run_parent(arguments[2], std::string(arguments[3]) == "1", arguments[4]);
  if (mode == "host" || mode == "host-listen")
    return run_host(mode == "host-listen", arguments[2], arguments[3]);
  if (mode == "never_attach") {
    while (true)
      ::pause();
  }
  return run_child(mode);
}
