#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "teson/base/clock.h"
#include "teson/base/world.h"

namespace teson {

// Threads, locks and waits as of the standard library, that a simulation can run (base/world.h). On the real machine each costs one look at a
// thread-local pointer more. What net/ and actor/ use; std::lock_guard and std::unique_lock go with them.

/// As std::mutex.
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    if (World* const world = World::current()) [[unlikely]]
      return lock_in(*world);
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() {
    mutex_.unlock();
    if (World* const world = World::current()) [[unlikely]]
      world->wake(this, false);
  }

 private:
  friend class Condition;
  void lock_in(World& world) {
    world.pass();
    while (!mutex_.try_lock())
      world.wait(this, Instant::max());
  }
  std::mutex mutex_;
};

/// As std::condition_variable, with Instants for deadlines.
class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_one() {
    if (World* const world = World::current()) [[unlikely]]
      return world->wake(this, false);
    condition_.notify_one();
  }
  void notify_all() {
    if (World* const world = World::current()) [[unlikely]]
      return world->wake(this, true);
    condition_.notify_all();
  }

  template <typename Until>
  void wait(std::unique_lock<Mutex>& lock, Until until) {
    while (!until())
      wait_once(lock);
  }
  /// What `until` says at the end.
  template <typename Until>
  bool wait_until(std::unique_lock<Mutex>& lock, Instant deadline, Until until) {
    while (!until()) {
      if (!wait_once(lock, deadline)) return until();
    }
    return true;
  }
  template <typename Until>
  bool wait_for(std::unique_lock<Mutex>& lock, Duration time, Until until) {
    return wait_until(lock, now() + time, std::move(until));
  }

 private:
  void wait_once(std::unique_lock<Mutex>& lock);
  /// False: the deadline has passed.
  bool wait_once(std::unique_lock<Mutex>& lock, Instant deadline);

  std::condition_variable condition_;
};

/// Something that happens once. Whoever waits for it may let it go at once after that.
class Latch {
 public:
  void set() {
    std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_set_; });
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool is_set_ = false;
};

/// Whether a thread may be the one on which a signal's handler runs. Signals belong to the program's own threads.
enum class Signals : std::uint8_t { blocked, taken };

/// A thread of the library's own, named for debuggers. Movable; must have been joined when it goes.
class Thread {
 public:
  Thread() = default;
  /// `name`: its first 15 characters.
  Thread(std::string name, std::function<void()> run, Signals signals = Signals::blocked);
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&&) noexcept = default;
  ~Thread();

  bool joinable() const { return thread_.joinable(); }
  void join();
  std::thread::id get_id() const { return thread_.get_id(); }

 private:
  struct Done;
  std::shared_ptr<Done> done_;  ///< in a simulation
  std::thread thread_;
};

void sleep_for(Duration time);

}  // namespace teson
