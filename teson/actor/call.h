#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "teson/actor/pending.h"
#include "teson/base/check.h"
#include "teson/base/error.h"

namespace teson::actor {

/// What calls give back: replies that are on their way. All of them are move-only, may be waited
/// for on another thread than the one that called, and abandon their replies when dropped. Every
/// slot ends, by its reply, by its rank's death, or at the deadline of the call
/// (ActorMesh::within):
///
///   the actor's own error, as the handler gave it
///   `disconnected`   the rank died: names mesh, rank, process, host, its signal or exit code, and
///                    its last log lines; or its actor has ended, and why
///   `timed_out`      no reply by the deadline; the rank may still be at it
///   `overloaded`     the actor's mailbox was full, it has not seen the message
///   `invalid`        no such actor, or one that has ended so long ago that it is forgotten
///   `aborted`        this process ends
///
/// Ranks are counted in the mesh that was called: 0 … size() - 1. Waiting is for ordinary threads
/// and for handlers that the reply does not depend on; not for the I/O thread.

/// The reply of one rank.
template <typename R>
struct RankReply {
  std::size_t rank = 0;
  Result<R> reply;
};

/// How many values a call is to wait for.
struct Quorum {
  std::size_t values = 1;
};
inline constexpr Quorum any{1};

/// What a call has brought when its quorum was there, or could no longer be.
template <typename R>
struct Answers {
  bool quorum = false;                  ///< it was there
  std::vector<RankReply<R>> replies;    ///< of the ranks that have answered or failed, by rank
  std::vector<std::size_t> unanswered;  ///< the other ranks; what they still say is dropped
};

/// A call to every rank of a mesh.
template <typename R>
class Call {
 public:
  explicit Call(std::shared_ptr<detail::PendingCall> pending) : pending_(std::move(pending)) {}

  /// Blocks until every rank has replied or failed. One result a rank. Once.
  std::vector<Result<R>> wait() {
    const auto pending = begin_wait();
    pending->wait();
    std::vector<Result<R>> results;
    results.reserve(pending->size());
    for (std::size_t rank = 0; rank < pending->size(); ++rank)
      results.push_back(detail::decode_reply<R>(*pending->take(rank)));
    return results;
  }

  /// Blocks until so many ranks have answered with a value, or until so many have failed that this
  /// cannot be any more. Once.
  Answers<R> wait_for(Quorum quorum) {
    const auto pending = begin_wait();
    pending->wait_for(quorum.values);
    Answers<R> answers;
    std::size_t values = 0;
    for (std::size_t rank = 0; rank < pending->size(); ++rank) {
      auto raw = pending->take(rank);
      if (!raw) {
        answers.unanswered.push_back(rank);
        continue;
      }
      answers.replies.push_back({rank, detail::decode_reply<R>(std::move(*raw))});
      values += answers.replies.back().reply ? 1 : 0;
    }
    answers.quorum = values >= quorum.values;
    return answers;
  }

  /// Whether wait() would return at once.
  bool done() const { return pending_ && pending_->done(); }

 private:
  std::shared_ptr<detail::PendingCall> begin_wait() {
    TESON_CHECK(pending_ != nullptr && "a call is waited for once");
    return std::move(pending_);
  }

  std::shared_ptr<detail::PendingCall> pending_;
};

/// A call to one actor.
template <typename R>
class CallOne {
 public:
  explicit CallOne(std::shared_ptr<detail::PendingCall> pending) : pending_(std::move(pending)) {}

  /// Blocks until the actor has replied or failed. Once.
  Result<R> wait() {
    TESON_CHECK(pending_ != nullptr && "a call is waited for once");
    const auto pending = std::move(pending_);
    pending->wait();
    return detail::decode_reply<R>(*pending->take(0));
  }

  /// Whether wait() would return at once.
  bool done() const { return pending_ && pending_->done(); }

 private:
  std::shared_ptr<detail::PendingCall> pending_;
};

/// A call to every rank of a mesh, whose replies are taken as they come:
///
///     for (auto stream = workers.stream<&Worker::step>(); auto one = stream.next();)
///       use(one->rank, one->reply);
template <typename R>
class Stream {
 public:
  explicit Stream(std::shared_ptr<detail::PendingCall> pending) : pending_(std::move(pending)) {}

  /// How many ranks it was sent to.
  std::size_t size() const { return pending_->size(); }

  /// Blocks until one more rank has replied or failed. Nothing once every rank has been told.
  std::optional<RankReply<R>> next() {
    const auto rank = pending_->wait_next();
    if (!rank) return std::nullopt;
    return RankReply<R>{*rank, detail::decode_reply<R>(*pending_->take(*rank))};
  }

 private:
  std::shared_ptr<detail::PendingCall> pending_;
};

}  // namespace teson::actor
