#include "teson/sim/run_apart.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/base/fd.h"
#include "teson/base/world.h"

namespace teson::sim {

namespace {

/// All that comes until the end of the stream, or nothing if that is not there by the deadline.
std::optional<std::string> read_all(int fd, Instant deadline) {
  std::string text;
  while (true) {
    std::array<pollfd, 1> fds{{{.fd = fd, .events = POLLIN, .revents = 0}}};
    const int ready = poll_until(fds, deadline);
    if (ready == 0 && now() >= deadline) return std::nullopt;
    if (ready <= 0) continue;
    std::array<char, 4096> part;
    const ssize_t got = ::read(fd, part.data(), part.size());
    if (got == 0) return text;
    if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
  }
}

[[noreturn]] void run_child(const std::function<std::string()>& body, int fd) {
  // One thread runs at a time: on one core the turn changes hands fastest.
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(::sched_getcpu(), &here);
  ::sched_setaffinity(0, sizeof(here), &here);
  const std::string text = body();
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + sent, text.size() - sent);
    if (wrote < 0 && errno != EINTR) break;
    if (wrote > 0) sent += static_cast<std::size_t>(wrote);
  }
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace

Result<std::string> run_apart(const std::function<std::string()>& body, Duration limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork", errno);
  if (pid == 0) run_child(body, writing.get());
  writing.reset();
  const auto text = read_all(reading.get(), now() + limit);
  if (!text) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) {
    return fail(ErrorKind::timed_out,
                fmt::format("a simulation has not ended within {:.0f} s", to_seconds(limit)));
  }
  if (WIFSIGNALED(status)) {
    return fail(ErrorKind::failed,
                fmt::format("a simulation was ended by signal {}", WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    return fail(ErrorKind::failed,
                fmt::format("a simulation has ended with exit code {}", WEXITSTATUS(status)));
  }
  return *text;
}

}  // namespace teson::sim
