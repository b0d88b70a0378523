#pragma once

#include <string>
#include <utility>

#include "teson/actor/reply_path.h"
#include "teson/base/check.h"
#include "teson/base/error.h"
#include "teson/net/codec.h"

namespace teson::actor {

/// A reply that is given later. An endpoint whose last parameter is a Port<R> returns at once and
/// answers when it can: from another handler, another thread, or before it returns. Its callers
/// see an endpoint that yields R.
///
///     void evaluate(int step, actor::Port<double> loss) override {
///       waiting_.emplace(step, std::move(loss));                  // the actor goes on
///     }
///     …  waiting_.at(step).answer(3.14);
///     …  waiting_.at(step).answer(fail(ErrorKind::failed, "no such step"));
///
/// It may be kept and moved, also to other threads, and may outlive its actor. Whoever drops it
/// without an answer has the caller told so, as `failed`; if its actor has ended, with why. The
/// duty to answer is with the port, so a handler that fails ends its actor, as in a cast; a caller
/// who has no answer yet gets that error. Move-only. Threads: any, one at a time.
template <typename R>
class Port {
 public:
  /// A port nobody waits at, already answered.
  Port() = default;
  explicit Port(detail::ReplyPath path) : path_(std::move(path)) {}

  /// Answers with a value, or with an error; once: a second answer breaks an invariant. What is
  /// said to a caller that has gone, or by a process that ends, is dropped. Waits while more
  /// replies than a channel holds are on their way to the caller: not for the I/O thread.
  void answer(const Result<R>& result) {
    TESON_CHECK(open() && "a port is answered once");
    net::PayloadWriter reply = detail::ReplyPath::begin_reply();
    if (path_.awaited()) net::encode_to(reply, result);
    path_.send(std::move(reply));
  }
  /// Not answered yet.
  bool open() const { return path_.open(); }
  /// Somebody waits for the answer: it was a call, not a cast.
  bool awaited() const { return path_.awaited(); }

 private:
  detail::ReplyPath path_;
};

}  // namespace teson::actor
