#include "teson/actor/serial_thread.h"

#include <future>
#include <memory>
#include <utility>

#include <pthread.h>
#include <signal.h>

namespace teson::actor::detail {

SerialThread::SerialThread(std::string name) {
  // Signals belong to the program's own threads: this one inherits the mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    sigdelset(&all, own_fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, name = std::move(name)] {
    pthread_setname_np(pthread_self(), name.c_str());
    loop();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SerialThread::~SerialThread() {
  stop();
}

void SerialThread::post(std::function<void()> function) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(function));
  }
  changed_.notify_one();
}

void SerialThread::run(const std::function<void()>& function) {
  if (std::this_thread::get_id() == thread_.get_id()) return function();
  // The promise breaks if the function is dropped.
  auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  post([&function, done = std::move(done)] {
    function();
    done->set_value();
  });
  future.wait();
}

void SerialThread::stop() {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(queue_);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SerialThread::loop() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    auto function = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    function();
  }
}

}  // namespace teson::actor::detail
