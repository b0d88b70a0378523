#include "teson/job/config_keys.h"

#include <array>
#include <limits>
#include <type_traits>

#include "teson/job/presets.h"

namespace teson::job {
namespace {

constexpr std::int64_t kStepsMax = 1'000'000'000'000;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Inner = T;
};

template <typename E>
std::vector<std::string> names_of() {
  return {std::string(to_string(static_cast<E>(0))), std::string(to_string(static_cast<E>(1)))};
}

template <typename T>
constexpr ValueKind kind_of() {
  if constexpr (IsOptional<T>::value) {
    return kind_of<typename IsOptional<T>::Inner>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return ValueKind::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    return ValueKind::whole;
  } else if constexpr (std::is_floating_point_v<T>) {
    return ValueKind::real;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return ValueKind::list;
  } else {
    return ValueKind::text;
  }
}

template <typename T>
ConfigValue to_value(const T& field) {
  if constexpr (IsOptional<T>::value) {
    return field ? to_value(*field) : ConfigValue{};
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<std::int64_t>(field);
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(to_string(field));
  } else {
    return field;
  }
}

template <typename T>
void from_value(T& field, const ConfigValue& value) {
  if constexpr (IsOptional<T>::value) {
    field.reset();
    if (std::holds_alternative<std::monostate>(value)) return;
    from_value(field.emplace(), value);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    field = static_cast<T>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_enum_v<T>) {
    const std::vector<std::string> names = names_of<T>();
    field = static_cast<T>(std::get<std::string>(value) == names[1] ? 1 : 0);
  } else {
    field = std::get<T>(value);
  }
}

/// A key over the field that `get` returns from a Config, const or not.
template <typename Get>
ConfigKey key(std::string name, KeyScope scope, ValueLimits limits, Get get,
              std::string explanation, std::string default_note = {}) {
  using Field = std::remove_cvref_t<decltype(get(std::declval<Config&>()))>;
  ConfigKey made;
  made.name = std::move(name);
  made.kind = kind_of<Field>();
  made.optional = IsOptional<Field>::value;
  made.limits = limits;
  if constexpr (std::is_enum_v<Field>) made.choices = names_of<Field>();
  made.scope = scope;
  made.explanation = std::move(explanation);
  made.default_note = std::move(default_note);
  made.read = [get](const Config& config) { return to_value(get(config)); };
  made.write = [get](Config& config, const ConfigValue& value) { from_value(get(config), value); };
  return made;
}

ValueLimits whole(std::int64_t low, std::int64_t high) {
  ValueLimits limits;
  limits.whole_low = low;
  limits.whole_high = high;
  return limits;
}
ValueLimits length(std::int64_t low, std::int64_t high) {
  return whole(low, high);
}
ValueLimits real(double low, double high) {
  return {low, high, false, false, 0, 0};
}
ValueLimits above(double low, double high) {
  return {low, high, true, false, 0, 0};
}
ValueLimits below(double low, double high) {
  return {low, high, false, true, 0, 0};
}
ValueLimits open(double low, double high) {
  return {low, high, true, true, 0, 0};
}
const ValueLimits kAny{};

// NOLINTNEXTLINE(bugprone-macro-parentheses): a member has none
#define FIELD(path) [](auto& config) -> auto& { return config.path; }

std::vector<ConfigKey> model_and_data_keys() {
  using enum KeyScope;
  ConfigKey preset = key("model.preset", identity, length(1, 64), FIELD(model.preset),
                         "The shape of the model, by name.");
  for (const Preset& known : presets())
    preset.choices.emplace_back(known.name);
  const std::string note = "the preset's";
  return {
      key("run.name", free, length(1, 64), FIELD(run.name),
          "Names the run in messages and, unless run.dir is set, its folder."),
      key("run.dir", free, length(0, 1024), FIELD(run.dir),
          "The run's folder: records, logs, checkpoints.", "runs/NAME"),
      preset,
      key("model.hidden", identity, whole(1, 1 << 20), FIELD(model.hidden),
          "Width of the residual stream.", note),
      key("model.layers", identity, whole(1, 4096), FIELD(model.layers), "Blocks.", note),
      key("model.heads", identity, whole(1, 1 << 16), FIELD(model.heads),
          "Query heads; they divide the width.", note),
      key("model.kv_heads", identity, whole(1, 1 << 16), FIELD(model.kv_heads),
          "Key and value heads; they divide the query heads.", note),
      key("model.feed_forward", identity, whole(1, 1 << 20), FIELD(model.feed_forward),
          "Inner width of SwiGLU.", note),
      key("model.rope_theta", identity, above(1, 1e12), FIELD(model.rope_theta),
          "Base of the rotary frequencies.", note),
      key("model.norm_epsilon", identity, open(0, 1), FIELD(model.norm_epsilon),
          "Added to the mean square in the norms.", note),
      key("model.tied_head", identity, kAny, FIELD(model.tied_head),
          "Whether the output projection is the embedding.", note),
      key("data.corpus", identity, length(1, 4096), FIELD(data.corpus),
          "Files and folders of them, relative to the working folder: .txt, .text and .md are "
          "text, "
          ".jsonl and .ndjson hold a document a line; other files and hidden ones in a folder are "
          "skipped. Or builtin:tiny, a small text inside the program."),
      key("data.text_field", identity, length(1, 256), FIELD(data.text_field),
          "The field of a JSON line that holds the text."),
      key("data.vocabulary", identity, whole(0, 1 << 20), FIELD(data.vocabulary),
          "Tokens of the byte-level BPE: 256 bytes, the end-of-text token, the rest merges; 0 "
          "means the preset's. Fewer where the corpus has nothing left to merge.",
          note),
      key("data.validation_fraction", identity, real(0, 0.5), FIELD(data.validation_fraction),
          "Part of the documents that is kept for validation, chosen by their hash."),
      key("data.prepared", free, length(0, 1024), FIELD(data.prepared),
          "Folder of the tokenizer and the token files, which several runs with the same corpus "
          "and [data] settings may share; with others it is refused.",
          "RUN FOLDER/data"),
  };
}

std::vector<ConfigKey> batch_and_train_keys() {
  using enum KeyScope;
  return {
      key("batch.lanes", identity, whole(1, 1 << 16), FIELD(batch.lanes),
          "Slices of the global batch; the arithmetic is defined over lanes, replicas only decide "
          "who computes which."),
      key("batch.microbatches", identity, whole(1, 1 << 16), FIELD(batch.microbatches),
          "Microbatches of a lane, accumulated in order."),
      key("batch.sequences", identity, whole(1, 1 << 16), FIELD(batch.sequences),
          "Sequences of a microbatch."),
      key("batch.sequence_length", identity, whole(2, 1 << 24), FIELD(batch.sequence_length),
          "Tokens of a sequence."),
      key("train.steps", plan, whole(1, kStepsMax), FIELD(train.steps),
          "Optimizer steps of the whole run."),
      key("train.seed", identity, whole(0, std::numeric_limits<std::int64_t>::max()),
          FIELD(train.seed), "Of the first weights and of the order of samples."),
      key("train.mode", identity, kAny, FIELD(train.mode),
          "exact: the same bits whatever fails and however many replicas there are; elastic: the "
          "average over the replicas present."),
      key("train.threads", identity, whole(1, 1024), FIELD(train.threads),
          "Threads of a worker's kernels; another number may round differently."),
      key("train.compute", identity, kAny, FIELD(train.compute),
          "Number type of forward and backward; weights, reduction and optimizer are fp32."),
      key("train.evaluate_every", plan, whole(0, kStepsMax), FIELD(train.evaluate_every),
          "Steps between evaluations on the validation split; 0: only after the last step."),
      key("train.evaluate_batches", plan, whole(0, 1 << 20), FIELD(train.evaluate_batches),
          "Microbatches of an evaluation; 0: never evaluate."),
      key("train.nan_limit", plan, whole(1, 1 << 20), FIELD(train.nan_limit),
          "Consecutive steps skipped because of a gradient that is not finite before the run "
          "stops."),
      key("train.generate_prompt", free, length(0, 4096), FIELD(train.generate_prompt),
          "Beginning of the text that is written after the last step."),
      key("train.generate_tokens", free, whole(0, 1 << 16), FIELD(train.generate_tokens),
          "Tokens to write after the last step; 0: none."),
  };
}

std::vector<ConfigKey> optimizer_keys() {
  using enum KeyScope;
  return {
      key("optimizer.learning_rate", identity, above(0, 1000), FIELD(optimizer.learning_rate),
          "The peak of the learning rate."),
      key("optimizer.beta1", identity, below(0, 1), FIELD(optimizer.beta1),
          "Decay of AdamW's first moment."),
      key("optimizer.beta2", identity, below(0, 1), FIELD(optimizer.beta2),
          "Decay of AdamW's second moment."),
      key("optimizer.epsilon", identity, above(0, 1), FIELD(optimizer.epsilon),
          "Added to the root of the second moment."),
      key("optimizer.weight_decay", identity, real(0, 100), FIELD(optimizer.weight_decay),
          "Of matrices; norms have none."),
      key("optimizer.clip_norm", identity, real(0, 1e9), FIELD(optimizer.clip_norm),
          "Largest norm of the whole gradient; 0: no clipping."),
      key("optimizer.schedule", identity, kAny, FIELD(optimizer.schedule),
          "What the learning rate does after the linear warm-up: half a cosine, or wsd, constant "
          "and "
          "then a linear decay."),
      key("optimizer.warmup_steps", identity, whole(0, kStepsMax), FIELD(optimizer.warmup_steps),
          "Steps of the linear warm-up."),
      key("optimizer.decay_steps", identity, whole(0, kStepsMax), FIELD(optimizer.decay_steps),
          "cosine: steps from the warm-up to the minimum, 0 for up to the last step; wsd: length "
          "of "
          "the decay, which ends at the last step, 0 for none."),
      key("optimizer.min_ratio", identity, real(0, 1), FIELD(optimizer.min_ratio),
          "Where the decay ends, as a part of the peak."),
  };
}

std::vector<ConfigKey> cluster_and_checkpoint_keys() {
  using enum KeyScope;
  return {
      key("cluster.replicas", free, whole(1, 4096), FIELD(cluster.replicas),
          "Replica groups; each holds the whole model, any of them may die."),
      key("cluster.shards", plan, whole(1, 4096), FIELD(cluster.shards),
          "Ranks that share one replica of the model; only 1 is available yet."),
      key("cluster.min_replicas", free, whole(1, 4096), FIELD(cluster.min_replicas),
          "Fewest replicas that may commit a step; with fewer, training waits."),
      key("cluster.lighthouse", free, length(0, 256), FIELD(cluster.lighthouse),
          "Address of a running lighthouse, tcp:HOST:PORT or unix:PATH; docs/running.md says how "
          "to "
          "start one.",
          "the run starts its own"),
      key("cluster.heartbeat_ms", free, whole(10, 60'000), FIELD(cluster.heartbeat_ms),
          "Distance of heartbeats; every other time bound is derived from it."),
      key("cluster.restarts_max", free, whole(0, 1'000'000), FIELD(cluster.restarts_max),
          "Restart budget: so many restarts of workers within the window, then the run stops."),
      key("cluster.restart_window_s", free, whole(1, 86'400), FIELD(cluster.restart_window_s),
          "Window of the restart budget, in seconds."),
      key("cluster.fault_tolerance", free, kAny, FIELD(cluster.fault_tolerance),
          "false: fixed membership, without quorum, vote and fencing; a failure ends the run."),
      key("cluster.grace_seconds", free, above(0, 3600), FIELD(cluster.grace_seconds),
          "What SIGTERM leaves for the running step and its checkpoint, in seconds; then all is "
          "killed."),
      key("checkpoint.every", plan, whole(0, kStepsMax), FIELD(checkpoint.every),
          "Steps between checkpoints; 0: only at the end and at SIGUSR1."),
      key("checkpoint.keep", free, whole(1, 1000), FIELD(checkpoint.keep),
          "The newest so many checkpoints stay."),
      key("checkpoint.dir", free, length(0, 1024), FIELD(checkpoint.dir),
          "Folder of the checkpoints.", "RUN FOLDER/checkpoints"),
  };
}

#undef FIELD

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (auto part : {model_and_data_keys(), batch_and_train_keys(), optimizer_keys(),
                      cluster_and_checkpoint_keys()}) {
      for (ConfigKey& made : part)
        all.push_back(std::move(made));
    }
    return all;
  }();
  return keys;
}

const std::vector<ConfigTable>& config_tables() {
  static const std::vector<ConfigTable> tables = {
      {"run", "Names and places."},
      {"model", "Architecture: Llama 3, a preset and changes to single numbers of it."},
      {"data", "Corpus and tokenizer."},
      {"batch", "The global batch: lanes × microbatches × sequences × sequence_length tokens."},
      {"train", "How long, how, and what is reported."},
      {"optimizer", "AdamW and its learning rate."},
      {"cluster", "Processes, and what happens when they fail."},
      {"checkpoint", "State on disk."},
  };
  return tables;
}

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& known : config_keys()) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const ConfigKey& known : config_keys())
    names.push_back(known.name);
  return names;
}

}  // namespace teson::job
