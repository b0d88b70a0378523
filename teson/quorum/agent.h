#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/address.h"
#include "teson/net/loop.h"
#include "teson/quorum/protocol.h"

namespace teson::quorum {

struct AgentOptions {
  net::Address lighthouse;
  std::string job;
  std::string secret;
  std::string name = "agent";
  /// Each event as the lighthouse pushes it, in order, on the loop's thread. Must be quick. May be
  /// empty.
  std::function<void(const Event&)> on_event;
  /// The newest record, at each connect: its members (host, pid, instance) are whom to prove dead
  /// if the lighthouse is waiting for that.
  std::function<void(const RecordNews&)> on_record;
  /// The link to the lighthouse came up or broke. May be empty.
  std::function<void(bool up)> on_link;
  /// The lighthouse could not be reached; it is tried again soon. Must be quick. May be empty.
  std::function<void(const Error&)> on_unreachable;
  /// The lighthouse refused this agent for good (other secret, job or protocol). May be empty.
  std::function<void(const Refused&)> on_refused;
};

/// Whoever runs processes of a job tells the lighthouse which have died, and hears what it decides.
/// Reconnects by itself; the newest `reports_kept_max` reports are sent again after a reconnect,
/// since a lighthouse that restarted knows nothing of them. Threads: any.
class Agent {
 public:
  static constexpr std::size_t reports_kept_max = 1024;

  /// Starts connecting and returns. `loop` must outlive it.
  static std::unique_ptr<Agent> start(net::Loop& loop, AgentOptions options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Proof: the process of `instance` has ended. `at`: when the kernel said so. Sent at once.
  void report_dead(std::uint64_t instance, Cause cause, const std::string& what, Instant at);
  bool connected() const;
  void close();

 private:
  class Impl;
  explicit Agent(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace teson::quorum
