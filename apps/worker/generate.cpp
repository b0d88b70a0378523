#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/worker/verbs.h"
#include "teson/base/error.h"
#include "teson/base/output.h"
#include "teson/checkpoint/checkpoint.h"
#include "teson/checkpoint/disk.h"
#include "teson/checkpoint/manifest.h"
#include "teson/data/prepare.h"
#include "teson/job/config.h"
#include "teson/job/run_folder.h"
#include "teson/model/generation.h"
#include "teson/model/language_model.h"
#include "teson/train/flat_parameters.h"

namespace teson::apps {
namespace {
namespace fs = std::filesystem;

// Where the checkpoints of a run lie; a folder that is no run's is taken as that place itself.
Result<fs::path> checkpoints_of(const fs::path& folder) {
  std::error_code code;
  const job::RunPaths run{folder};
  if (!fs::exists(run.config(), code)) return folder;
  TESON_TRY(auto config, job::load_config(run.config()));
  config.run.dir = folder.string();
  return job::checkpoint_dir(config);
}

// A checkpoint's own folder, or the newest whole one of a run.
Result<CheckpointReader> open_checkpoint(const fs::path& folder) {
  std::error_code code;
  if (!fs::exists(folder, code))
    return fail(ErrorKind::invalid, fmt::format("there is no '{}'", folder.string()));
  if (fs::exists(folder / manifest_file_name, code)) return CheckpointReader::open(folder);
  TESON_TRY(const auto place, checkpoints_of(folder));
  SystemDisk disk;
  const CheckpointStore store(place, disk);
  TESON_TRY(auto newest, store.newest_complete());
  for (const auto& skipped : newest.skipped) {
    fmt::print(stderr, "teson: passed over '{}': {}\n", skipped.path.string(), skipped.reason);
  }
  if (!newest.checkpoint) {
    return fail(
        ErrorKind::invalid,
        fmt::format("'{}' holds no complete checkpoint; a run writes one when it ends, and each "
                    "checkpoint.every steps",
                    place.string()));
  }
  return std::move(*newest.checkpoint);
}

// The tokenizer lies with the prepared data: where the caller says, in the run's folder, or where
// the configuration had it.
Result<data::Tokenizer> find_tokenizer(const CheckpointReader& checkpoint,
                                       const job::Config& config, const std::string& given) {
  const fs::path run = checkpoint.path().parent_path().parent_path();
  const auto candidates = given.empty()
                              ? std::vector<fs::path>{run / "data", job::prepared_dir(config)}
                              : std::vector<fs::path>{given};
  std::string tried;
  for (const auto& folder : candidates) {
    auto prepared = data::open_prepared(folder);
    if (prepared && prepared->tokenizer().fingerprint() == checkpoint.meta().tokenizer_hash)
      return prepared->tokenizer();
    tried += fmt::format("\n  '{}': {}", folder.string(),
                         prepared ? "another tokenizer" : prepared.error().message);
  }
  return fail(
      ErrorKind::invalid,
      "no tokenizer of this checkpoint was found; name its prepared folder with --data. Tried:" +
          tried);
}

Result<void> generate(const std::vector<std::string>& arguments) {
  TESON_TRY(const auto checkpoint, open_checkpoint(arguments[0]));
  TESON_TRY(const auto config,
            job::parse_config(checkpoint.meta().config_text, "the checkpoint's configuration"));
  TESON_TRY(const auto tokenizer, find_tokenizer(checkpoint, config, arguments[2]));
  TESON_TRY(const auto shape, job::model_shape(config, tokenizer.vocabulary_size()));
  TESON_TRY(auto model, model::LanguageModel::create(shape));
  TESON_TRY(auto parameters, train::FlatParameters::create(*model));
  TESON_TRY_VOID(checkpoint.read_floats(
      "weights", {parameters->weights(), static_cast<std::size_t>(parameters->elements())}));
  parameters->publish();

  std::vector<std::int64_t> prompt{static_cast<std::int64_t>(tokenizer.end_of_text())};
  for (const auto id : tokenizer.encode(arguments[1]))
    prompt.push_back(static_cast<std::int64_t>(id));
  model::GenerationOptions options;
  options.tokens_max = std::stoll(arguments[3]);
  options.sampling.temperature = std::stod(arguments[4]);
  options.sampling.top_p = std::stod(arguments[5]);
  options.sampling.top_k = std::stoll(arguments[6]);
  options.seed = std::stoull(arguments[7]);
  options.end_token = static_cast<std::int64_t>(tokenizer.end_of_text());
  fmt::print("{}", arguments[1]);
  TESON_TRY_VOID(model::generate(*model, prompt, options, [&](std::int64_t token) {
    if (token != options.end_token)
      fmt::print("{}", tokenizer.bytes_of(static_cast<data::TokenId>(token)));
    std::fflush(stdout);
    return true;
  }));
  fmt::print("\n");
  return {};
}

}  // namespace

int run_generate(const std::vector<std::string>& arguments) {
  if (arguments.size() != 8) {
    fmt::print(stderr, "teson-worker generate is started by `teson generate`.\n");
    return 2;
  }
  auto done = generate(arguments);
  if (done) done = finish_output();
  if (!done) {
    fmt::print(stderr, "teson: {}\n", done.error().message);
    return done.error().kind == ErrorKind::invalid ? 2 : 1;
  }
  return 0;
}

}  // namespace teson::apps
