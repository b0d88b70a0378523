#pragma once

// How replies leave a process; not for use outside actor/.

#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>

#include "teson/base/error.h"
#include "teson/net/payload.h"

namespace teson::actor::detail {

/// What the caller is told whose port was dropped.
Error unanswered();

/// Where a node's replies go out. It may be closed before those who still owe a reply are gone:
/// what they say then is dropped. Threads: any.
class ReplyOutlet {
 public:
  /// `reply`: reply_header_bytes of room, then the encoded Result.
  using Send =
      std::function<void(std::uint64_t proc, std::uint64_t call, net::PayloadWriter reply)>;

  explicit ReplyOutlet(Send send) : send_(std::move(send)) {}
  void send(std::uint64_t proc, std::uint64_t call, net::PayloadWriter reply);
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
  static net::PayloadWriter begin_reply();
  /// Answers, and closes the path.
  void send(net::PayloadWriter reply);

 private:
  void drop();

  std::shared_ptr<ReplyOutlet> outlet_;
  std::uint64_t proc_ = 0;
  std::uint64_t call_ = 0;
};

}  // namespace teson::actor::detail
