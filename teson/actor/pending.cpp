#include "teson/actor/pending.h"

#include <algorithm>
#include <utility>

#include <sys/eventfd.h>

#include "teson/actor/local_actor.h"
#include "teson/base/clock.h"
#include "teson/base/fd.h"
#include "teson/base/thread.h"

namespace teson::actor::detail {

PendingCall::PendingCall(std::uint64_t id, std::vector<std::uint64_t> procs, Instant deadline,
                         std::weak_ptr<PendingTable> table)
    : id_(id), deadline_(deadline), table_(std::move(table)), open_(procs.size()) {
  slots_.reserve(procs.size());
  for (const std::uint64_t proc : procs)
    slots_.push_back({proc, std::nullopt});
}

PendingCall::~PendingCall() {
  if (const auto table = table_.lock()) table->forget(id_);
}

// Waiters are woken after the lock is let go, or they would wake only to wait for it. Whoever
// completes a call holds a share in it, so it is still there then.
void PendingCall::complete(std::uint64_t proc, Result<RawReply> reply) {
  std::unique_lock lock(mutex_);
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [proc](const Slot& candidate) { return candidate.proc == proc; });
  if (slot == slots_.end()) return;
  const bool wake = fill(static_cast<std::size_t>(slot - slots_.begin()), std::move(reply));
  if (wake) wake_reader();
  lock.unlock();
  if (wake) ready_.notify_all();
}

void PendingCall::complete_at(std::size_t index, Result<RawReply> reply) {
  std::unique_lock lock(mutex_);
  const bool wake = fill(index, std::move(reply));
  if (wake) wake_reader();
  lock.unlock();
  if (wake) ready_.notify_all();
}

void PendingCall::fail_all(const Error& error, std::optional<std::uint64_t> spared) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].proc != spared) (void)fill(i, Failure(error));
  }
  wake_reader();
  lock.unlock();
  ready_.notify_all();
}

bool PendingCall::fill(std::size_t index, Result<RawReply> reply) {
  Slot& slot = slots_[index];
  if (slot.complete) return false;
  slot.complete = true;
  values_ += reply && reply->has_value() ? 1 : 0;
  slot.reply = std::move(reply);
  (unread_ == none ? unread_ : slots_[last_].completed_next) = index;
  last_ = index;
  return --open_ == 0 || each_wakes_;
}

void PendingCall::wait() {
  std::unique_lock lock(mutex_);
  refuse_in_place();
  if (reader_ && open_ > 0) read_channel(lock);
  if (!ready_.wait_until(lock, deadline_, [&] { return open_ == 0; })) expire();
}

void PendingCall::read_channel(std::unique_lock<Mutex>& lock) {
  thread_local const Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return;
  reading_ = std::this_thread::get_id();
  reading_fd_ = wake.get();
  lock.unlock();
  reader_.read_until(
      deadline_,
      [this] {
        std::lock_guard hold(mutex_);
        return open_ == 0;
      },
      reading_fd_);
  lock.lock();
  reading_fd_ = -1;
}

void PendingCall::wake_reader() const {
  if (reading_fd_ >= 0 && reading_ != std::this_thread::get_id()) ::eventfd_write(reading_fd_, 1);
}

void PendingCall::wait_for(std::size_t values) {
  std::unique_lock lock(mutex_);
  each_wakes_ = true;
  refuse_in_place();
  const auto decided = [&] { return values_ >= values || values_ + open_ < values; };
  if (!ready_.wait_until(lock, deadline_, decided)) expire();
}

std::optional<std::size_t> PendingCall::wait_next() {
  std::unique_lock lock(mutex_);
  each_wakes_ = true;
  refuse_in_place();
  const auto more = [&] { return unread_ != none || open_ == 0; };
  if (!ready_.wait_until(lock, deadline_, more)) expire();
  if (unread_ == none) return std::nullopt;
  return std::exchange(unread_, slots_[unread_].completed_next);
}

void PendingCall::refuse_in_place() {
  if (!must_not_wait()) return;
  const Error error{ErrorKind::invalid,
                    "an actor that runs in place must not wait for a reply: host or serve it with "
                    "Handlers::own_thread"};
  for (std::size_t i = 0; i < slots_.size(); ++i)
    (void)fill(i, Failure(error));
}

void PendingCall::expire() {
  const auto table = table_.lock();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].complete) continue;
    const std::string who = table ? table->where(slots_[i].proc) : std::string("the actor");
    (void)fill(i, fail(ErrorKind::timed_out, "no reply from " + who +
                                                 " by the call's deadline; its actor is busy or "
                                                 "hangs"));
  }
  ready_.notify_all();
}

bool PendingCall::done() const {
  std::lock_guard lock(mutex_);
  return open_ == 0 || now() >= deadline_;
}

std::optional<Result<RawReply>> PendingCall::take(std::size_t index) {
  std::lock_guard lock(mutex_);
  return std::exchange(slots_[index].reply, std::nullopt);
}

std::shared_ptr<PendingCall> PendingTable::begin(std::vector<std::uint64_t> procs,
                                                 Instant deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t id = next_++;
  auto call = std::make_shared<PendingCall>(id, std::move(procs), deadline, weak_from_this());
  if (closed_) {
    const Error error = *closed_;
    lock.unlock();
    call->fail_all(error);
    return call;
  }
  calls_.emplace(id, call);
  return call;
}

void PendingTable::forget(std::uint64_t call) {
  std::lock_guard lock(mutex_);
  calls_.erase(call);
}

void PendingTable::reply(std::uint64_t call, std::uint64_t proc, RawReply reply) {
  std::shared_ptr<PendingCall> pending;
  {
    std::lock_guard lock(mutex_);
    const auto found = calls_.find(call);
    if (found != calls_.end()) pending = found->second.lock();
  }
  // Nobody waits any more: its deadline has passed.
  if (pending) pending->complete(proc, std::move(reply));
}

std::vector<std::shared_ptr<PendingCall>> PendingTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<PendingCall>> calls;
  calls.reserve(calls_.size());
  for (const auto& [id, weak] : calls_) {
    if (auto call = weak.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

void PendingTable::fail_proc(std::uint64_t proc, const Error& error) {
  for (const auto& call : all())
    call->complete(proc, Failure(error));
}

void PendingTable::fail_others(std::uint64_t self, const Error& error) {
  for (const auto& call : all())
    call->fail_all(error, self);
}

void PendingTable::close(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    closed_ = error;
  }
  for (const auto& call : all())
    call->fail_all(error);
}

std::string PendingTable::where(std::uint64_t proc) const {
  return where_ ? where_(proc) : "proc " + std::to_string(proc);
}

std::size_t PendingTable::size() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace teson::actor::detail
