#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "apps/teson/admin_client.h"
#include "apps/teson/commands.h"
#include "apps/teson/ps_text.h"

namespace teson::apps {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAnswerWait = 5s;
constexpr Duration kWatchInterval = 1s;

struct Arguments {
  std::string run;
  bool json = false;
  bool watch = false;
};

Result<std::string> look(const Arguments& arguments) {
  TESON_TRY(auto answer, ask_admin(arguments.run, R"({"what": "ps"})", kAnswerWait));
  if (arguments.json) return answer + "\n";
  return ps_text(answer);
}

int run(const Arguments& arguments) {
  const bool redraw = arguments.watch && !arguments.json && ::isatty(STDOUT_FILENO) != 0;
  bool seen = false;
  while (true) {
    const auto text = look(arguments);
    if (!text) {
      // Whoever watches has seen it end.
      if (!seen || text.error().kind != ErrorKind::disconnected) return report(text.error());
      tell(fmt::format("{}\n", text.error().message));
      return kDone;
    }
    fmt::print("{}{}", redraw ? "\x1b[H\x1b[2J" : "", *text);
    if (!arguments.watch) return kDone;
    if (!arguments.json && !redraw) fmt::print("\n");
    if (std::fflush(stdout) != 0) return kDone;
    seen = true;
    std::this_thread::sleep_for(kWatchInterval);
  }
}

}  // namespace

void add_ps(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "ps",
      "Show what a running run is doing: its hosts, processes and actors, with what waits in each "
      "mailbox, how many messages were handled, which handler runs and for how long, and the last "
      "failure");
  add_admin_run(*command, arguments->run);
  command->add_flag("--json", arguments->json,
                    "The whole snapshot as one line of JSON (docs/formats/admin.md)");
  command->add_flag("--watch", arguments->watch, "Again every second, until the run ends");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
