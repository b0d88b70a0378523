#include "teson/comm/work.h"

namespace teson::comm {

void Work::State::finish(Result<void> outcome) {
  {
    const std::lock_guard lock(mutex);
    if (result) return;
    result = std::move(outcome);
    if (unfinished) --*unfinished;
  }
  ended.notify_all();
}

Result<void> Work::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [this] { return state_->result.has_value(); });
  return *state_->result;
}

bool Work::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->result.has_value();
}

Work ended_work(Result<void> outcome) {
  auto state = std::make_shared<Work::State>();
  state->finish(std::move(outcome));
  return Work(std::move(state));
}

}  // namespace teson::comm
