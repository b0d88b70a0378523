#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "teson/job/config.h"

namespace teson::apps {
namespace {

struct Arguments {
  bool explain = false;
  bool markdown = false;
  std::string file;
  std::vector<std::string> overrides;
};

int run(const Arguments& arguments) {
  if (arguments.markdown) {
    fmt::print("{}", job::configuration_page());
    return kDone;
  }
  if (arguments.explain) {
    const auto text = job::explain_config(arguments.file);
    if (!text) return report(text.error());
    fmt::print("{}", *text);
    return kDone;
  }
  const auto config = load_job(arguments.file, arguments.overrides);
  if (!config) return report(config.error());
  fmt::print("{}", job::to_toml(*config));
  return kDone;
}

}  // namespace

void add_config(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "config", "Check a configuration and print it in full, or explain every key");
  auto* file =
      command->add_option("file", arguments->file,
                          "A TOML file; without one, the defaults. With --explain: a key or table");
  add_overrides(*command, arguments->overrides);
  auto* explain = command->add_flag(
      "--explain", arguments->explain,
      "Print every key, or the one named: default, meaning, limits, and what a resume may change");
  auto* markdown = command->add_flag("--markdown", arguments->markdown,
                                     "Print the page docs/configuration.md; takes nothing else");
  explain->excludes("--set");
  markdown->excludes(explain)->excludes("--set")->excludes(file);
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
