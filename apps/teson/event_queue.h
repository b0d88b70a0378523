#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "teson/base/clock.h"

namespace teson::apps {

/// Functions that other threads hand to one thread, which runs them in order: whatever they touch
/// needs no lock. Not bounded here: what is posted is a few small reports a step and process.
class EventQueue {
 public:
  /// Threads: any.
  void post(std::function<void()> function) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(function));
    }
    ready_.notify_one();
  }

  /// Runs what has come, waiting for it until `deadline` at most.
  void run_until(Instant deadline) {
    std::deque<std::function<void()>> taken;
    {
      std::unique_lock lock(mutex_);
      ready_.wait_until(lock, deadline, [this] { return !queue_.empty(); });
      taken.swap(queue_);
    }
    for (auto& function : taken)
      function();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
};

}  // namespace teson::apps
