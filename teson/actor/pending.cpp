#include "teson/actor/pending.h"

#include <algorithm>
#include <utility>

#include "teson/base/check.h"

namespace teson::actor::detail {

PendingCall::PendingCall(std::uint64_t id, std::vector<std::uint64_t> procs, Instant deadline)
    : id_(id), deadline_(deadline), open_(procs.size()) {
  slots_.reserve(procs.size());
  for (const std::uint64_t proc : procs)
    slots_.push_back({proc, std::nullopt});
}

void PendingCall::complete(std::uint64_t proc, Result<RawReply> reply) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.proc == proc && !slot.reply;
  });
  if (found != slots_.end()) fill(*found, std::move(reply));
}

void PendingCall::complete_at(std::size_t index, Result<RawReply> reply) {
  std::lock_guard lock(mutex_);
  if (!slots_[index].reply) fill(slots_[index], std::move(reply));
}

void PendingCall::fail_all(const Error& error) {
  std::lock_guard lock(mutex_);
  for (auto& slot : slots_) {
    if (!slot.reply) fill(slot, Failure(error));
  }
}

void PendingCall::fill(Slot& slot, Result<RawReply> reply) {
  slot.reply = std::move(reply);
  if (--open_ == 0) ready_.notify_all();
}

std::vector<Result<RawReply>> PendingCall::wait() {
  std::unique_lock lock(mutex_);
  ready_.wait_until(lock, deadline_, [&] { return open_ == 0; });
  std::vector<Result<RawReply>> replies;
  replies.reserve(slots_.size());
  for (auto& slot : slots_) {
    if (!slot.reply)
      fill(slot, fail(ErrorKind::timed_out,
                      "no reply by the call's deadline; the actor is busy or hangs"));
    replies.push_back(std::move(*slot.reply));
  }
  return replies;
}

bool PendingCall::done() const {
  std::lock_guard lock(mutex_);
  return open_ == 0 || std::chrono::steady_clock::now() >= deadline_;
}

std::shared_ptr<PendingCall> PendingTable::begin(std::vector<std::uint64_t> procs,
                                                 Instant deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t id = next_++;
  std::shared_ptr<PendingCall> call(new PendingCall(id, std::move(procs), deadline),
                                    [table = weak_from_this()](const PendingCall* ended) {
                                      if (const auto owner = table.lock()) {
                                        std::lock_guard hold(owner->mutex_);
                                        owner->calls_.erase(ended->id());
                                      }
                                      delete ended;
                                    });
  if (closed_) {
    const Error error = *closed_;
    lock.unlock();
    call->fail_all(error);
    return call;
  }
  calls_.emplace(id, call);
  return call;
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

void PendingTable::close(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    closed_ = error;
  }
  for (const auto& call : all())
    call->fail_all(error);
}

std::size_t PendingTable::size() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace teson::actor::detail
