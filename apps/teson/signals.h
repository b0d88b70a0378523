#pragma once

#include <functional>
#include <thread>

namespace teson::apps {

/// Takes SIGINT, SIGTERM, SIGHUP (unless it is ignored) and SIGUSR1 on a thread of its own, so that what they cause is ordinary
/// code. Make it before any other thread: the signals are blocked from then on in this thread and
/// in those it starts. Children get a clean mask.
class Signals {
 public:
  /// `taken` gets each signal's number, on the thread of this object.
  explicit Signals(std::function<void(int)> taken);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  std::thread thread_;
};

}  // namespace teson::apps
