#pragma once

#include <functional>
#include <memory>
#include <string>

#include "teson/base/clock.h"
#include "teson/base/thread.h"

namespace teson::net {

namespace detail {
struct LoopState;
struct TimerState;
struct WatchState;
}  // namespace detail

/// A function that will run once on the loop's thread unless this handle goes first. Dropping or cancelling it on the loop's thread is exact;
/// from another thread the function may already be running. Move-only.
class Timer {
 public:
  Timer() = default;
  Timer(Timer&&) noexcept = default;
  Timer& operator=(Timer&& other) noexcept;
  ~Timer() { cancel(); }
  void cancel();

 private:
  friend class Loop;
  std::shared_ptr<detail::TimerState> state_;
};

/// Tells when a descriptor is ready. It does not own the descriptor, and must go before the descriptor is closed. Loop's thread only; what
/// was asked for is forgotten when it goes. Move-only.
class Watch {
 public:
  Watch();
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) noexcept;
  ~Watch();

  /// Runs `ready` once, when the descriptor is readable (or at its end, or broken): ask again for the next time. At once if it is so now.
  void when_readable(std::function<void()> ready);
  /// The same for writable.
  void when_writable(std::function<void()> ready);
  void cancel();
  bool active() const { return state_ != nullptr; }

 private:
  friend class Loop;
  std::unique_ptr<detail::WatchState> state_;
};

/// The I/O thread of a process: everything it calls runs on that one thread, one function after another, so state that only they touch needs no lock.
/// Functions must be short and must not block or throw. All timers, watches, channels and listeners of a loop must go before it.
class Loop {
 public:
  /// Starts the thread, named `name` (at most 15 characters) for debuggers. Signals are blocked on it.
  explicit Loop(std::string name = "teson-io");
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Runs `function` on the loop's thread, after what was posted before. Threads: any. Not bounded here: the callers' own
  /// queues are. After stop it never runs.
  void post(std::function<void()> function);
  /// Runs it there and returns when it has run; at once if this is the loop's thread, or if the loop has stopped.
  void run(const std::function<void()>& function);
  /// Runs `function` once, not before `delay` has passed. Threads: any.
  Timer after(Duration delay, std::function<void()> function);
  /// Loop's thread only.
  Watch watch(int fd);

  bool on_loop_thread() const;
  /// Ends the thread after what was already posted. Idempotent; not from the loop's thread.
  void stop();

 private:
  std::unique_ptr<detail::LoopState> state_;
  Mutex mutex_;
  bool stopped_ = false;   ///< under mutex_
  bool stopping_ = false;  ///< of the thread that stops it
};

}  // namespace teson::net
