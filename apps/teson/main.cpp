#include <csignal>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

#include "apps/teson/commands.h"
#include "teson/base/log.h"

int main(int argc, char** argv) {
  using namespace teson;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // whoever started us may have ignored it
  CLI::App app{
      "Trains large language models on machines that fail, and loses nothing when they do.\n"
      "Exit status: 0 done, 1 failed, 2 a mistake in what was asked for, 130 interrupted.",
      "teson"};
  app.set_version_flag("--version", TESON_VERSION);
  app.require_subcommand(1);
  bool verbose = false;
  app.add_flag("-v,--verbose", verbose,
               "Log what happens inside: to standard error, and of the processes of a run to "
               "logs/ in its folder");
  app.parse_complete_callback(
      [&] { log_start("teson", verbose ? LogLevel::info : LogLevel::warning); });

  int status = apps::kDone;
  apps::add_train(app, status);
  apps::add_generate(app, status);
  apps::add_prepare(app, status);
  apps::add_config(app, status);
  apps::add_lighthouse(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? apps::kDone : apps::kUserError;
  } catch (const std::exception& error) {
    // Standard output that is closed or full; no memory, or no thread.
    return apps::report({ErrorKind::failed, error.what() + apps::memory_limit_advice()});
  }
  return status;
}
