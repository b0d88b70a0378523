#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>

#include "teson/actor/proc_life.h"
#include "teson/actor/wire.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/loop.h"

namespace teson::actor::detail {

/// A process that somebody else has started: its connection is all that is known of it.
class GuestLife final : public ProcLife {
 public:
  explicit GuestLife(net::Loop& loop) : loop_(loop) {}

  void introduce(const LinkHello& hello) {
    std::lock_guard lock(mutex_);
    pid_ = hello.pid;
    host_ = hello.host;
  }
  std::int64_t pid() const override {
    std::lock_guard lock(mutex_);
    return pid_;
  }
  std::string host() const override {
    std::lock_guard lock(mutex_);
    return host_;
  }
  /// Without its connection it ends itself.
  Result<void> signal(int number) override {
    if (number != SIGKILL) {
      return fail(ErrorKind::unimplemented,
                  "a process that was not started from here can be ended by SIGKILL only");
    }
    loop_.post([shared = ended_] {
      if (const auto ended = std::exchange(*shared, {})) ended({.code = -1, .unknown = true}, "");
    });
    return {};
  }
  std::vector<std::string> last_lines() const override { return {}; }
  bool ends_with_link() const override { return true; }
  void watch(Ended ended) override { *ended_ = std::move(ended); }
  void unwatch() override { *ended_ = {}; }

 private:
  net::Loop& loop_;
  mutable Mutex mutex_;
  std::int64_t pid_ = 0;
  std::string host_ = "?";
  const std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();  ///< loop's thread
};

}  // namespace teson::actor::detail
