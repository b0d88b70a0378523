#include "apps/worker/control_actor.h"

#include <chrono>
#include <limits>
#include <utility>

#include "teson/comm/host_transport.h"
#include "teson/quorum/member.h"
#include "teson/train/trainer.h"

namespace teson::apps {

ControlState::ControlState() : stopper_([this] { run_stopper(); }) {}

ControlState::~ControlState() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  stopper_.join();
}

std::optional<job::WorkerOrder> ControlState::wait_order() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return order_ || stopping_; });
  return stopping_ ? std::nullopt : order_;
}

void ControlState::begin(train::Trainer& trainer, quorum::MemberClient* member,
                         comm::HostTransport* transport) {
  const std::lock_guard lock(mutex_);
  trainer_ = &trainer;
  member_ = member;
  transport_ = transport;
  if (stop_wanted_) trainer.request_stop();
  if (checkpoint_wanted_) trainer.request_checkpoint();
  changed_.notify_all();
}

void ControlState::end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !leaving_; });
  trainer_ = nullptr;
  member_ = nullptr;
  transport_ = nullptr;
}

bool ControlState::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

Result<void> ControlState::take_order(const job::WorkerOrder& order) {
  const std::lock_guard lock(mutex_);
  if (ordered_) return fail(ErrorKind::invalid, "this worker was already started");
  ordered_ = true;
  order_ = order;
  changed_.notify_all();
  return {};
}

void ControlState::stop_at_boundary() {
  const std::lock_guard lock(mutex_);
  stop_wanted_ = true;
  if (trainer_ != nullptr) trainer_->request_stop();
}

void ControlState::checkpoint_now() {
  const std::lock_guard lock(mutex_);
  checkpoint_wanted_ = true;
  if (trainer_ != nullptr) trainer_->request_checkpoint();
}

void ControlState::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void ControlState::run_stopper() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || (stopping_ && trainer_ != nullptr); });
  if (closed_) return;
  leaving_ = true;
  auto* member = member_;
  auto* transport = transport_;
  lock.unlock();
  if (member != nullptr) member->leave(true, "asked to stop", std::chrono::milliseconds(200));
  if (transport != nullptr)
    transport->abort_below(std::numeric_limits<std::uint64_t>::max(),
                           {ErrorKind::aborted, "asked to stop"});
  lock.lock();
  leaving_ = false;
  changed_.notify_all();
}

namespace {

class ControlActor final : public job::WorkerControl {
 public:
  explicit ControlActor(std::shared_ptr<ControlState> state) : state_(std::move(state)) {}
  Result<void> start(const job::WorkerOrder& order) override { return state_->take_order(order); }
  void stop_at_boundary() override { state_->stop_at_boundary(); }
  void checkpoint_now() override { state_->checkpoint_now(); }

 private:
  std::shared_ptr<ControlState> state_;
};

}  // namespace

std::unique_ptr<job::WorkerControl> control_actor(std::shared_ptr<ControlState> state) {
  return std::make_unique<ControlActor>(std::move(state));
}

}  // namespace teson::apps
