#include "teson/actor/serial_thread.h"

#include <memory>
#include <utility>

#include "teson/base/thread.h"

namespace teson::actor::detail {

SerialThread::SerialThread(std::string name) : thread_(std::move(name), [this] { loop(); }) {}

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
  Latch done;
  // Goes with the function, whether that has run or was dropped.
  std::shared_ptr<void> end(&done, [](Latch* latch) { latch->set(); });
  post([&function, end = std::move(end)] { function(); });
  done.wait();
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
