#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/types.h>

#include "teson/base/clock.h"
#include "teson/base/fd.h"

namespace teson {

/// The machine as a thread sees it: time, other threads, the process it belongs to. No thread of a running system has
/// one: it lives on the real machine. A simulation (teson/sim) gives each of its threads one, which threads started by these inherit,
/// and decides who runs and what time it is. What stands between a thread and its world is in
/// base/thread.h, now() and the functions below; whoever waits in another way cannot be simulated.
class World {
 public:
  virtual ~World() = default;

  /// Of the calling thread; null: the real machine.
  static World* current() { return current_; }

  virtual Instant now() = 0;
  /// Waits to be woken at `place`, any address; false: the deadline passed first. Who waits looks again at what it waits for.
  virtual bool wait(const void* place, Instant deadline) = 0;
  /// One of those, or all, that wait at `place`.
  virtual void wake(const void* place, bool all) = 0;
  /// Here another thread may get its turn.
  virtual void pass() = 0;
  /// As of poll(2).
  virtual int poll(std::span<pollfd> fds, Instant deadline) = 0;
  virtual std::thread start(const std::string& name, std::function<void()> run) = 0;

  /// A listening stream socket at an address of the world's network, and one connected to that; none: errno says
  /// why. Sockets of the two ends may be of another family than the address.
  virtual Fd listen(const std::string& address) = 0;
  virtual Fd connect(const std::string& address) = 0;

  virtual pid_t pid() = 0;
  virtual pid_t parent_pid() = 0;
  /// What the process was started with in its environment.
  virtual std::optional<std::string> variable(const std::string& name) = 0;
  /// Random bits, different at each call.
  virtual std::uint64_t entropy() = 0;
  /// Ends the process, all its threads at once.
  [[noreturn]] virtual void exit(int code) = 0;

 protected:
  static void enter(World* world) { current_ = world; }

 private:
  static thread_local constinit World* current_;
};

/// The process that the calling thread belongs to.
pid_t own_pid();
pid_t parent_pid();
/// A variable of its environment, which it then has no longer.
std::optional<std::string> take_variable(const std::string& name);
bool has_variable(const std::string& name);
/// _exit.
[[noreturn]] void exit_at_once(int code);
/// poll(2) until `deadline`: how many are ready; 0: none; below 0: errno says why.
int poll_until(std::span<pollfd> fds, Instant deadline);

}  // namespace teson
