#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <sys/eventfd.h>

#include "teson/base/check.h"
#include "teson/base/fd.h"
#include "teson/base/thread.h"
#include "teson/net/loop_state.h"

namespace teson::net::detail {

namespace {

struct SimulatedWatch;

struct SimulatedLoop final : LoopState {
  struct TimerEntry final : TimerState {
    void cancel() override { function = nullptr; }
    std::function<void()> function;
  };

  explicit SimulatedLoop(std::string name) : wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TESON_CHECK(static_cast<bool>(wake));
    thread = Thread(std::move(name), [this] {
      {
        std::lock_guard lock(mutex);
        runner = std::this_thread::get_id();
      }
      run();
    });
  }

  void post(std::function<void()> function) override {
    std::lock_guard lock(mutex);
    posted.push_back(std::move(function));
    ::eventfd_write(wake.get(), 1);
  }

  std::shared_ptr<TimerState> after(Duration delay, std::function<void()> function) override {
    auto timer = std::make_shared<TimerEntry>();
    timer->function = std::move(function);
    std::lock_guard lock(mutex);
    timers.emplace(now() + delay, timer);
    ::eventfd_write(wake.get(), 1);
    return timer;
  }

  std::unique_ptr<WatchState> watch(int fd) override;

  bool on_thread() const override {
    std::lock_guard lock(mutex);
    return runner == std::this_thread::get_id();
  }

  void end_thread() override {
    post([this] { ending = true; });
    thread.join();
  }
  void run_rest() override {
    {
      std::lock_guard lock(mutex);
      runner = std::this_thread::get_id();
    }
    while (const auto function = next_posted())
      function();
    std::lock_guard lock(mutex);
    runner = std::thread::id();
  }

  void run() {
    while (!ending) {
      if (const auto function = next_posted()) {
        function();
      } else if (const auto timer = next_timer()) {
        if (timer->function) std::exchange(timer->function, nullptr)();
      } else {
        wait();
      }
    }
  }

  std::function<void()> next_posted() {
    std::lock_guard lock(mutex);
    if (posted.empty()) return nullptr;
    auto function = std::move(posted.front());
    posted.pop_front();
    return function;
  }

  /// One that is due.
  std::shared_ptr<TimerEntry> next_timer() {
    std::lock_guard lock(mutex);
    if (timers.empty() || timers.begin()->first > now()) return nullptr;
    return timers.extract(timers.begin()).mapped();
  }

  Instant next_due() {
    std::lock_guard lock(mutex);
    return timers.empty() ? Instant::max() : timers.begin()->first;
  }

  void wait();

  const Fd wake;
  mutable Mutex mutex;
  std::deque<std::function<void()>> posted;
  std::multimap<Instant, std::shared_ptr<TimerEntry>> timers;
  std::thread::id runner;
  // Loop's thread.
  std::vector<SimulatedWatch*> watches;
  bool ending = false;
  Thread thread;
};

struct SimulatedWatch final : WatchState {
  SimulatedWatch(SimulatedLoop& owner, int descriptor) : loop(owner), fd(descriptor) {
    loop.watches.push_back(this);
  }
  ~SimulatedWatch() override { std::erase(loop.watches, this); }
  void when_readable(std::function<void()> ready) override { readable = std::move(ready); }
  void when_writable(std::function<void()> ready) override { writable = std::move(ready); }

  SimulatedLoop& loop;
  const int fd;
  std::function<void()> readable;
  std::function<void()> writable;
};

std::unique_ptr<WatchState> SimulatedLoop::watch(int fd) {
  return std::make_unique<SimulatedWatch>(*this, fd);
}

void SimulatedLoop::wait() {
  std::vector<pollfd> fds{{.fd = wake.get(), .events = POLLIN, .revents = 0}};
  std::vector<SimulatedWatch*> asked;
  for (auto* const watch : watches) {
    const int events = (watch->readable ? POLLIN : 0) | (watch->writable ? POLLOUT : 0);
    if (events == 0) continue;
    fds.push_back({.fd = watch->fd, .events = static_cast<short>(events), .revents = 0});
    asked.push_back(watch);
  }
  if (poll_until(fds, next_due()) <= 0) return;
  eventfd_t count = 0;
  if (fds[0].revents != 0) ::eventfd_read(wake.get(), &count);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const short found = fds[i + 1].revents;
    constexpr short broken = POLLERR | POLLHUP | POLLNVAL;
    const auto call = [&](short events, std::function<void()> SimulatedWatch::* ready) {
      // One that was called before may have ended this watch.
      if ((found & (events | broken)) == 0 || std::ranges::find(watches, asked[i]) == watches.end())
        return;
      if (const auto function = std::exchange(asked[i]->*ready, nullptr)) function();
    };
    call(POLLIN, &SimulatedWatch::readable);
    call(POLLOUT, &SimulatedWatch::writable);
  }
}

}  // namespace

std::unique_ptr<LoopState> make_simulated_loop(std::string name) {
  return std::make_unique<SimulatedLoop>(std::move(name));
}

}  // namespace teson::net::detail
