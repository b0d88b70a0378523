#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "apps/teson/prepare_corpus.h"
#include "teson/job/config.h"

namespace teson::apps {
namespace {

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
};

int run(const Arguments& arguments) {
  const auto config = load_job(arguments.file, arguments.overrides);
  if (!config) return report(config.error());
  const auto prepared = prepare_corpus(*config, job::prepared_dir(*config), {});
  if (!prepared) return report(prepared.error());
  fmt::print("{}", *prepared);
  return kDone;
}

}  // namespace

void add_prepare(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "prepare", "Make tokenizer and token shards of a configuration's corpus; train does it too");
  command->add_option("file", arguments->file, "A TOML file")->required();
  add_overrides(*command, arguments->overrides);
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
