#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::actor::detail {

struct ChildSpec {
  std::filesystem::path program;
  std::vector<std::string> arguments;              ///< without argv[0]
  std::map<std::string, std::string> environment;  ///< added to this process's own
  std::filesystem::path log_file;        ///< standard output and error, appended; empty: inherited
  std::filesystem::path working_folder;  ///< empty: this process's own
};

/// How a process ended.
struct ExitStatus {
  int code = 0;    ///< of exit; -1 if a signal ended it, or if nobody knows
  int signal = 0;  ///< 0: none
  bool core_dumped = false;
  bool unknown = false;  ///< somebody else took the status, or nobody wanted it (SIGCHLD ignored)
};

/// One started process, in its own process group, with no descriptor of ours but `socket`, as its
/// descriptor `child_socket_fd`. Its parent is the thread that calls start. The destructor kills
/// and reaps what still runs, with its group.
class ChildProcess {
 public:
  static constexpr int child_socket_fd = 3;

  /// Errors: `failed`, naming program and cause.
  static Result<ChildProcess> start(const ChildSpec& spec, int socket);
  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  /// Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }
  /// To the process alone, never to another that has got its number. `disconnected` if it has
  /// ended.
  Result<void> signal(int number) const;
  /// How it ended, once it has; kills what is left of its group, then gives its number back to the
  /// system.
  std::optional<ExitStatus> reap();

 private:
  void end();

  pid_t pid_ = 0;
  Fd pidfd_;
  bool reaped_ = true;
};

}  // namespace teson::actor::detail
