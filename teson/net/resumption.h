#pragma once

#include <memory>
#include <optional>

#include "teson/base/clock.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"
#include "teson/net/redial.h"

namespace teson::net {

/// What is done about a resumable channel that is cut: one end dials, the other waits for it, and after a while both give up. Loop's thread.
class Resumption {
 public:
  /// A cut is given up after it: long enough to connect again, and no longer than the news of a death may take.
  static constexpr Duration window = std::chrono::milliseconds(500);

  /// `dial`: how to reach the peer; nothing: the peer dials.
  explicit Resumption(Loop& loop, std::optional<Dial> dial = {})
      : loop_(loop), dial_(std::move(dial)) {}
  void set_dial(Dial dial) { dial_ = std::move(dial); }

  /// The channel is cut. It is closed if that lasts, or if nobody listens at its peer's address any more.
  void on_cut(const std::shared_ptr<Channel>& channel);
  /// How long it was cut.
  Duration on_resumed();
  /// Nothing more is done.
  void cancel();

 private:
  Loop& loop_;
  std::optional<Dial> dial_;
  std::unique_ptr<Redial> redial_;
  Timer timer_;
  std::optional<Instant> since_;  ///< while it is cut
};

}  // namespace teson::net
