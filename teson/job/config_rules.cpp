#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "teson/job/config_keys.h"
#include "teson/job/presets.h"
#include "teson/net/address.h"

namespace teson::job {
namespace {

constexpr double kTokensMax = 4e18;  // of a whole run, so that counts fit 64 bits
constexpr int kVocabularyMin = 257;

using Problems = std::vector<ConfigProblem>;

void check_names(const Config& config, Problems& out) {
  const std::string& name = config.run.name;
  if (name == "." || name == ".." || name.find('/') != std::string::npos) {
    out.push_back({{"run.name"}, fmt::format("expected a name without '/', found \"{}\"", name)});
  }
}

void check_corpus(const Config& config, Problems& out) {
  std::set<std::string> seen;
  for (const std::string& entry : config.data.corpus) {
    if (!seen.insert(entry).second) {
      out.push_back({{"data.corpus"},
                     fmt::format("\"{}\" occurs twice; each sample would count double", entry)});
      return;
    }
    if (entry.rfind("builtin:", 0) != 0) continue;
    if (entry != "builtin:tiny") {
      out.push_back(
          {{"data.corpus"},
           fmt::format("expected builtin:tiny, the only text inside the program, found \"{}\"",
                       entry)});
      return;
    }
    if (config.data.corpus.size() > 1) {
      out.push_back({{"data.corpus"}, "expected builtin:tiny alone or files, found both"});
      return;
    }
  }
}

// The keys that a message about a shape names, those that change the preset first.
std::vector<std::string> keys_of(const Config& config, const std::string& message) {
  std::vector<std::string> given, others;
  for (const ConfigKey& key : config_keys()) {
    if (message.find(key.name) == std::string::npos) continue;
    const bool is_given = key.optional && !std::holds_alternative<std::monostate>(key.read(config));
    (is_given ? given : others).push_back(key.name);
  }
  others.push_back("model.preset");
  given.insert(given.end(), others.begin(), others.end());
  return given;
}

void check_model(const Config& config, Problems& out) {
  if (config.data.vocabulary != 0 && config.data.vocabulary < kVocabularyMin) {
    out.push_back(
        {{"data.vocabulary"},
         fmt::format("expected at least {} (256 bytes and the end-of-text token) or 0 for "
                     "the preset's, found {}",
                     kVocabularyMin, config.data.vocabulary)});
    return;
  }
  if (const Result<ModelShape> shape = model_shape(config); !shape) {
    out.push_back({keys_of(config, shape.error().message), shape.error().message});
  }
}

void check_sizes(const Config& config, Problems& out) {
  const double step_tokens = static_cast<double>(config.batch.lanes) * config.batch.microbatches *
                             config.batch.sequences * config.batch.sequence_length;
  if (step_tokens * static_cast<double>(config.train.steps) > kTokensMax) {
    out.push_back(
        {{"train.steps", "batch.lanes", "batch.microbatches", "batch.sequences",
          "batch.sequence_length"},
         fmt::format("the run would train on {:.3g} tokens, more than the {:.3g} that can be "
                     "counted; lower train.steps or [batch]",
                     step_tokens * static_cast<double>(config.train.steps), kTokensMax)});
  }
  if (config.data.validation_fraction == 0 && config.train.evaluate_batches > 0) {
    out.push_back({{"data.validation_fraction", "train.evaluate_batches"},
                   "is 0, so there is nothing to evaluate on; raise it, or set "
                   "train.evaluate_batches = 0"});
  }
}

void check_optimizer(const Config& config, Problems& out) {
  const OptimizerSection& optimizer = config.optimizer;
  if (optimizer.warmup_steps + optimizer.decay_steps > config.train.steps) {
    out.push_back(
        {{optimizer.decay_steps > 0 ? "optimizer.decay_steps" : "optimizer.warmup_steps",
          "optimizer.warmup_steps", "train.steps"},
         fmt::format("expected warm-up and decay within train.steps = {}, found {} + {} steps",
                     config.train.steps, optimizer.warmup_steps, optimizer.decay_steps)});
  }
}

void check_cluster(const Config& config, Problems& out) {
  const ClusterSection& cluster = config.cluster;
  if (cluster.shards != 1) {
    out.push_back(
        {{"cluster.shards"},
         fmt::format("expected 1, found {}: splitting a replica over several ranks is not "
                     "available yet",
                     cluster.shards)});
  }
  if (config.batch.lanes < cluster.replicas) {
    out.push_back({{"batch.lanes", "cluster.replicas"},
                   fmt::format("expected at least one lane a replica, found {} lanes for "
                               "cluster.replicas = {}",
                               config.batch.lanes, cluster.replicas)});
  }
  if (cluster.min_replicas > cluster.replicas) {
    out.push_back({{"cluster.min_replicas", "cluster.replicas"},
                   fmt::format("expected at most cluster.replicas = {}, found {}", cluster.replicas,
                               cluster.min_replicas)});
  }
  if (!cluster.lighthouse.empty()) {
    if (const auto address = net::Address::parse(cluster.lighthouse); !address) {
      out.push_back({{"cluster.lighthouse"}, address.error().message});
    }
  }
}

}  // namespace

std::string ConfigProblem::text() const {
  if (message.starts_with(keys.front())) return message;
  return fmt::format("{}: {}", keys.front(), message);
}

std::vector<ConfigProblem> check_rules(const Config& config) {
  Problems problems;
  check_names(config, problems);
  check_corpus(config, problems);
  check_model(config, problems);
  check_sizes(config, problems);
  check_optimizer(config, problems);
  check_cluster(config, problems);
  return problems;
}

void resolve(Config& config) {
  if (config.data.vocabulary != 0) return;
  if (const auto shape = preset_shape(config.model.preset)) {
    config.data.vocabulary = static_cast<int>(shape->vocabulary);
  }
}

Result<void> validate_config(const Config& config) {
  std::string message;
  for (const ConfigKey& key : config_keys()) {
    const ConfigValue value = key.read(config);
    if (check_value(key, value)) continue;
    message += fmt::format("{}{}: expected {}, found {}", message.empty() ? "" : "\n", key.name,
                           expected_of(key), found_text(value));
  }
  if (message.empty()) {
    for (const ConfigProblem& problem : check_rules(config)) {
      message += (message.empty() ? "" : "\n") + problem.text();
    }
  }
  if (!message.empty()) return fail(ErrorKind::invalid, std::move(message));
  return {};
}

Result<ModelShape> model_shape(const Config& config, std::optional<std::uint64_t> vocabulary) {
  TESON_TRY(ModelShape shape, preset_shape(config.model.preset));
  const ModelSection& model = config.model;
  if (vocabulary) {
    shape.vocabulary = static_cast<std::int64_t>(*vocabulary);
  } else if (config.data.vocabulary != 0) {
    shape.vocabulary = config.data.vocabulary;
  }
  shape.layers = model.layers.value_or(shape.layers);
  shape.dimension = model.hidden.value_or(shape.dimension);
  shape.heads = model.heads.value_or(shape.heads);
  shape.kv_heads = model.kv_heads.value_or(shape.kv_heads);
  shape.feed_forward = model.feed_forward.value_or(shape.feed_forward);
  shape.context_length = std::max<std::int64_t>(shape.context_length, config.batch.sequence_length);
  shape.rope_theta = model.rope_theta.value_or(shape.rope_theta);
  shape.norm_epsilon = model.norm_epsilon.value_or(shape.norm_epsilon);
  shape.tied_head = model.tied_head.value_or(shape.tied_head);
  TESON_TRY_VOID(validate(shape));
  return shape;
}

std::filesystem::path run_dir(const Config& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  return std::filesystem::path("runs") / config.run.name;
}

std::filesystem::path checkpoint_dir(const Config& config) {
  if (!config.checkpoint.dir.empty()) return config.checkpoint.dir;
  return run_dir(config) / "checkpoints";
}

std::filesystem::path prepared_dir(const Config& config) {
  if (!config.data.prepared.empty()) return config.data.prepared;
  return run_dir(config) / "data";
}

}  // namespace teson::job
