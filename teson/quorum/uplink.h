#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/net/address.h"
#include "teson/net/loop.h"
#include "teson/quorum/protocol.h"

namespace teson::net {
class Channel;
}

namespace teson::quorum {

struct UplinkOptions {
  net::Address lighthouse;
  std::string job;
  std::string secret;
  /// The first message on each new link, made when it is up. Any thread.
  std::function<ToLighthouse()> make_first;
  /// On the loop's thread.
  std::function<void(const FromLighthouse&)> on_message;
  /// On the loop's thread or the connecting one.
  std::function<void(bool up)> on_link;
  /// A try has failed, and the next follows soon. On the connecting thread; must be quick. May be
  /// empty.
  std::function<void(const Error&)> on_unreachable = {};
  /// The lighthouse cannot be spoken to, and trying again will not help: another job, secret,
  /// protocol. Then nothing more is tried.
  std::function<void(const Error&)> on_refused;
};

/// A link to the lighthouse that is made again, for as long as it takes, when it breaks. It
/// connects on a thread of its own, since that may block. Threads: any. Callbacks must not call
/// close.
class Uplink {
 public:
  /// Between two tries: doubled from the first to the second.
  static constexpr Duration retry_first = std::chrono::milliseconds(5);
  static constexpr Duration retry_last = std::chrono::milliseconds(100);
  /// For one try.
  static constexpr Duration connect_max = std::chrono::seconds(2);
  /// Answers in a row that say "never" before it is believed: a port may be taken by another
  /// program for a while.
  static constexpr int refusals_max = 3;

  Uplink(net::Loop& loop, UplinkOptions options);
  /// Begins. Once.
  void start();
  ~Uplink();
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  /// False if there is no link now, or it is full: the message is lost. A link that is full is
  /// broken off.
  bool send(const ToLighthouse& message);
  bool is_up() const;
  /// Breaks the present link; a new one is made.
  void renew();
  /// No new link after the present one. Returns at once.
  void stop_soon();
  /// Waits until the link is down. False at the deadline.
  bool wait_down(Instant deadline);
  /// Ends everything. Not on the loop's thread. Idempotent.
  void close();

 private:
  void run();
  bool wait_before_retry(Duration delay);
  std::shared_ptr<net::Channel> connect_once(int* refusals);

  net::Loop& loop_;
  UplinkOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<net::Channel> channel_;  ///< up: HELLO is queued on it
  bool down_ = false;                      ///< the channel has ended
  bool stopping_ = false;
  Fd cancel_;
  std::thread thread_;
};

}  // namespace teson::quorum
