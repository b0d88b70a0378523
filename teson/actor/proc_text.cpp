#include "teson/actor/proc_text.h"

#include <fmt/format.h>
#include <signal.h>

#include "teson/actor/proc_options.h"

namespace teson::actor {

namespace detail {

std::string process_text(std::size_t rank, pid_t pid, const std::string& host,
                         const std::string& mesh) {
  return fmt::format("rank {} (pid {}, host '{}') of mesh '{}'", rank, pid, host, mesh);
}

std::string log_text(const std::vector<std::string>& last_lines) {
  std::string text = last_lines.empty() ? "" : "; last lines of its log:";
  for (const auto& line : last_lines)
    text += "\n  " + line;
  return text;
}

}  // namespace detail

std::string ProcExit::describe(const std::string& mesh) const {
  std::string text = detail::process_text(rank, pid, host, mesh);
  if (signal != 0) {
    const char* name = ::sigabbrev_np(signal);
    text += fmt::format(" was ended by signal {} (SIG{}){}", signal, name == nullptr ? "?" : name,
                        core_dumped ? ", core dumped" : "");
  } else if (exit_code < 0 && cause.empty()) {
    text +=
        " has ended; how is not known (SIGCHLD is ignored, or something else waits for children)";
  } else if (exit_code < 0) {
    text += " is lost";
  } else {
    text += fmt::format(" has ended with exit code {}", exit_code);
  }
  if (!cause.empty()) text += "; " + cause;
  return text + detail::log_text(last_lines);
}

}  // namespace teson::actor
