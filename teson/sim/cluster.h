#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "teson/actor/proc_life.h"
#include "teson/base/fd.h"
#include "teson/base/thread.h"
#include "teson/sim/network.h"
#include "teson/sim/scheduler.h"

namespace teson::sim {

struct ClusterOptions {
  NetworkOptions network;
  /// From the end of a process to its parent's learning of it, from the end of a parent to that of children that the kernel ends with
  /// it, and from the start of a process to its first instruction; drawn from 0.
  Duration notice_max = std::chrono::milliseconds(5);
  Duration start_max = std::chrono::milliseconds(50);
};

/// Processes of the actor runtime in a simulation, and the network between them. Made by the body of Scheduler::run, on its thread; the
/// processes that it starts run real code: Proc::attach, actors, channels, handshakes, frames.
class Cluster {
 public:
  /// What a process runs, by the name of its program (ProcOptions::program): its main.
  using Programs = std::map<std::string, std::function<void()>>;

  Cluster(Scheduler& scheduler, ClusterOptions options, Programs programs);
  /// Ends its kernel's thread; processes that still live stand still from then on.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// Starts processes as children of the one that calls it; for SystemOptions::launcher.
  std::shared_ptr<actor::detail::Launcher> launcher();

  /// A process of its own on a host: 1, 2, …, or 0 for that of the simulation's body. Its number.
  int start(int host, const std::string& program);
  /// Those that live, but the simulation's own; in the order of their making. Of one host, or of all.
  std::vector<int> living(std::optional<int> host = std::nullopt) const;
  /// All of its processes end, and nobody is told: the power is gone. What is started there afterwards is new.
  void lose_host(int host);
  /// For what happens to connections between hosts.
  Network& network() { return network_; }
  /// Has what was done to the network seen at once.
  void wake_kernel();
  /// As of kill(2), for SIGKILL, SIGTERM, SIGSTOP and SIGCONT.
  void signal(int process, int number);

 private:
  class SimulatedLauncher;
  class SimulatedLife;
  struct Watcher;
  struct Child {
    Process* process = nullptr;
    int death_signal = 0;  ///< when its parent ends
    std::weak_ptr<Watcher> watcher;
  };

  Result<std::unique_ptr<actor::detail::ProcLife>> start(net::Loop& loop, std::string host,
                                                         const actor::detail::ChildSpec& spec,
                                                         int socket);
  Fd listen(Process& process, const std::string& address);
  Fd connect(Process& process, const std::string& address);
  std::function<void()> main_of(const std::string& program);
  void run_kernel();
  /// Kernel's thread, at some instant before `most` has passed.
  void soon(Duration most, std::function<void()> function);
  void ended(Process& process, int code, int signal);
  void tell(Process& process, int code, int signal);

  Scheduler& scheduler_;
  const ClusterOptions options_;
  const Programs programs_;
  Network network_;
  struct Door {
    std::string path;
    const Process* process = nullptr;
  };
  std::map<int, Child> children_;
  std::map<std::string, Door> doors_;  ///< by address: where its socket really is
  int next_door_ = 1;
  std::multimap<Instant, std::function<void()>> events_;
  const Fd wake_;
  bool ending_ = false;
  Thread kernel_;
};

}  // namespace teson::sim
