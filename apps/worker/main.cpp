#include <csignal>
#include <cstdio>
#include <string_view>

#include <sys/prctl.h>
#include <unistd.h>

#include "apps/worker/verbs.h"

namespace {

// Loading libtorch takes a second in which the parent may die. Before any initializer of a library
// runs, the kernel is asked to end this process with it; actor::Proc::attach says more of this.
void follow_parent(int, char**, char** environment) {
  for (; *environment != nullptr; ++environment) {
    int fd = 0, parent = 0, signal = 0;
    if (std::sscanf(*environment, "TESON_PROC=%d:%d:%d:", &fd, &parent, &signal) != 3) continue;
    ::prctl(PR_SET_PDEATHSIG, signal);
    if (::getppid() != parent) ::_exit(1);
  }
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kFollowParent)(int, char**,
                                                                          char**) = follow_parent;

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // whoever started us may have ignored it
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const auto arguments = std::vector<std::string>(argv + std::min(argc, 2), argv + argc);
  if (verb == "rank") return teson::apps::run_rank(arguments);
  if (verb == "generate") return teson::apps::run_generate(arguments);
  std::fputs("teson-worker is started by teson (try `teson --help`).\n", stderr);
  return 2;
}
