#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/teson/admin_client.h"
#include "apps/teson/commands.h"
#include "apps/teson/number_range.h"
#include "teson/base/file.h"

namespace teson::apps {
namespace {

/// For what the trace takes beside its time: telling the processes, gathering, sending.
constexpr double kExtraSeconds = 30;

struct Arguments {
  std::string run;
  double seconds = 5;
  std::string output = "trace.json";
};

/// What was written, for people. Found by the text of the slices: a trace may be large.
std::string describe(std::string_view trace) {
  std::size_t handlers = 0;
  constexpr std::string_view mark = R"("cat":"handler")";
  for (auto at = trace.find(mark); at != std::string_view::npos; at = trace.find(mark, at + 1))
    ++handlers;
  return fmt::format("{} message{} handled", handlers, handlers == 1 ? "" : "s");
}

int run(const Arguments& arguments) {
  const auto request = nlohmann::json{{"what", "trace"}, {"seconds", arguments.seconds}}.dump();
  const auto wait = std::chrono::duration<double>(arguments.seconds + kExtraSeconds);
  const auto trace = ask_admin(arguments.run, request, std::chrono::duration_cast<Duration>(wait));
  if (!trace) return report(trace.error());
  if (arguments.output == "-") {
    fmt::print("{}\n", *trace);
    return kDone;
  }
  if (const auto written = write_file_atomic(arguments.output, *trace + "\n"); !written)
    return report(written.error());
  fmt::print("wrote '{}': {} in {:g} s; open it at https://ui.perfetto.dev\n", arguments.output,
             describe(*trace), arguments.seconds);
  return kDone;
}

}  // namespace

void add_trace(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "trace",
      "Record the messages between the processes of a running run, and write them as a Chrome "
      "trace, which https://ui.perfetto.dev shows: a process each, a thread an actor, a slice a "
      "handler, an arrow a message");
  add_admin_run(*command, arguments->run);
  command->add_option("--seconds", arguments->seconds, "How long")
      ->check(number_from(0.001, 60.0))
      ->capture_default_str();
  command->add_option("-o,--output", arguments->output, "The file to write; - is standard output")
      ->capture_default_str();
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
