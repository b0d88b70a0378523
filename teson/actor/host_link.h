#pragma once

// A host agent seen from its owner; not for use outside actor/.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "teson/actor/actor.h"
#include "teson/actor/host_agent.h"
#include "teson/actor/proc_life.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/proc_ticket.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"
#include "teson/net/redial.h"

namespace teson::actor::detail {

class RemoteProc;
struct Runtime;
class Hosts;
class AgentLife;

/// Threads: any, unless said otherwise.
class HostLink : public std::enable_shared_from_this<HostLink> {
 public:
  HostLink(Runtime& runtime, std::uint64_t number, LinkHello hello);

  std::uint64_t number() const { return number_; }
  const std::string& name() const { return hello_.host; }
  std::int64_t pid() const { return hello_.pid; }
  /// The same for each connection of an agent.
  std::uint64_t agent_id() const { return hello_.proc; }
  /// Why it is gone, if it is.
  std::optional<Error> gone() const;

  /// Loop's thread. `lost`: its end, once.
  void attach(std::unique_ptr<net::Channel> channel, std::optional<net::Dial> dial,
              std::function<void(const std::string&)> lost);
  /// Whether this was its agent's connection, which was cut.
  bool is_resumed_by(const LinkHello& hello) const;
  Result<std::shared_ptr<ProcLife>> start(std::uint64_t proc, const ChildSpec& spec,
                                          const ProcTicket& ticket, const ProcOptions& options);
  void signal(std::uint64_t proc, int number);
  /// Loop's thread: what an agent has told.
  void ended(const HostProcEnd& end);
  /// Nothing more is relayed to a process. False: it is not one of this host.
  bool out_of_reach(std::uint64_t proc);
  /// Whether the agent can give calls to a process.
  bool relays_to(std::uint64_t proc) const;
  /// Sends a call to the agent, for some of its processes: the bytes that have been sent to it then.
  /// Nothing: it will not get it.
  std::optional<std::uint64_t> relay(const RelayTo& to, const net::Payload& call);
  /// Bytes that have come to the agent's machine, or through TLS to the tunnel to it; see
  /// net::ChannelProgress.
  std::uint64_t received() const;
  /// Calls that were given to the agent so.
  std::uint64_t relayed() const { return relayed_.load(std::memory_order_relaxed); }
  void forget(std::uint64_t proc);
  /// Of how many processes anything is kept.
  std::size_t kept() const;
  /// Loop's thread: its agent is connected anew.
  void supplant();
  void release();
  /// The agent's process. Nothing before it is attached.
  std::shared_ptr<RemoteProc> proc() const;

 private:
  void lose(const std::string& why);
  Actor<HostAgent> agent() const;

  Runtime& runtime_;
  const std::uint64_t number_;
  const std::uint64_t id_;  ///< of its connection, among the processes of the System
  const LinkHello hello_;
  const ProcOptions options_;
  std::shared_ptr<RemoteProc> proc_;
  std::uint64_t actor_ = 0;
  std::function<void(const std::string&)> lost_;  ///< loop's thread
  Mutex relay_mutex_;
  std::atomic<std::uint64_t> relayed_ = 0;
  mutable Mutex mutex_;
  /// Of each process from before it is started; empty until the agent has answered.
  std::unordered_map<std::uint64_t, std::weak_ptr<AgentLife>> lives_;
  /// Ends that were told before the call that started the process had returned.
  std::unordered_map<std::uint64_t, HostProcEnd> early_;
  std::set<std::uint64_t> out_of_reach_;  ///< of those
  std::optional<Error> gone_;
};

/// The hosts of a System. Threads: any, unless said otherwise.
class Hosts {
 public:
  explicit Hosts(Runtime& runtime) : runtime_(runtime) {}

  /// Loop's thread: an agent has connected, or was connected to. One that is here already has left
  /// its old connection, which is lost with all that was started over it.
  /// `dial`: how to reach it, if it was connected to.
  void add(std::unique_ptr<net::Channel> channel, LinkHello hello,
           std::optional<net::Dial> dial = {});
  /// To an agent that listens.
  Result<void> connect(const net::Address& address, const std::string& secret, Instant deadline,
                       std::shared_ptr<net::Tls> tls);
  Result<std::vector<std::shared_ptr<HostLink>>> wait(std::size_t count, Instant deadline);
  /// If it is gone: the link that its agent has joined by since, or that another agent of its machine has;
  /// else, or if there is none, itself.
  std::shared_ptr<HostLink> latest(const std::shared_ptr<HostLink>& link) const;
  /// Loop's thread.
  void ended(const HostProcEnd& end);
  void out_of_reach(std::uint64_t proc);
  void close();
  /// In the order of their joining, those that are gone too.
  std::vector<std::shared_ptr<HostLink>> all() const;
  ActorRef<HostObserver> observer();

 private:
  void resume(std::unique_ptr<net::Channel> channel, const LinkHello& hello);
  /// Loop's thread: those whose agent is gone, or is about to join anew.
  void drop_gone(std::uint64_t joining);

  Runtime& runtime_;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<std::shared_ptr<HostLink>> links_;  ///< in the order of their joining
  std::uint64_t joined_ = 0;
  ActorRef<HostObserver> observer_;
  bool closed_ = false;
};

}  // namespace teson::actor::detail
