#include "teson/sim/scheduler.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

#include "teson/base/check.h"

namespace teson::sim {

namespace {

/// What a turn takes: so that a thread that never waits does not stop the clock.
constexpr Duration turn_time = std::chrono::microseconds(1);
/// One in so many locks gives the turn to another thread.
constexpr std::uint64_t pass_one_in = 4;
/// In one of so many turns it is looked whether descriptors are ready, and before the clock jumps: to
/// look costs as much as a turn.
constexpr std::uint64_t poll_one_in = 4;

/// A thread sleeps until it is its turn. One of the standard library looks a while first, which takes
/// the processor from the thread that has it.
class Turn {
 public:
  Turn() { TESON_CHECK(::sem_init(&semaphore_, 0, 0) == 0, errno); }
  ~Turn() { ::sem_destroy(&semaphore_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void acquire() {
    while (::sem_wait(&semaphore_) != 0)
      TESON_CHECK(errno == EINTR, errno);
  }
  void release() { TESON_CHECK(::sem_post(&semaphore_) == 0, errno); }

 private:
  sem_t semaphore_;
};

}  // namespace

struct Scheduler::Task final : World {
  enum class State : std::uint8_t { ready, waiting, ended };

  Task(Scheduler& owner, Process& own, std::string text)
      : scheduler(owner), process(own), name(std::move(text)), number(owner.tasks_.size()) {}

  Instant now() override { return scheduler.now_; }

  bool wait(const void* at, Instant until) override {
    place = at;
    sleep(until);
    place = nullptr;
    return woken;
  }

  void wake(const void* at, bool all) override {
    std::vector<Task*> waiting;
    for (const auto& task : scheduler.tasks_) {
      if (task->state == State::waiting && task->place == at) waiting.push_back(task.get());
    }
    if (waiting.empty()) return;
    if (!all) return waiting[scheduler.random_.below(waiting.size())]->be_woken();
    for (Task* const task : waiting)
      task->be_woken();
  }

  void pass() override {
    if (scheduler.random_.below(pass_one_in) == 0) scheduler.give_up_turn();
  }

  int poll(std::span<pollfd> wanted, Instant until) override {
    int ready = ::poll(wanted.data(), wanted.size(), 0);
    if (ready != 0 || until <= scheduler.now_) return ready;
    fds = wanted;
    sleep(until);
    fds = {};
    return ::poll(wanted.data(), wanted.size(), 0);
  }

  std::thread start(const std::string& text, std::function<void()> body) override {
    return scheduler.launch(scheduler.make_task(process, text), std::move(body));
  }

  Fd listen(const std::string& address) override {
    if (scheduler.on_listen) return scheduler.on_listen(process, address);
    errno = ENETDOWN;
    return Fd();
  }
  Fd connect(const std::string& address) override {
    if (scheduler.on_connect) return scheduler.on_connect(process, address);
    errno = ENETDOWN;
    return Fd();
  }

  pid_t pid() override { return pid_of(process.number); }
  pid_t parent_pid() override {
    const bool orphan = scheduler.processes_.at(static_cast<std::size_t>(process.parent))->dead;
    return orphan ? 1 : pid_of(process.parent);
  }
  std::optional<std::string> variable(const std::string& text) override {
    const auto found = process.variables.find(text);
    return found == process.variables.end() ? std::nullopt : std::optional(found->second);
  }
  std::uint64_t entropy() override { return scheduler.random_.next(); }
  [[noreturn]] void exit(int code) override {
    scheduler.end(process, code, 0);
    TESON_CHECK(!"a process of a simulation has outlived its end");
    std::abort();
  }

  void sleep(Instant until) {
    deadline = until;
    woken = false;
    state = State::waiting;
    scheduler.give_up_turn();
  }

  void be_woken() {
    state = State::ready;
    woken = true;
  }
  bool may_run() const { return !process.dead && !process.stopped; }
  void enter_here() { enter(this); }

