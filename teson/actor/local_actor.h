#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "teson/actor/behaviour.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/handler_frame.h"
#include "teson/base/error.h"
#include "teson/net/channel.h"

namespace teson::actor {

/// What one actor's mailbox may hold. One message is always taken by an empty mailbox.
struct MailboxLimits {
  std::size_t messages_max = 16384;
  std::size_t bytes_max = std::size_t{1} << 30;
};

namespace detail {

/// An actor of this process: its handlers run one at a time, in the order of arrival, on a thread
/// of its own. A handler that fails with somebody waiting for the reply fails that call; without,
/// or if its reply was a port's, the actor ends: from then on calls get its error.
class LocalActor {
 public:
  struct Hooks {
    /// The Result of a call, encoded behind reply_header_bytes of room.
    std::function<void(std::uint64_t proc, std::uint64_t call, std::string reply)> reply;
    /// A cast from `proc` that no handler takes.
    std::function<void(std::uint64_t proc, const Error&)> undelivered;
    /// The construction has ended.
    std::function<void(const Result<void>&)> constructed;
    /// The actor has ended: a handler without anybody waiting has failed, or the construction.
    std::function<void(const Error&)> failed;
    /// For replies that come later.
    std::shared_ptr<ReplyOutlet> outlet;
  };
  using Make = std::function<Result<std::unique_ptr<Behaviour>>()>;

  /// `make` runs on the actor's thread, before any handler.
  LocalActor(std::string name, SpawnPlace place, MailboxLimits limits, Make make, Hooks hooks);
  /// Drops what was not yet begun, waits for the handler that runs.
  ~LocalActor();

  /// `overloaded`: the mailbox is full. Threads: any.
  Result<void> push(Envelope envelope);
  const std::string& name() const { return name_; }

 private:
  void run(const Make& make);
  void handle(const Envelope& envelope, Behaviour* behaviour);
  void refuse(const Envelope& envelope, const Error& error);
  void die(const Error& error);
  Error ended() const;

  const std::string name_;
  const SpawnPlace place_;
  const MailboxLimits limits_;
  const Hooks hooks_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Envelope> mailbox_;
  std::size_t mailbox_bytes_ = 0;
  bool stopping_ = false;
  std::optional<Error> dead_;  ///< the actor's thread only
  std::thread thread_;
};

}  // namespace detail
}  // namespace teson::actor
