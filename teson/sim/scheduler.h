#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include "teson/base/clock.h"
#include "teson/base/fd.h"
#include "teson/base/random.h"
#include "teson/base/world.h"

namespace teson::sim {

/// A process of a simulation: threads that live and die together.
struct Process {
  int number = 0;  ///< 1, 2, … in the order of their making
  int parent = 0;  ///< whose process it is; 0: the simulation's own
  int host = 0;    ///< on which it runs; 0: the simulation's own
  std::string name;
  std::unordered_map<std::string, std::string> variables;
  bool stopped = false;  ///< its threads get no turn, as after SIGSTOP
  bool dead = false;
};

/// Its process id.
pid_t pid_of(int process);

/// Runs threads one at a time, in an order drawn from a seed, on a clock that jumps to the next deadline when nobody can run: the same
/// seed, the same run. A thread gives up its turn where it waits, where it takes a lock, and where it wakes another; so
/// between two of these nothing else happens, and what depends on the order of threads is tried in many orders.
///
/// Each is a thread of the operating system, so thread-local variables are its own. What a dead process leaves behind (memory, descriptors,
/// threads that never go on) stays until this process ends: run each simulation in a process of its own (run_apart).
class Scheduler {
 public:
  explicit Scheduler(std::uint64_t seed);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Runs `body` as the first thread of process 0, and returns when it has; other threads that still live never go on. Once. A simulation in which
  /// nobody can ever go on, or whose clock passes `limit`, ends with an error that names every thread and what it waits for; else nothing.
  std::optional<std::string> run(std::function<void()> body, Duration limit);

  // Within the simulation: on one of its threads.

  /// A new process that runs `body`; it ends with `body`, with code 0, or by end().
  Process& start(Process& parent, int host, std::string name,
                 std::unordered_map<std::string, std::string> variables,
                 std::function<void()> body);
  /// Of the calling thread.
  Process& process();
  /// Ends it at once. If the calling thread is one of its own, this does not return.
  void end(Process& process, int code, int signal);
  /// What processes listen to and connect to, as of World.
  std::function<Fd(Process&, const std::string& address)> on_listen;
  std::function<Fd(Process&, const std::string& address)> on_connect;
  /// Told of each end, on some thread of the simulation, before anybody else runs.
  std::function<void(Process&, int code, int signal)> on_end;

  Instant now() const { return now_; }
  CounterRandom& random() { return random_; }
  /// Grows with everything that was decided; two runs are the same if it is.
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::uint64_t turns() const { return turns_; }

 private:
  struct Task;

  Task& make_task(Process& process, std::string name);
  std::thread launch(Task& task, std::function<void()> body);
  void give_up_turn();
  Task* choose();
  void poll_waiting();
  /// Of the running thread: it never goes on.
  [[noreturn]] void vanish();
  [[noreturn]] static void stand_still();
  void note(std::uint64_t what);
  std::string stuck() const;

  CounterRandom random_;
  Instant now_;
  Instant limit_;
  std::uint64_t turns_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Task>> tasks_;
  Task* running_ = nullptr;
  std::optional<std::string> failure_;
  std::binary_semaphore ended_{0};
};

}  // namespace teson::sim
