#include "teson/net/loop.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <pthread.h>
#include <signal.h>

#include "teson/base/check.h"

namespace teson::net {

namespace asio = boost::asio;

namespace detail {

struct LoopState {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
  std::atomic<std::thread::id> runner;  ///< the thread that runs functions now
  std::mutex mutex;
  bool stopped = false;  ///< under mutex

  bool on_thread() const { return runner.load() == std::this_thread::get_id(); }
};

struct TimerState {
  TimerState(LoopState& owner, std::function<void()> call)
      : loop(owner), timer(owner.context), function(std::move(call)) {}

  LoopState& loop;
  asio::steady_timer timer;
  std::function<void()> function;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> done{false};
};

struct WatchState {
  WatchState(LoopState& owner, int fd) : loop(owner), descriptor(owner.context, fd) {}
  ~WatchState() {
    *alive = false;
    descriptor.release();
  }
  void wait(asio::posix::stream_descriptor::wait_type type, std::function<void()> ready) {
    TESON_CHECK(loop.on_thread());
    auto done = [alive = alive, ready = std::move(ready)](const boost::system::error_code& error) {
      if (!error && *alive) ready();
    };
    descriptor.async_wait(type, std::move(done));
  }

  LoopState& loop;
  asio::posix::stream_descriptor descriptor;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

}  // namespace detail

Timer& Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Timer::cancel() {
  if (!state_) return;
  auto state = std::move(state_);
  if (state->done.load()) return;
  state->cancelled = true;
  if (state->loop.on_thread()) {
    state->timer.cancel();
    return;
  }
  auto& context = state->loop.context;
  asio::post(context, [state = std::move(state)] { state->timer.cancel(); });
}

Watch::Watch() = default;
Watch::Watch(Watch&&) noexcept = default;
Watch& Watch::operator=(Watch&&) noexcept = default;
Watch::~Watch() {
  cancel();
}

void Watch::when_readable(std::function<void()> ready) {
  TESON_CHECK(state_ != nullptr);
  state_->wait(asio::posix::stream_descriptor::wait_read, std::move(ready));
}

void Watch::when_writable(std::function<void()> ready) {
  TESON_CHECK(state_ != nullptr);
  state_->wait(asio::posix::stream_descriptor::wait_write, std::move(ready));
}

void Watch::cancel() {
  state_.reset();
}

Loop::Loop(std::string name) : state_(std::make_unique<detail::LoopState>()) {
  TESON_CHECK(name.size() <= 15, name);
  // Signals belong to the program's own threads: the thread inherits this mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    sigdelset(&all, own_fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get(), name = std::move(name)] {
    pthread_setname_np(pthread_self(), name.c_str());
    state->runner = std::this_thread::get_id();
    state->context.run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Loop::~Loop() {
  stop();
}

void Loop::post(std::function<void()> function) {
  asio::post(state_->context, std::move(function));
}

void Loop::run(const std::function<void()>& function) {
  if (state_->on_thread()) return function();
  struct Done {
    std::mutex mutex;
    std::condition_variable ready;
    bool is = false;
  } done;
  {
    std::unique_lock lock(state_->mutex);
    if (state_->stopped) {
      lock.unlock();
      return function();
    }
    post([&] {
      function();
      std::lock_guard hold(done.mutex);
      done.is = true;
      done.ready.notify_one();
    });
  }
  std::unique_lock lock(done.mutex);
  done.ready.wait(lock, [&] { return done.is; });
}

Timer Loop::after(Duration delay, std::function<void()> function) {
  auto state = std::make_shared<detail::TimerState>(*state_, std::move(function));
  const auto due = std::chrono::steady_clock::now() + delay;
  asio::dispatch(state_->context, [state, due] {
    if (state->cancelled.load()) return;
    state->timer.expires_at(due);
    state->timer.async_wait([state](const boost::system::error_code& error) {
      auto call = std::move(state->function);
      state->function = nullptr;
      if (error || state->cancelled.load()) return;
      state->done = true;
      call();
    });
  });
  Timer timer;
  timer.state_ = std::move(state);
  return timer;
}

Watch Loop::watch(int fd) {
  TESON_CHECK(on_loop_thread());
  Watch watch;
  watch.state_ = std::make_unique<detail::WatchState>(*state_, fd);
  return watch;
}

bool Loop::on_loop_thread() const {
  return state_->on_thread();
}

void Loop::stop() {
  TESON_CHECK(!on_loop_thread() || !state_->thread.joinable());
  if (!state_->thread.joinable()) return;
  asio::post(state_->context, [this] { state_->context.stop(); });
  state_->thread.join();
  // Whoever waits in run() must be let go: what was posted meanwhile runs here.
  std::lock_guard lock(state_->mutex);
  state_->runner = std::this_thread::get_id();
  state_->work.reset();
  state_->context.restart();
  state_->context.poll();
  state_->runner = std::thread::id();
  state_->stopped = true;
}

}  // namespace teson::net
