#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "teson/base/thread.h"

namespace teson::actor::detail {

/// A thread that runs functions one after another, for as long as the object lives.
class SerialThread {
 public:
  explicit SerialThread(std::string name);
  ~SerialThread();

  /// Threads: any. After stop it is dropped.
  void post(std::function<void()> function);
  /// Runs it there and waits; here if this is that thread. Not after stop.
  void run(const std::function<void()>& function);
  /// Finishes the function that runs, drops the others, ends. Idempotent.
  void stop();

 private:
  void loop();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> queue_;
  bool stopped_ = false;
  Thread thread_;
};

}  // namespace teson::actor::detail
