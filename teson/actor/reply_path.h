#pragma once

// How replies leave a process; not for use outside actor/.

#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>

#include "teson/base/error.h"

namespace teson::actor::detail {

/// What the caller is told whose port was dropped.
Error unanswered();

/// Where a node's replies go out. It may be closed before those who still owe a reply are gone:
/// what they say then is dropped. Threads: any.
class ReplyOutlet {
 public:
  /// `reply`: reply_header_bytes of room, then the encoded Result.
  using Send = std::function<void(std::uint64_t proc, std::uint64_t call, std::string reply)>;

  explicit ReplyOutlet(Send send) : send_(std::move(send)) {}
  void send(std::uint64_t proc, std::uint64_t call, std::string reply);
  /// Waits for replies that are on their way out.
  void close();

 private:
  std::shared_mutex mutex_;
  Send send_;
};

/// The duty to answer one call, once. Move-only; whoever drops it unanswered has the caller told
/// so. Threads: one at a time.
class ReplyPath {
 public:
  ReplyPath() = default;
  ReplyPath(std::shared_ptr<ReplyOutlet> outlet, std::uint64_t proc, std::uint64_t call)
      : outlet_(std::move(outlet)), proc_(proc), call_(call) {}
  ReplyPath(ReplyPath&& other) noexcept = default;
  ReplyPath& operator=(ReplyPath&& other) noexcept;
  ~ReplyPath() { drop(); }

  /// Not answered yet.
  bool open() const { return outlet_ != nullptr; }
  /// Somebody waits: it was a call, not a cast.
  bool awaited() const { return open() && call_ != 0; }

  /// Room for the header, where an encoded Result is to follow.
  static std::string begin_reply();
  /// Answers, and closes the path.
  void send(std::string reply);

 private:
  void drop();

  std::shared_ptr<ReplyOutlet> outlet_;
  std::uint64_t proc_ = 0;
  std::uint64_t call_ = 0;
};

/// The handler that runs on this thread, from its begin to its end: what its ports and
/// message_context() belong to.
class HandlerFrame {
 public:
  /// The outlet must outlive the frame.
  HandlerFrame(const std::shared_ptr<ReplyOutlet>& outlet, std::uint64_t from, std::uint64_t call);
  /// No handler: an actor's state goes, and the ports it has kept give this reason.
  explicit HandlerFrame(const Error& ended);
  ~HandlerFrame();
  HandlerFrame(const HandlerFrame&) = delete;
  HandlerFrame& operator=(const HandlerFrame&) = delete;

  static HandlerFrame* current();

  ReplyPath reply_path() const { return {*outlet_, from_, call_}; }
  /// The handler let go of its port without an answer: the reply is owed by whoever ran it.
  bool port_dropped() const { return port_dropped_; }

 private:
  friend class ReplyPath;

  const std::shared_ptr<ReplyOutlet>* const outlet_ = nullptr;
  const std::uint64_t from_ = 0;
  const std::uint64_t call_ = 0;
  const Error* const ended_ = nullptr;
  bool port_dropped_ = false;
  HandlerFrame* const outer_;
};

}  // namespace teson::actor::detail
