#include <atomic>
#include <thread>
#include <utility>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "teson/base/check.h"
#include "teson/base/thread.h"
#include "teson/net/loop_state.h"

namespace teson::net::detail {

namespace asio = boost::asio;

namespace {

struct AsioLoop final : LoopState {
  explicit AsioLoop(std::string name) {
    thread = Thread(std::move(name), [this] {
      runner = std::this_thread::get_id();
      context.run();
    });
  }

  void post(std::function<void()> function) override { asio::post(context, std::move(function)); }
  std::shared_ptr<TimerState> after(Duration delay, std::function<void()> function) override;
  std::unique_ptr<WatchState> watch(int fd) override;
  bool on_thread() const override { return runner.load() == std::this_thread::get_id(); }

  void end_thread() override {
    asio::post(context, [this] { context.stop(); });
    thread.join();
  }
  void run_rest() override {
    runner = std::this_thread::get_id();
    work.reset();
    context.restart();
    context.poll();
    runner = std::thread::id();
  }

  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  Thread thread;
  std::atomic<std::thread::id> runner;
};

struct AsioTimer final : TimerState, std::enable_shared_from_this<AsioTimer> {
  AsioTimer(AsioLoop& owner, std::function<void()> call)
      : loop(owner), timer(owner.context), function(std::move(call)) {}

  void start(Instant due) {
    if (cancelled.load()) return;
    timer.expires_at(due);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      auto call = std::move(self->function);
      self->function = nullptr;
      if (error || self->cancelled.load()) return;
      self->done = true;
      call();
    });
  }

  void cancel() override {
    if (done.load()) return;
    cancelled = true;
    if (loop.on_thread()) {
      timer.cancel();
      return;
    }
    asio::post(loop.context, [self = shared_from_this()] { self->timer.cancel(); });
  }

  AsioLoop& loop;
  asio::steady_timer timer;
  std::function<void()> function;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> done{false};
};

struct AsioWatch final : WatchState {
  AsioWatch(AsioLoop& owner, int fd) : loop(owner), descriptor(owner.context, fd) {}
  ~AsioWatch() override {
    *alive = false;
    descriptor.release();
  }
  void when_readable(std::function<void()> ready) override {
    wait(asio::posix::stream_descriptor::wait_read, std::move(ready));
  }
  void when_writable(std::function<void()> ready) override {
    wait(asio::posix::stream_descriptor::wait_write, std::move(ready));
  }
  void wait(asio::posix::stream_descriptor::wait_type type, std::function<void()> ready) {
    TESON_CHECK(loop.on_thread());
    auto ended = [alive = alive, ready = std::move(ready)](const boost::system::error_code& error) {
      if (!error && *alive) ready();
    };
    descriptor.async_wait(type, std::move(ended));
  }

  AsioLoop& loop;
  asio::posix::stream_descriptor descriptor;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

std::shared_ptr<TimerState> AsioLoop::after(Duration delay, std::function<void()> function) {
  auto timer = std::make_shared<AsioTimer>(*this, std::move(function));
  asio::dispatch(context, [timer, due = now() + delay] { timer->start(due); });
  return timer;
}

std::unique_ptr<WatchState> AsioLoop::watch(int fd) {
  return std::make_unique<AsioWatch>(*this, fd);
}

}  // namespace

std::unique_ptr<LoopState> make_asio_loop(std::string name) {
  return std::make_unique<AsioLoop>(std::move(name));
}

}  // namespace teson::net::detail
