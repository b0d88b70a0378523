#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "teson/actor/child_process.h"
#include "teson/actor/node.h"
#include "teson/actor/proc_options.h"
#include "teson/actor/runtime.h"
#include "teson/actor/wire.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"

namespace teson::actor::detail {

/// One process of a mesh from its parent's side: its channel, its pidfd, and its end. The end is
/// reported once, when the kernel has said how it ended and its last messages are read. Threads:
/// any, unless said otherwise.
class RemoteProc : public std::enable_shared_from_this<RemoteProc> {
 public:
  struct Hooks {
    std::function<void()> changed;  ///< loop's thread: attached, or its connection is lost
    std::function<void(const ProcExit&)> ended;  ///< loop's thread, once
  };
  RemoteProc(Runtime& runtime, const ProcOptions& options, ProcPlace place, Welcome welcome);
  ~RemoteProc();

  /// Starts the process. Once.
  Result<void> start(Hooks hooks);

  std::uint64_t id() const { return welcome_.proc; }
  const ProcPlace& place() const { return place_; }
  pid_t pid() const { return pid_; }
  bool attached() const;
  std::optional<ProcExit> exit() const;
  /// Why calls to this process fail, once its end or the loss of its connection is certain.
  std::optional<Error> gone() const;

  /// Not known to be gone.
  bool alive() const;
  /// Calls that were sent to it and that it has not answered, abandoned ones too.
  std::int64_t unanswered() const { return unanswered_->load(std::memory_order_relaxed); }
  void count_call() { unanswered_->fetch_add(1, std::memory_order_relaxed); }
  void count_reply() { unanswered_->fetch_sub(1, std::memory_order_relaxed); }

  Result<void> send(Kind kind, std::shared_ptr<const std::string> payload);
  /// For who waits for a reply of it.
  net::ChannelReader reader() const;
  Result<void> signal(int number);
  /// Asks it to end, and makes sure that it does: after stop_grace SIGTERM, after term_grace
  /// SIGKILL.
  void stop();
  /// Ends it at once, as something that was wanted.
  void end_now();
  /// Lets go of the loop. After the end has been reported, or the start has failed.
  void release();

 private:
  void begin_on_loop(Hooks hooks, Fd socket, std::string token);
  void on_open();
  void on_exit();
  void on_channel_end(const Error& error);
  /// Loop's thread: something of ours makes it end.
  void end_because(const std::string& cause);
  void report();
  /// "rank 1 (pid 4711, host 'node3') of mesh 'workers'"
  std::string name() const;
  std::vector<std::string> last_lines() const;

  Runtime& runtime_;
  const ProcOptions& options_;
  const ProcPlace place_;
  const Welcome welcome_;
  const std::shared_ptr<CallCount> unanswered_ = std::make_shared<CallCount>(0);
  std::filesystem::path log_file_;
  std::uintmax_t log_start_ = 0;
  pid_t pid_ = 0;

  // Loop's thread.
  Hooks hooks_;
  net::Watch watch_;
  net::Timer timer_;  ///< for the second sign of a death
  net::Timer stop_timer_;
  std::optional<ExitStatus> status_;
  std::optional<Error> channel_end_;
  std::string cause_;

  mutable std::mutex mutex_;
  ChildProcess child_;
  std::shared_ptr<net::Channel> channel_;
  bool attached_ = false;
  bool expected_ = false;
  std::optional<Error> lost_;
  std::optional<ProcExit> exit_;
};

}  // namespace teson::actor::detail
