#include "teson/base/thread.h"

#include <algorithm>
#include <utility>

#include <pthread.h>
#include <signal.h>

#include "teson/base/check.h"

namespace teson {

struct Thread::Done : Latch {};

void Condition::wait_once(std::unique_lock<Mutex>& lock) {
  if (World::current() != nullptr) {
    (void)wait_once(lock, Instant::max());
    return;
  }
  std::unique_lock native(lock.mutex()->mutex_, std::adopt_lock);
  condition_.wait(native);
  native.release();
}

bool Condition::wait_once(std::unique_lock<Mutex>& lock, Instant deadline) {
  if (World* const world = World::current()) {
    // No other thread runs between these two.
    lock.unlock();
    const bool woken = world->wait(this, deadline);
    lock.lock();
    return woken;
  }
  std::unique_lock native(lock.mutex()->mutex_, std::adopt_lock);
  const auto status = condition_.wait_until(native, deadline);
  native.release();
  return status == std::cv_status::no_timeout;
}

Thread::Thread(std::string name, std::function<void()> run, Signals signals) {
  name.resize(std::min<std::size_t>(name.size(), 15));
  // It inherits this mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    sigdelset(&all, own_fault);
  pthread_sigmask(SIG_BLOCK, signals == Signals::blocked ? &all : nullptr, &before);
  if (World* const world = World::current()) {
    done_ = std::make_shared<Done>();
    thread_ = world->start(name, [done = done_, run = std::move(run)] {
      run();
      done->set();
    });
  } else {
    thread_ = std::thread([name = std::move(name), run = std::move(run)] {
      pthread_setname_np(pthread_self(), name.c_str());
      run();
    });
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Thread::~Thread() {
  TESON_CHECK(!thread_.joinable());
}

void Thread::join() {
  if (done_) done_->wait();
  thread_.join();
}

void sleep_for(Duration time) {
  const Instant until = now() + time;
  while (now() < until)
    (void)poll_until({}, until);
}

}  // namespace teson