  Scheduler& scheduler;
  Process& process;
  const std::string name;
  const std::uint64_t number;  ///< in the order of their making
  State state = State::ready;
  const void* place = nullptr;
  std::span<pollfd> fds;
  Instant deadline;
  bool woken = false;
  Turn turn;
};

pid_t pid_of(int process) {
  return 1000 + process;
}

Scheduler::Scheduler(std::uint64_t seed)
    // Not the clock's beginning, which some code takes for "never".
    : random_({seed}), now_(std::chrono::hours(1)) {}

Scheduler::~Scheduler() {
  // Threads that never go on still look at these.
  for (auto& task : tasks_)
    (void)task.release();
  for (auto& process : processes_)
    (void)process.release();
}

std::optional<std::string> Scheduler::run(std::function<void()> body, Duration limit) {
  TESON_CHECK(tasks_.empty() && "a Scheduler runs once");
  limit_ = now_ + limit;
  processes_.push_back(std::make_unique<Process>());
  processes_.back()->name = "simulation";
  Task& first = make_task(*processes_.back(), "main");
  launch(first, [this, body = std::move(body)] {
    body();
    // Nobody gets a turn any more.
    ended_.release();
    stand_still();
  }).detach();
  running_ = &first;
  first.turn.release();
  ended_.acquire();
  return failure_;
}

Scheduler::Task& Scheduler::make_task(Process& process, std::string name) {
  tasks_.push_back(std::make_unique<Task>(*this, process, std::move(name)));
  return *tasks_.back();
}

std::thread Scheduler::launch(Task& task, std::function<void()> body) {
  return std::thread([this, &task, body = std::move(body)]() mutable {
    task.turn.acquire();
    task.enter_here();
    body();
    body = nullptr;
    task.state = Task::State::ended;
    Task* const next = choose();
    running_ = next;
    next->turn.release();
  });
}

Process& Scheduler::start(Process& parent, int host, std::string name,
                          std::unordered_map<std::string, std::string> variables,
                          std::function<void()> body) {
  auto& process = *processes_.emplace_back(std::make_unique<Process>());
  process.number = static_cast<int>(processes_.size()) - 1;
  process.parent = parent.number;
  process.host = host;
  process.name = std::move(name);
  process.variables = std::move(variables);
  launch(make_task(process, "main"), [this, &process, body = std::move(body)] {
    body();
    end(process, 0, 0);
  }).detach();
  return process;
}

Process& Scheduler::process() {
  return running_->process;
}

void Scheduler::end(Process& process, int code, int signal) {
  if (!std::exchange(process.dead, true)) {
    note(static_cast<std::uint64_t>(process.number));
    if (on_end) on_end(process, code, signal);
  }
  if (&running_->process == &process) vanish();
}

void Scheduler::give_up_turn() {
  Task* const self = running_;
  Task* const next = choose();
  if (next == self) return;
  running_ = next;
  next->turn.release();
  self->turn.acquire();
}

void Scheduler::vanish() {
  running_->state = Task::State::ended;
  running_ = choose();
  running_->turn.release();
  stand_still();
}

void Scheduler::stand_still() {
  std::binary_semaphore never(0);
  never.acquire();
  std::abort();
}

void Scheduler::poll_waiting() {
  std::vector<pollfd> all;
  for (const auto& task : tasks_) {
    if (task->state == Task::State::waiting)
      all.insert(all.end(), task->fds.begin(), task->fds.end());
  }
  if (all.empty() || ::poll(all.data(), all.size(), 0) <= 0) return;
  std::size_t at = 0;
  for (const auto& task : tasks_) {
    if (task->state != Task::State::waiting) continue;
    for (std::size_t i = 0; i < task->fds.size(); ++i) {
      if (all[at++].revents == 0) continue;
      task->be_woken();
    }
  }
}

Scheduler::Task* Scheduler::choose() {
  ++turns_;
  now_ += turn_time;
  bool polled = turns_ % poll_one_in == 0;
  if (polled) poll_waiting();
  while (true) {
    std::vector<Task*> ready;
    Instant next = Instant::max();
    for (const auto& task : tasks_) {
      if (!task->may_run()) continue;
      if (task->state == Task::State::waiting && task->deadline <= now_)
        task->state = Task::State::ready;
      if (task->state == Task::State::ready) ready.push_back(task.get());
      if (task->state == Task::State::waiting) next = std::min(next, task->deadline);
    }
    if (!ready.empty()) {
      Task* const chosen = ready[random_.below(ready.size())];
      note(chosen->number);
      return chosen;
    }
    if (!std::exchange(polled, true)) {
      poll_waiting();
      continue;
    }
    polled = false;
    if (next == Instant::max() || next > limit_) {
      failure_ =
          (next == Instant::max() ? "nobody can ever go on:" : "the time is over:") + stuck();
      ended_.release();
      stand_still();
    }
    now_ = next;
  }
}

void Scheduler::note(std::uint64_t what) {
  fingerprint_ =
      mix({fingerprint_, what, static_cast<std::uint64_t>(now_.time_since_epoch().count())});
}

std::string Scheduler::stuck() const {
  std::string text;
  for (const auto& task : tasks_) {
    if (task->state == Task::State::ended || task->process.dead) continue;
    text += fmt::format("\n  {} ({}): thread {} waits", task->process.name, task->process.number,
                        task->name);
    if (task->process.stopped) text += ", stopped,";
    if (!task->fds.empty()) text += fmt::format(" for {} descriptors", task->fds.size());
    if (task->place != nullptr) text += fmt::format(" at {}", task->place);
    if (task->deadline != Instant::max())
      text += fmt::format(" until {:.6f} s", to_seconds(task->deadline - now_));
  }
  return text;
}

}  // namespace teson::sim
