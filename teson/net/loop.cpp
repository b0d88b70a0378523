#include "teson/net/loop.h"

#include <utility>

#include "teson/base/check.h"
#include "teson/base/thread.h"
#include "teson/base/world.h"
#include "teson/net/loop_state.h"

namespace teson::net {

Timer& Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Timer::cancel() {
  if (const auto state = std::exchange(state_, nullptr)) state->cancel();
}

Watch::Watch() = default;
Watch::Watch(Watch&&) noexcept = default;
Watch& Watch::operator=(Watch&&) noexcept = default;
Watch::~Watch() {
  cancel();
}

void Watch::when_readable(std::function<void()> ready) {
  TESON_CHECK(state_ != nullptr);
  state_->when_readable(std::move(ready));
}

void Watch::when_writable(std::function<void()> ready) {
  TESON_CHECK(state_ != nullptr);
  state_->when_writable(std::move(ready));
}

void Watch::cancel() {
  state_.reset();
}

Loop::Loop(std::string name)
    : state_(World::current() == nullptr ? detail::make_asio_loop(std::move(name))
                                         : detail::make_simulated_loop(std::move(name))) {}

Loop::~Loop() {
  stop();
}

void Loop::post(std::function<void()> function) {
  state_->post(std::move(function));
}

void Loop::run(const std::function<void()>& function) {
  if (state_->on_thread()) return function();
  Latch done;
  {
    std::unique_lock lock(mutex_);
    if (stopped_) {
      lock.unlock();
      return function();
    }
    post([&] {
      function();
      done.set();
    });
  }
  done.wait();
}

Timer Loop::after(Duration delay, std::function<void()> function) {
  Timer timer;
  timer.state_ = state_->after(delay, std::move(function));
  return timer;
}

Watch Loop::watch(int fd) {
  TESON_CHECK(on_loop_thread());
  Watch watch;
  watch.state_ = state_->watch(fd);
  return watch;
}

bool Loop::on_loop_thread() const {
  return state_->on_thread();
}

void Loop::stop() {
  if (std::exchange(stopping_, true)) return;
  TESON_CHECK(!on_loop_thread());
  state_->end_thread();
  // Who waits in run() is let go: what was posted meanwhile runs here.
  std::lock_guard lock(mutex_);
  state_->run_rest();
  stopped_ = true;
}

}  // namespace teson::net
