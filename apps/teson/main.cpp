#include <algorithm>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "teson/base/log.h"
#include "teson/base/output.h"
#include "teson/job/nearest.h"
#include "teson/job/text_width.h"

namespace {

using namespace teson;

// CLI11 only says that a word was not expected.
bool is_unknown_command(const CLI::App& app, int argc, char** argv) {
  std::string word;
  for (int i = 1; i < argc && word.empty(); ++i) {
    if (argv[i][0] != '-') word = argv[i];
  }
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({}))
    names.push_back(command->get_name());
  if (word.empty() || std::find(names.begin(), names.end(), word) != names.end()) return false;
  const std::string near = job::nearest(word, names);
  apps::report({ErrorKind::invalid,
                fmt::format("there is no command '{}'; {}", job::printable(word),
                            near.empty() ? fmt::format("expected one of {}", fmt::join(names, ", "))
                                         : "the nearest is " + near)});
  return true;
}

int run(int argc, char** argv) {
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
  apps::add_host(app, status);
  apps::add_ps(app, status);
  apps::add_logs(app, status);
  apps::add_trace(app, status);
  if (is_unknown_command(app, argc, argv)) return apps::kUserError;
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

}  // namespace

int main(int argc, char** argv) {
  const int status = run(argc, argv);
  const auto written = finish_output();
  if (written || status != apps::kDone) return status;
  return apps::report(written.error());
}
