#include "teson/comm/command_queue.h"

#include <cerrno>

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace teson::comm {

Result<std::shared_ptr<CommandQueue>> CommandQueue::make() {
  Fd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return fail_errno("eventfd for a communicator", errno);
  return std::make_shared<CommandQueue>(std::move(wake));
}

void CommandQueue::wake() {
  const std::uint64_t one = 1;
  // It cannot fail: the counter is reset long before it overflows.
  (void)!::write(wake_.get(), &one, sizeof(one));
}

Work CommandQueue::push(Command command) {
  command.work = std::make_shared<Work::State>();
  Work work(command.work);
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || abort_) return ended_work(fail(ended_ ? *ended_ : *abort_));
    if (*unfinished_ >= unfinished_max) {
      return ended_work(
          fail(ErrorKind::overloaded,
               fmt::format("{} operations have not ended: wait for earlier ones first",
                           unfinished_max)));
    }
    ++*unfinished_;
    command.work->unfinished = unfinished_;
    commands_.push_back(std::move(command));
    wakes = !std::exchange(wake_pending_, true);
  }
  if (wakes) wake();
  return work;
}

void CommandQueue::abort(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (abort_) return;
    abort_ = std::move(error);
    interrupted_ = true;
  }
  wake();
}

void CommandQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    interrupted_ = true;
  }
  wake();
}

bool CommandQueue::aborted() const {
  const std::lock_guard lock(mutex_);
  return abort_.has_value();
}

CommandQueue::Taken CommandQueue::take(bool woken) {
  if (woken) {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof(count));
  }
  const std::lock_guard lock(mutex_);
  wake_pending_ = false;
  return {std::exchange(commands_, {}), abort_, closed_};
}

std::deque<Command> CommandQueue::end(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!ended_) ended_ = error;
  return std::exchange(commands_, {});
}

}  // namespace teson::comm
