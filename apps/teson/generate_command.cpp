#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "apps/teson/number_range.h"

namespace teson::apps {
namespace {

struct Arguments {
  std::string checkpoint;
  std::string prompt;
  std::string data;
  int tokens = 100;
  double temperature = 0.8;
  double top_p = 0.95;
  int top_k = 0;
  std::uint64_t seed = 1;
};

int run(const Arguments& arguments) {
  std::error_code code;
  if (!std::filesystem::is_directory(arguments.checkpoint, code)) {
    return report({ErrorKind::invalid,
                   fmt::format("'{}' is no folder; give a run's folder or one of its checkpoints/",
                               arguments.checkpoint)});
  }
  return report(
      exec_worker({"generate", arguments.checkpoint, arguments.prompt, arguments.data,
                   fmt::format("{}", arguments.tokens), fmt::format("{}", arguments.temperature),
                   fmt::format("{}", arguments.top_p), fmt::format("{}", arguments.top_k),
                   fmt::format("{}", arguments.seed)}));
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("generate", "Continue a text with a trained model");
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "A run's folder (its newest checkpoint) or a checkpoint's")
      ->required();
  command->add_option("--prompt", arguments->prompt,
                      "The text to continue; empty begins a new document");
  command->add_option("--data", arguments->data,
                      "The prepared data folder with the tokenizer; default: the run's own");
  command->add_option("--tokens", arguments->tokens, "New tokens at most")
      ->check(number_from(1, 100'000))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->temperature, "0 takes the likeliest token each time")
      ->check(number_from(0.0, 10.0))
      ->capture_default_str();
  command
      ->add_option("--top-p", arguments->top_p,
                   "Draw from the likeliest tokens that hold this probability")
      ->check(CLI::Validator(
          [](std::string& text) {
            double value = 0;
            const bool fits = CLI::detail::lexical_cast(text, value) && value > 0 && value <= 1;
            return fits ? std::string() : fmt::format("expected above 0 to 1, found {}", text);
          },
          "above 0 to 1"))
      ->capture_default_str();
  command->add_option("--top-k", arguments->top_k, "Draw from so many likeliest tokens; 0: all")
      ->check(number_from(0, 1'000'000))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Same seed, same text")->capture_default_str();
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
