#include "apps/teson/signals.h"

#include <csignal>
#include <utility>

#include <pthread.h>

namespace teson::apps {
namespace {

// Ends the thread; no one else sends it to this process.
constexpr int kEnd = SIGUSR2;

sigset_t own_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, kEnd})
    sigaddset(&signals, signal);
  // Where it is ignored (nohup), it stays so.
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

Signals::Signals(std::function<void(int)> taken) {
  const sigset_t signals = own_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([signals, taken = std::move(taken)] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0 && signal != kEnd)
      taken(signal);
  });
}

Signals::~Signals() {
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

}  // namespace teson::apps
