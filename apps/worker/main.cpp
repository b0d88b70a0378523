#include <csignal>
#include <cstdio>
#include <string_view>

#include "apps/worker/verbs.h"

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
