#pragma once

#include <functional>
#include <memory>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/address.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"

namespace teson::net {

/// How to reach a peer.
struct Dial {
  Address address;
  ChannelOptions options;
};

/// Connects again where a channel was cut, on a thread of its own: at once, then at growing
/// intervals. Destructor: gives up, and waits for the thread. Not to be destroyed by `done`.
class Redial {
 public:
  /// The channel, to resume the other one over; or the last error: refused (`disconnected`: nobody
  /// listens there any more), or the deadline's.
  using Done = std::function<void(Result<std::unique_ptr<Channel>>)>;
  /// `done` runs on the loop's thread, once, unless this goes before.
  Redial(Loop& loop, const Dial& dial, Instant deadline, Done done);
  ~Redial();
  Redial(const Redial&) = delete;
  Redial& operator=(const Redial&) = delete;

 private:
  struct Shared;
  Loop& loop_;
  std::shared_ptr<Shared> shared_;
  Thread thread_;
};

}  // namespace teson::net
