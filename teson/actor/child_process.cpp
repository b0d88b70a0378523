#include "teson/actor/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
// glibc 2.36 forgets that this header is read by C++, too.
extern "C" {
#include <sys/pidfd.h>
}

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/file.h"

namespace teson::actor::detail {

namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes)
    result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (auto& text : strings)
    result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Owns what posix_spawn is told.
struct SpawnPlan {
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

void plan_attributes(posix_spawnattr_t& attributes) {
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const ChildSpec& spec, int socket) {
  Fd log;
  if (!spec.log_file.empty()) {
    TESON_TRY(log, open_file(spec.log_file, O_WRONLY | O_CREAT | O_APPEND));
  }
  // Where a descriptor must land there may already be one of those to be moved: take copies above
  // all places first.
  const Fd socket_copy(::fcntl(socket, F_DUPFD_CLOEXEC, child_socket_fd + 1));
  if (!socket_copy) return fail_errno("copying a descriptor for a child", errno);
  SpawnPlan plan;
  plan_attributes(plan.attributes);
  posix_spawn_file_actions_addopen(&plan.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (log) {
    log = Fd(::fcntl(log.get(), F_DUPFD_CLOEXEC, child_socket_fd + 1));
    if (!log) return fail_errno("copying a descriptor for a child", errno);
    posix_spawn_file_actions_adddup2(&plan.actions, log.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&plan.actions, log.get(), STDERR_FILENO);
  }
  posix_spawn_file_actions_adddup2(&plan.actions, socket_copy.get(), child_socket_fd);
  posix_spawn_file_actions_addclosefrom_np(&plan.actions, child_socket_fd + 1);
  if (!spec.working_folder.empty())
    posix_spawn_file_actions_addchdir_np(&plan.actions, spec.working_folder.c_str());

  std::vector<std::string> arguments{spec.program.string()};
  arguments.insert(arguments.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<std::string> environment = merged_environment(spec.environment);
  ChildProcess child;
  const int error =
      ::posix_spawn(&child.pid_, spec.program.c_str(), &plan.actions, &plan.attributes,
                    pointers(arguments).data(), pointers(environment).data());
  if (error != 0) return fail_errno(fmt::format("starting '{}'", spec.program.string()), error);
  child.reaped_ = false;
  child.pidfd_ = Fd(::pidfd_open(child.pid_, 0));
  if (!child.pidfd_) return fail_errno(fmt::format("watching process {}", child.pid_), errno);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(other.pid_),
      pidfd_(std::move(other.pidfd_)),
      reaped_(std::exchange(other.reaped_, true)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = other.pid_;
    pidfd_ = std::move(other.pidfd_);
    reaped_ = std::exchange(other.reaped_, true);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  end();
}

void ChildProcess::end() {
  if (reaped_) return;
  // By the descriptor: where others reap, the number may be somebody else's by now.
  ::pidfd_send_signal(pidfd_.get(), SIGKILL, nullptr, 0);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  (void)reap();
}

Result<void> ChildProcess::signal(int number) const {
  if (reaped_) return fail(ErrorKind::disconnected, fmt::format("process {} has ended", pid_));
  if (::pidfd_send_signal(pidfd_.get(), number, nullptr, 0) < 0) {
    if (errno == ESRCH)
      return fail(ErrorKind::disconnected, fmt::format("process {} has ended", pid_));
    return fail_errno(fmt::format("sending signal {} to process {}", number, pid_), errno);
  }
  return {};
}

std::optional<ExitStatus> ChildProcess::reap() {
  TESON_CHECK(!reaped_);
  siginfo_t info{};
  const auto status_gone = [this]() -> std::optional<ExitStatus> {
    if (errno == EINTR) return std::nullopt;
    reaped_ = true;
    return ExitStatus{.code = -1, .unknown = true};
  };
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) < 0)
    return status_gone();
  if (info.si_pid == 0) return std::nullopt;
  // Until it is reaped its number, and so its group's, belongs to no one else.
  ::kill(-pid_, SIGKILL);
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) < 0) return status_gone();
  reaped_ = true;
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status};
  return ExitStatus{
      .code = -1, .signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

}  // namespace teson::actor::detail
