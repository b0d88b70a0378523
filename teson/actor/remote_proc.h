#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "teson/actor/child_process.h"
#include "teson/actor/host_link.h"
#include "teson/actor/node.h"
#include "teson/actor/proc_life.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/runtime.h"
#include "teson/actor/wire.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"
#include "teson/net/resumption.h"

namespace teson::actor::detail {

/// One process of a mesh from its owner's side: its channel, its life, and its end. The end is
/// reported once, when whoever watches it has said how it ended and its last messages are read.
/// Threads: any, unless said otherwise.
class RemoteProc : public std::enable_shared_from_this<RemoteProc> {
 public:
  struct Hooks {
    std::function<void()> changed;  ///< loop's thread: attached, or its connection is lost
    std::function<void(const ProcExit&)> ended;  ///< loop's thread, once
  };
  RemoteProc(Runtime& runtime, const ProcOptions& options, ProcPlace place, Welcome welcome);
  ~RemoteProc();

  // One of these, once.
  /// Starts the process as a child of this one, with a socket of its own.
  Result<void> start_child(Hooks hooks);
  /// Has a host agent start it; it then attaches over the network.
  Result<void> start_on(const std::shared_ptr<HostLink>& host, Hooks hooks);
  /// Lets a process attach that somebody else starts: the ticket to give it.
  Result<std::string> await(Hooks hooks);
  /// For a host agent, which was not expected.
  /// `dial`: how to reach it, if it is this process that connects.
  void attach(std::unique_ptr<net::Channel> channel, const LinkHello& hello,
              std::optional<net::Dial> dial, Hooks hooks);

  /// Loop's thread: the process has attached over the network.
  void adopt(std::unique_ptr<net::Channel> channel, const LinkHello& hello);
  /// Loop's thread: its connection was cut, and this is the next one.
  void resume(std::unique_ptr<net::Channel> fresh);

  std::uint64_t id() const { return welcome_.proc; }
  const ProcPlace& place() const { return place_; }
  pid_t pid() const;
  /// Name of its machine.
  std::string host() const;
  bool attached() const;
  /// Whose agent has started it, if one has.
  const std::shared_ptr<HostLink>& host_link() const { return host_; }
  std::optional<ProcExit> exit() const;
  /// Why calls to this process fail, once its end or the loss of its connection is certain.
  std::optional<Error> gone() const;

  /// Not known to be gone.
  bool alive() const;
  /// Calls that were sent to it and that it has not answered, abandoned ones too.
  std::int64_t unanswered() const { return unanswered_->load(std::memory_order_relaxed); }
  void count_call() { unanswered_->fetch_add(1, std::memory_order_relaxed); }
  void count_reply() { unanswered_->fetch_sub(1, std::memory_order_relaxed); }

  Result<void> send(Kind kind, net::Payload payload);
  /// For who waits for a reply of it.
  net::ChannelReader reader() const;
  Result<void> signal(int number);
  /// Asks it to end, and makes sure that it does: after stop_grace SIGTERM, after term_grace
  /// SIGKILL.
  void stop();
  /// Loop's thread: nothing more can be learned of it, and it ends itself if it still runs.
  void lose(const std::string& cause);
  /// Ends it at once, as something that was wanted.
  void end_now();
  /// Lets go of the loop. After the end has been reported, or the start has failed.
  void release();

 private:
  ChildSpec spec() const;
  /// Nothing before it is attached, or after release.
  std::shared_ptr<net::Channel> channel() const;
  void begin(std::shared_ptr<ProcLife> life, Hooks hooks);
  void link(std::shared_ptr<net::Channel> channel);
  void on_open();
  /// It attaches over the network; before it begins.
  void set_networked();
  bool networked() const;
  void on_end(const ExitStatus& status, const std::string& cause);
  void on_channel_end(const Error& error);
  void on_cut(const Error& error);
  void on_resumed();
  void beat();
  /// Since the last time this was asked.
  bool has_given_sign();
  /// Loop's thread: something of ours makes it end.
  void end_because(const std::string& cause);
  void report();
  /// What is told to those who wait for it.
  Error end_error(const ProcExit& exit) const;
  /// "rank 1 (pid 4711, host 'node3') of mesh 'workers'"
  std::string name() const;
  std::vector<std::string> last_lines() const;

  Runtime& runtime_;
  const ProcOptions& options_;
  const ProcPlace place_;
  const Welcome welcome_;
  const std::shared_ptr<CallCount> unanswered_ = std::make_shared<CallCount>(0);
  std::shared_ptr<HostLink> host_;
  std::shared_ptr<ProcLife> life_;  ///< from the start on
  bool is_agent_ = false;           ///< of a host, not a process of a mesh; from the start on

  // Loop's thread.
  Hooks hooks_;
  net::Timer heartbeat_;
  int silent_beats_ = 0;
  net::ChannelProgress progress_;  ///< at the last heartbeat
  std::uint64_t pinged_ = 0;       ///< bytes sent before the last heartbeat
  /// It has attached before the call that started it has returned.
  std::optional<std::pair<std::unique_ptr<net::Channel>, LinkHello>> early_;
  std::unique_ptr<net::Channel> early_resumption_;  ///< of that
  net::Timer timer_;                                ///< for the second sign of a death
  net::Timer stop_timer_;
  net::Timer kill_timer_;  ///< for the word of its agent
  std::optional<ExitStatus> status_;
  std::optional<Error> channel_end_;
  net::Resumption resumption_;
  std::optional<Error> cut_;  ///< of its connection, which may be resumed
  std::string cause_;
  bool released_ = false;

  mutable Mutex mutex_;
  std::shared_ptr<net::Channel> channel_;
  bool networked_ = false;  ///< it attaches over the network
  bool attached_ = false;
  bool expected_ = false;
  std::optional<Error> lost_;
  std::optional<ProcExit> exit_;
};

}  // namespace teson::actor::detail
