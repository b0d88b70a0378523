#include "teson/checkpoint/async_writer.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace teson {

struct AsyncCheckpointWriter::State {
  struct Copy {
    std::string name;
    std::vector<std::byte> bytes;
  };

  State(const CheckpointStore& store_, std::size_t keep_, Callback callback_)
      : store(store_), keep(keep_), callback(std::move(callback_)) {}

  void run();
  CheckpointOutcome write(const std::stop_token& stop);

  const CheckpointStore& store;
  const std::size_t keep;
  const Callback callback;

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex. While `in_flight`, meta and copies belong to the thread.
  bool in_flight = false;
  bool ending = false;
  std::stop_source stop;
  std::optional<CheckpointOutcome> last;

  CheckpointMeta meta;
  std::vector<Copy> copies;
  std::thread thread;
};

CheckpointOutcome AsyncCheckpointWriter::State::write(const std::stop_token& token) {
  const SystemClock clock;
  const Instant begin = clock.now();
  std::vector<CheckpointSection> sections;
  for (const auto& copy : copies)
    sections.push_back({copy.name, copy.bytes});
  CheckpointOutcome outcome{.id = {meta.incarnation, meta.step},
                            .written = store.write(meta, sections, token),
                            .tidied = {},
                            .seconds = 0.0};
  if (outcome.written) outcome.tidied = store.remove_old(keep).map([](const auto&) {});
  outcome.seconds = to_seconds(clock.now() - begin);
  return outcome;
}

void AsyncCheckpointWriter::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return in_flight || ending; });
    if (!in_flight) return;
    const std::stop_token token = stop.get_token();
    lock.unlock();
    CheckpointOutcome outcome = write(token);
    if (callback) callback(outcome);
    lock.lock();
    last = std::move(outcome);
    in_flight = false;
    changed.notify_all();
  }
}

AsyncCheckpointWriter::AsyncCheckpointWriter(const CheckpointStore& store, std::size_t keep,
                                             Callback callback)
    : state_(std::make_unique<State>(store, keep, std::move(callback))) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

AsyncCheckpointWriter::~AsyncCheckpointWriter() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Result<void> AsyncCheckpointWriter::start(CheckpointMeta meta,
                                          std::span<const CheckpointSection> sections) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    if (state.in_flight) {
      return fail(ErrorKind::overloaded,
                  "the previous checkpoint is still being written: wait for it, or take "
                  "checkpoints less often");
    }
  }
  // Only the owner starts, so nothing is in flight while it copies.
  state.copies.resize(sections.size());
  for (std::size_t i = 0; i < sections.size(); ++i) {
    auto& copy = state.copies[i];
    copy.name = sections[i].name;
    copy.bytes.resize(sections[i].bytes.size());
    if (!copy.bytes.empty())
      std::memcpy(copy.bytes.data(), sections[i].bytes.data(), copy.bytes.size());
  }
  state.meta = std::move(meta);
  {
    const std::lock_guard lock(state.mutex);
    state.stop = std::stop_source();
    state.in_flight = true;
  }
  state.changed.notify_all();
  return {};
}

bool AsyncCheckpointWriter::busy() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_flight;
}

Result<void> AsyncCheckpointWriter::wait(std::optional<Duration> timeout) {
  std::unique_lock lock(state_->mutex);
  const auto idle = [&] { return !state_->in_flight; };
  if (!timeout) {
    state_->changed.wait(lock, idle);
  } else if (!state_->changed.wait_for(lock, *timeout, idle)) {
    return fail(ErrorKind::timed_out, "the checkpoint in flight was not written in time");
  }
  return {};
}

void AsyncCheckpointWriter::cancel() {
  const std::lock_guard lock(state_->mutex);
  state_->stop.request_stop();
}

std::optional<CheckpointOutcome> AsyncCheckpointWriter::last() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last;
}

}  // namespace teson
