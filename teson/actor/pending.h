#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/channel.h"
#include "teson/net/codec.h"

namespace teson::actor {
namespace detail {

/// An encoded Result<R> as it arrived, or the error that stands in its place.
struct RawReply {
  net::Buffer buffer;
  std::size_t from = 0;  ///< where the Result starts in it
  std::span<const std::byte> bytes() const { return buffer.bytes().subspan(from); }
};

/// The replies that one call waits for. Each slot is completed once: by its reply or by its proc's
/// death; what is still open at the deadline becomes timed_out. Threads: any.
class PendingCall {
 public:
  PendingCall(std::uint64_t id, std::vector<std::uint64_t> procs, Instant deadline);

  std::uint64_t id() const { return id_; }
  /// Completes the slot of `proc`; later completions of it are dropped.
  void complete(std::uint64_t proc, Result<RawReply> reply);
  /// Completes the slot at `index`.
  void complete_at(std::size_t index, Result<RawReply> reply);
  void fail_all(const Error& error);
  /// Returns when all slots are complete or the deadline has passed. Once.
  std::vector<Result<RawReply>> wait();
  bool done() const;

 private:
  struct Slot {
    std::uint64_t proc;
    std::optional<Result<RawReply>> reply;
  };
  void fill(Slot& slot, Result<RawReply> reply);

  const std::uint64_t id_;
  const Instant deadline_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<Slot> slots_;
  std::size_t open_;
};

/// All calls of a process that wait. Threads: any.
class PendingTable : public std::enable_shared_from_this<PendingTable> {
 public:
  /// A call leaves the table when its last holder drops it.
  std::shared_ptr<PendingCall> begin(std::vector<std::uint64_t> procs, Instant deadline);
  void reply(std::uint64_t call, std::uint64_t proc, RawReply reply);
  /// Completes every slot that waits for this proc.
  void fail_proc(std::uint64_t proc, const Error& error);
  /// From now on calls complete at once with `error`.
  void close(const Error& error);
  std::size_t size() const;

 private:
  std::vector<std::shared_ptr<PendingCall>> all() const;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<PendingCall>> calls_;
  std::uint64_t next_ = 1;
  std::optional<Error> closed_;
};

template <typename R>
Result<R> decode_reply(Result<RawReply>& raw) {
  if (!raw) return Failure(std::move(raw).error());
  auto decoded = net::decode<Result<R>>(raw->bytes());
  if (!decoded) return Failure(std::move(decoded).error().in("the reply"));
  return std::move(*decoded);
}

}  // namespace detail

/// Replies that are on their way, one a rank, in the order of the mesh that was called. Dropping it
/// abandons them. Move-only.
template <typename R>
class Call {
 public:
  explicit Call(std::shared_ptr<detail::PendingCall> pending) : pending_(std::move(pending)) {}

  /// Blocks until every rank has replied or died, at the latest until the deadline of the call: an
  /// open slot then is `timed_out`. A dead rank's slot is `disconnected` and names the rank, its
  /// signal or exit code, and its last log lines. Once. Not on the I/O thread, nor in a handler
  /// that the reply depends on.
  std::vector<Result<R>> wait() {
    auto raw = pending_->wait();
    std::vector<Result<R>> results;
    results.reserve(raw.size());
    for (auto& one : raw)
      results.push_back(detail::decode_reply<R>(one));
    return results;
  }
  /// Whether wait() would return at once.
  bool done() const { return pending_->done(); }

 private:
  std::shared_ptr<detail::PendingCall> pending_;
};

/// The same for one actor.
template <typename R>
class CallOne {
 public:
  explicit CallOne(std::shared_ptr<detail::PendingCall> pending) : pending_(std::move(pending)) {}
  Result<R> wait() {
    auto raw = pending_->wait();
    return detail::decode_reply<R>(raw.front());
  }
  bool done() const { return pending_->done(); }

 private:
  std::shared_ptr<detail::PendingCall> pending_;
};

}  // namespace teson::actor
