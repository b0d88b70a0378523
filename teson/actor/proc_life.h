#pragma once

// The process behind a rank, seen from its owner; not for use outside actor/.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "teson/actor/child_process.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/loop.h"

namespace teson::actor::detail {

/// Who watches a process, and can send it signals. Threads: any, unless said otherwise.
class ProcLife {
 public:
  /// How it ended, and why if that is not the process's own doing. Loop's thread, once.
  using Ended = std::function<void(const ExitStatus&, const std::string& cause)>;

  virtual ~ProcLife() = default;
  virtual std::int64_t pid() const = 0;
  virtual std::string host() const = 0;
  virtual Result<void> signal(int number) = 0;
  /// What its log ends with, at most last_lines_max lines.
  virtual std::vector<std::string> last_lines() const = 0;
  /// Nobody watches it but by its connection.
  virtual bool ends_with_link() const { return false; }
  /// Loop's thread.
  virtual void watch(Ended ended) = 0;
  virtual void unwatch() = 0;
};

/// What starts processes on this machine. Handed down from whoever makes the System or the host agent.
class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Starts one that is watched through `loop`. `socket` becomes its descriptor ChildProcess::child_socket_fd. Called on the
  /// thread whose child it is to be.
  virtual Result<std::unique_ptr<ProcLife>> start(net::Loop& loop, std::string host,
                                                  const ChildSpec& spec, int socket) = 0;
};

/// The operating system.
std::shared_ptr<Launcher> system_launcher();

/// A child of this process.
class ChildLife final : public ProcLife {
 public:
  /// `socket` becomes the child's descriptor ChildProcess::child_socket_fd. On the thread whose child
  /// it is to be.
  static Result<std::unique_ptr<ChildLife>> start(net::Loop& loop, std::string host,
                                                  const ChildSpec& spec, int socket);

  std::int64_t pid() const override { return pid_; }
  std::string host() const override { return host_; }
  Result<void> signal(int number) override;
  std::vector<std::string> last_lines() const override;
  void watch(Ended ended) override;
  void unwatch() override;

 private:
  ChildLife(net::Loop& loop, std::string host, std::filesystem::path log_file);
  void look();

  net::Loop& loop_;
  const std::string host_;
  const std::filesystem::path log_file_;
  std::uintmax_t log_start_ = 0;
  std::int64_t pid_ = 0;
  net::Watch watch_;
  Ended ended_;
  Mutex mutex_;
  ChildProcess child_;
};

}  // namespace teson::actor::detail
