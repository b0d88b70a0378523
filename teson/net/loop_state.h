#pragma once

// What a Loop runs on; not for use outside net/.

#include <functional>
#include <memory>
#include <string>

#include "teson/base/clock.h"

namespace teson::net::detail {

struct TimerState {
  virtual ~TimerState() = default;
  /// Threads: any. On the loop's thread the function will not run after it.
  virtual void cancel() = 0;
};

/// Loop's thread.
struct WatchState {
  virtual ~WatchState() = default;
  virtual void when_readable(std::function<void()> ready) = 0;
  virtual void when_writable(std::function<void()> ready) = 0;
};

/// As of Loop.
struct LoopState {
  virtual ~LoopState() = default;
  virtual void post(std::function<void()> function) = 0;
  virtual std::shared_ptr<TimerState> after(Duration delay, std::function<void()> function) = 0;
  virtual std::unique_ptr<WatchState> watch(int fd) = 0;
  /// The thread that runs functions now.
  virtual bool on_thread() const = 0;
  /// Ends the thread after what was already posted. Once.
  virtual void end_thread() = 0;
  /// Runs here what was posted after that. Once.
  virtual void run_rest() = 0;
};

/// On Boost.Asio.
std::unique_ptr<LoopState> make_asio_loop(std::string name);
/// On the calling thread's World, for simulations: in the order of posting, then timers by their time, then
/// descriptors by the order of asking.
std::unique_ptr<LoopState> make_simulated_loop(std::string name);

}  // namespace teson::net::detail
