#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/job/model_shape.h"

namespace teson::job {

/// What a job is: one plain struct per table of the TOML file, with the defaults. Every key is
/// described once, in config_keys.cpp; parsing, `--set`, `--explain`, validation and
/// docs/configuration.md follow from that table. A Config that came out of load_config or
/// parse_config is valid; one filled by hand is checked by validate_config.

struct RunSection {
  std::string name = "run";
  std::string dir;  ///< empty: runs/<name>
};

/// The numbers that are set replace the preset's; their meaning is ModelShape's. The vocabulary is
/// data.vocabulary.
struct ModelSection {
  std::string preset = "tiny";
  std::optional<std::int64_t> layers, hidden, heads, kv_heads, feed_forward;
  std::optional<double> norm_epsilon, rope_theta;
  std::optional<bool> tied_head;
};

struct DataSection {
  /// Files and folders of them (data/corpus.h), relative to the working folder; or the single entry
  /// "builtin:tiny".
  std::vector<std::string> corpus = {"builtin:tiny"};
  std::string text_field = "text";  ///< of JSON lines
  /// Tokens of the byte-level BPE, 256 bytes and the end-of-text token included. 0 means the
  /// preset's; load_config and parse_config fill that number in.
  int vocabulary = 0;
  double validation_fraction = 0.05;
  std::string prepared;  ///< folder of tokenizer and token shards; empty: <run folder>/data
};

/// The global batch of a step is lanes × microbatches × sequences × sequence_length tokens.
struct BatchSection {
  int lanes = 4;
  int microbatches = 1;  ///< per lane, accumulated in order
  int sequences = 8;     ///< rows of a microbatch
  int sequence_length = 128;
};

enum class Mode : std::uint8_t { exact, elastic };
enum class Compute : std::uint8_t { fp32, bf16 };
enum class ScheduleKind : std::uint8_t { cosine, wsd };

struct TrainSection {
  std::int64_t steps = 100;
  std::uint64_t seed = 1;  ///< at most 2^63 - 1, the largest number TOML can write
  Mode mode = Mode::exact;
  int threads = 1;  ///< a worker's, for kernels
  Compute compute = Compute::fp32;
  std::int64_t evaluate_every = 0;  ///< steps; 0: only after the last one
  int evaluate_batches = 8;         ///< microbatches of the validation split; 0: never evaluate
  int nan_limit = 10;  ///< consecutive steps skipped for a non-finite gradient before the run stops
  std::string generate_prompt;
  int generate_tokens = 0;  ///< written after the last step; 0: none
};

/// AdamW (Loshchilov and Hutter, 2019), clipping by the global norm, linear warm-up.
struct OptimizerSection {
  double learning_rate = 1e-3;  ///< the peak
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  ///< 0: no clipping
  ScheduleKind schedule = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  /// cosine: steps from the end of the warm-up to the minimum, 0 means up to the last step.
  /// wsd (warm-up, stable, decay): length of the final linear decay, which ends at the last step; 0
  /// means none.
  std::int64_t decay_steps = 0;
  double min_ratio = 0.1;  ///< of the peak, reached at the end of the decay
};

struct ClusterSection {
  int replicas = 2;        ///< R, replica groups
  int shards = 1;          ///< S, ranks of a group; only 1 is available
  int min_replicas = 1;    ///< the least that may commit a step
  std::string lighthouse;  ///< address of a running one; empty: the controller starts its own
  int heartbeat_ms = 100;
  int restarts_max = 1000;  ///< restart budget: so many within restart_window_s, then the run stops
  int restart_window_s = 3600;
  bool fault_tolerance =
      true;  ///< false: fixed membership, no quorum, no vote, no fencing; a failure ends the run
  double grace_seconds = 10;  ///< from SIGTERM to the end of all, at most
};

struct CheckpointSection {
  std::int64_t every = 0;  ///< steps; 0: only at the end and at SIGUSR1
  int keep = 2;            ///< the newest so many stay
  std::string dir;         ///< empty: <run folder>/checkpoints
};

struct Config {
  RunSection run;
  ModelSection model;
  DataSection data;
  BatchSection batch;
  TrainSection train;
  OptimizerSection optimizer;
  ClusterSection cluster;
  CheckpointSection checkpoint;
};

std::string_view to_string(Mode mode);          ///< "exact"
std::string_view to_string(Compute compute);    ///< "fp32"
std::string_view to_string(ScheduleKind kind);  ///< "wsd"

/// Reads a TOML file of at most 1 MiB, then applies the overrides in order; each is "key=value" as
/// after `--set`: a TOML value, text may go without quotes. An empty path means defaults and
/// overrides only. Errors are `invalid`; the message has one line per problem, the first 10, each
/// "FILE:LINE:COLUMN: key: expected …, found …", an unknown key with the nearest known one.
Result<Config> load_config(const std::filesystem::path& path,
                           const std::vector<std::string>& overrides = {});
/// The same for text; `name` stands in for the file's name in messages.
Result<Config> parse_config(std::string_view text, std::string_view name,
                            const std::vector<std::string>& overrides = {});
/// Limits of every key and the rules between keys, for a Config filled by hand.
Result<void> validate_config(const Config& config);

/// Every key, grouped by table: default, one sentence, type and limits, what a resume may do with
/// it. What `teson config --explain` prints. With `key` (a dotted key or a table's name) only that part; `invalid`, naming the
/// nearest, if there is none.
Result<std::string> explain_config(std::string_view key = {});
/// The same as a Markdown page: docs/configuration.md.
std::string configuration_page();

/// Canonical form: every set key, in the order of the table. parse_config(to_toml(c)) gives c
/// again, to the bit.
std::string to_toml(const Config& config);

/// A key whose value differs, with both values as TOML.
struct ConfigDifference {
  std::string key;
  std::string left, right;
};
/// The keys whose change makes a run another run: model, data (not data.prepared), batch,
/// optimizer, and seed, mode, threads and compute of [train]. Not: names, folders, [cluster]
/// (replicas and min_replicas included), [checkpoint], evaluation, logging, generation, nan_limit.
/// train.steps counts only where it moves the learning rate: cosine with decay_steps = 0, wsd with
/// decay_steps > 0; otherwise a run may be extended.
std::vector<ConfigDifference> config_difference(const Config& a, const Config& b);

/// Digest of what all workers of a run must agree on: what config_difference looks at, and
/// train.steps, evaluation, nan_limit, checkpoint.every and cluster.shards. The program adds its
/// own parts (kernels, libraries) to it.
std::uint64_t plan_hash(const Config& config);

/// The preset with its overrides and the vocabulary: that of the tokenizer at hand, else
/// data.vocabulary, else the preset's. Its context is stretched to batch.sequence_length if need
/// be. `invalid` names the field; of a valid Config and without `vocabulary` it is valid.
Result<ModelShape> model_shape(const Config& config,
                               std::optional<std::uint64_t> vocabulary = std::nullopt);

/// Folders with their defaults filled in.
std::filesystem::path run_dir(const Config& config);
std::filesystem::path checkpoint_dir(const Config& config);
std::filesystem::path prepared_dir(const Config& config);

/// Tokens that one committed step has trained on.
inline std::int64_t tokens_per_step(const Config& config) {
  return std::int64_t{config.batch.lanes} * config.batch.microbatches * config.batch.sequences *
         config.batch.sequence_length;
}
/// Sequences of one step, the unit of the sample ledger.
inline std::int64_t samples_per_step(const Config& config) {
  return std::int64_t{config.batch.lanes} * config.batch.microbatches * config.batch.sequences;
}

}  // namespace teson::job
