#include <charconv>
#include <csignal>
#include <string_view>

#include <sys/prctl.h>
#include <unistd.h>

#include "apps/worker/verbs.h"

namespace {

// Loading libtorch takes a second in which the parent may die. Before any initializer of a library
// runs, the kernel is asked to end this process with it; actor::Proc::attach says more of this.
void follow_parent(int, char**, char** environment) {
  for (; *environment != nullptr; ++environment) {
    std::string_view text = *environment;
    if (!text.starts_with("TESON_PROC=")) continue;
    text.remove_prefix(text.find('=') + 1);
    // fd:parent:signal:token
    int numbers[3] = {};
    for (int& number : numbers) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end == text.data() + text.size() || *end != ':') return;
      text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    }
    ::prctl(PR_SET_PDEATHSIG, numbers[2]);
    if (::getppid() != numbers[1]) ::_exit(1);
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
