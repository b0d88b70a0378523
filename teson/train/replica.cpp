#include "teson/train/replica.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"
#include "teson/data/prepare.h"
#include "teson/data/sampler.h"
#include "teson/job/presets.h"
#include "teson/model/language_model.h"
#include "teson/train/adamw.h"
#include "teson/train/flat_parameters.h"
#include "teson/train/gradient_norm.h"
#include "teson/train/schedule.h"

namespace teson::train {
namespace {

// The tail of a gradient buffer: the sum of losses, a flag, and padding up to the alignment of
// everything else.
constexpr std::size_t kTailElements = 16;

Failure from_torch(std::string_view what, const std::exception& error) {
  const std::string_view text = error.what();
  return fail(ErrorKind::failed, fmt::format("{}: {}", what, text.substr(0, text.find('\n'))));
}

at::Tensor tokens_of(data::Batch& batch) {
  return at::from_blob(
      batch.tokens.data(),
      {static_cast<std::int64_t>(batch.rows), static_cast<std::int64_t>(batch.width)}, at::kLong);
}

}  // namespace

struct Replica::Parts {
  job::Config config;
  data::PreparedCorpus corpus;
  data::Sampler sampler;
  std::optional<data::ValidationSet> validation;
  std::unique_ptr<model::LanguageModel> model;
  std::unique_ptr<FlatParameters> parameters;
  std::vector<float> adam_m;
  std::vector<float> adam_v;
  TrainingState state;

  float loss_and_gradient(data::Batch& batch) {
    const at::Tensor loss = model->loss_sum(tokens_of(batch));
    loss.backward();
    parameters->collect_gradients();
    return loss.item<float>();
  }
};

Replica::Replica(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Replica::~Replica() = default;

Result<std::unique_ptr<Replica>> Replica::create(const job::Config& config,
                                                 const std::filesystem::path& prepared) {
  TESON_TRY(auto corpus, data::open_prepared(prepared));
  TESON_TRY(const auto shape, job::model_shape(config, corpus.tokenizer().vocabulary_size()));
  const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
  TESON_TRY(auto sampler,
            data::Sampler::make(corpus.train(),
                                {.seed = config.train.seed,
                                 .lanes = number(config.batch.lanes),
                                 .microbatches = number(config.batch.microbatches),
                                 .rows = number(config.batch.sequences),
                                 .sequence_length = number(config.batch.sequence_length)}));
  std::optional<data::ValidationSet> validation;
  if (config.train.evaluate_batches > 0) {
    TESON_TRY(validation,
              data::ValidationSet::make(corpus.validation(), number(config.batch.sequences),
                                        number(config.batch.sequence_length),
                                        number(config.train.evaluate_batches)));
  }
  try {
    at::set_num_threads(config.train.threads);
    TESON_TRY(auto model, model::LanguageModel::create(shape, {.seed = config.train.seed}));
    const bool bf16 = config.train.compute == job::Compute::bf16;
    TESON_TRY(auto parameters, FlatParameters::create(*model, bf16 ? at::kBFloat16 : at::kFloat));
    const auto elements = static_cast<std::size_t>(parameters->elements());
    auto parts = std::unique_ptr<Parts>(new Parts{config,
                                                  std::move(corpus),
                                                  std::move(sampler),
                                                  std::move(validation),
                                                  std::move(model),
                                                  std::move(parameters),
                                                  std::vector<float>(elements),
                                                  std::vector<float>(elements),
                                                  {}});
    parts->state.arrays = {{parts->parameters->weights(), elements}, parts->adam_m, parts->adam_v};
    return std::unique_ptr<Replica>(new Replica(std::move(parts)));
  } catch (const std::exception& error) {
    return from_torch("building the model", error);
  }
}

const job::Config& Replica::config() const {
  return parts_->config;
}
const FlatLayout& Replica::layout() const {
  return parts_->parameters->layout();
}
std::size_t Replica::buffer_elements() const {
  return static_cast<std::size_t>(parts_->parameters->elements()) + kTailElements;
}
TrainingState& Replica::state() {
  return parts_->state;
}
void Replica::state_changed() {
  parts_->parameters->publish();
}

Result<Duration> Replica::warm_up(const Clock& clock) {
  const Instant began = clock.now();
  const auto& batch_config = parts_->config.batch;
  data::Batch batch;
  batch.rows = static_cast<std::size_t>(batch_config.sequences);
  batch.width = static_cast<std::size_t>(batch_config.sequence_length) + 1;
  CounterRandom random({parts_->config.train.seed});
  const std::uint64_t vocabulary = parts_->corpus.tokenizer().vocabulary_size();
  for (std::size_t i = 0; i < batch.rows * batch.width; ++i) {
    batch.tokens.push_back(static_cast<std::int64_t>(random.below(vocabulary)));
  }
  std::vector<float> scratch(buffer_elements());
  try {
    parts_->parameters->bind_gradients(scratch.data());
    parts_->loss_and_gradient(batch);
  } catch (const std::exception& error) {
    return from_torch("the first forward and backward pass", error);
  }
  return clock.now() - began;
}

Result<LaneSamples> Replica::compute_lane(int lane, float* buffer,
                                          const std::function<bool()>& go_on) {
  const auto step = static_cast<std::uint64_t>(parts_->state.step);
  std::vector<data::SampleId> ids;
  float loss = 0;
  try {
    parts_->parameters->bind_gradients(buffer);
    for (int microbatch = 0; microbatch < parts_->config.batch.microbatches; ++microbatch) {
      if (!go_on()) return fail(ErrorKind::aborted, "the lane was interrupted");
      TESON_TRY(auto batch, parts_->sampler.read(step, static_cast<std::uint32_t>(lane),
                                                 static_cast<std::uint32_t>(microbatch)));
      loss += parts_->loss_and_gradient(batch);
      ids.insert(ids.end(), batch.samples.begin(), batch.samples.end());
    }
  } catch (const std::exception& error) {
    return from_torch(fmt::format("lane {} of step {}", lane, step + 1), error);
  }
  buffer[parts_->parameters->elements()] = loss;
  return LaneSamples{static_cast<std::int64_t>(ids.size()), data::sample_hash(ids)};
}

LaneSamples Replica::planned_samples(std::int64_t step, int lane) const {
  std::vector<data::SampleId> ids;
  for (int microbatch = 0; microbatch < parts_->config.batch.microbatches; ++microbatch) {
    const auto some = parts_->sampler.samples_of(static_cast<std::uint64_t>(step),
                                                 static_cast<std::uint32_t>(lane),
                                                 static_cast<std::uint32_t>(microbatch));
    ids.insert(ids.end(), some.begin(), some.end());
  }
  return {static_cast<std::int64_t>(ids.size()), data::sample_hash(ids)};
}

double Replica::sum_of_squares(const float* sum) const {
  return square_sum(layout(), sum);
}
double Replica::loss_sum(const float* sum) const {
  return static_cast<double>(sum[parts_->parameters->elements()]);
}

void Replica::set_flag(float* buffer, bool value) const {
  buffer[parts_->parameters->elements() + 1] = value ? 1.0F : 0.0F;
}
bool Replica::any_flag(const float* sum) const {
  return sum[parts_->parameters->elements() + 1] > 0;
}

StepOutcome Replica::apply(const float* sum, double sum_of_squares, std::int64_t tokens) {
  TESON_CHECK(tokens > 0, tokens);
  auto& state = parts_->state;
  const auto& optimizer = parts_->config.optimizer;
  StepOutcome outcome;
  outcome.tokens = tokens;
  outcome.loss = loss_sum(sum) / static_cast<double>(tokens);
  outcome.gradient_norm = std::sqrt(sum_of_squares) / static_cast<double>(tokens);
  outcome.learning_rate = learning_rate(optimizer, state.step, parts_->config.train.steps);
  outcome.skipped = !std::isfinite(loss_sum(sum)) || !std::isfinite(sum_of_squares);
  ++state.step;
  state.tokens += tokens;
  if (outcome.skipped) {
    ++state.skipped_in_a_row;
    return outcome;
  }
  state.skipped_in_a_row = 0;
  ++state.updates;
  const double scale =
      clip_factor(outcome.gradient_norm, optimizer.clip_norm) / static_cast<double>(tokens);
  adamw_update(
      layout(),
      adamw_step(optimizer, outcome.learning_rate, state.updates, static_cast<float>(scale)),
      parts_->parameters->weights(), sum, parts_->adam_m.data(), parts_->adam_v.data());
  parts_->parameters->publish();
  return outcome;
}

int Replica::evaluation_batches() const {
  return parts_->validation ? static_cast<int>(parts_->validation->batches()) : 0;
}

Result<Replica::EvaluationSum> Replica::evaluate_batch(int batch) {
  TESON_CHECK(parts_->validation.has_value());
  TESON_TRY(auto read, parts_->validation->read(static_cast<std::uint32_t>(batch)));
  try {
    const at::NoGradGuard no_gradients;
    const double loss = parts_->model->loss_sum(tokens_of(read)).item<float>();
    return EvaluationSum{loss, static_cast<double>(read.rows * (read.width - 1))};
  } catch (const std::exception& error) {
    return from_torch(fmt::format("evaluating batch {}", batch), error);
  }
}

CheckpointMeta Replica::checkpoint_meta() const {
  const auto& state = parts_->state;
  CheckpointMeta meta;
  meta.step = static_cast<std::uint64_t>(state.step);
  meta.chain_hash = fmt::format("{:016x}", state.chain);
  meta.config_text = job::to_toml(parts_->config);
  meta.plan_hash = fmt::format("{:016x}", job::plan_hash(parts_->config));
  meta.tokenizer_hash = parts_->corpus.tokenizer().fingerprint();
  meta.seed = parts_->config.train.seed;
  meta.counters = {{"tokens", state.tokens},
                   {"updates", state.updates},
                   {"skipped_in_a_row", state.skipped_in_a_row}};
  for (const auto& entry : layout().entries) {
    meta.parameters.push_back({entry.name, static_cast<std::uint64_t>(entry.offset),
                               static_cast<std::uint64_t>(entry.elements), entry.shape});
  }
  return meta;
}

std::vector<CheckpointSection> Replica::checkpoint_sections() const {
  const auto elements = static_cast<std::size_t>(parts_->parameters->elements());
  return {float_section("weights", {parts_->parameters->weights(), elements}),
          float_section("adam_m", parts_->adam_m), float_section("adam_v", parts_->adam_v)};
}

namespace {

// A folder of checkpoints may be shared by mistake: the state of another run is never taken.
Result<void> check_same_run(const CheckpointReader& checkpoint, const job::Config& config) {
  const std::string name = fmt::format("'{}'", checkpoint.path().string());
  TESON_TRY(const auto theirs,
            job::parse_config(checkpoint.meta().config_text, name + ": its configuration"));
  const auto differences = job::config_difference(theirs, config);
  if (differences.empty()) return {};
  const auto& first = differences.front();
  return fail(ErrorKind::invalid,
              fmt::format("{} is of another run: {} is {} there and {} here; name another "
                          "checkpoint.dir or another run folder",
                          name, first.key, first.left, first.right));
}

Result<std::int64_t> counter_of(const CheckpointReader& checkpoint, const char* name) {
  const auto& counters = checkpoint.meta().counters;
  const auto found = counters.find(name);
  if (found != counters.end()) return found->second;
  return fail(ErrorKind::invalid,
              fmt::format("'{}' has no counter {}", checkpoint.path().string(), name));
}

Result<std::uint64_t> chain_of(const CheckpointReader& checkpoint) {
  const std::string& text = checkpoint.meta().chain_hash;
  std::uint64_t chain = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chain, 16);
  if (error == std::errc() && end == text.data() + text.size()) return chain;
  return fail(ErrorKind::invalid, fmt::format("'{}' has the chain hash '{}', expected 16 digits",
                                              checkpoint.path().string(), text));
}

}  // namespace

Result<void> Replica::load(const CheckpointReader& checkpoint) {
  const auto& meta = checkpoint.meta();
  TESON_TRY_VOID(check_same_run(checkpoint, parts_->config));
  const auto expected = checkpoint_meta();
  for (std::size_t i = 0; i < std::max(meta.parameters.size(), expected.parameters.size()); ++i) {
    if (i < meta.parameters.size() && i < expected.parameters.size() &&
        meta.parameters[i] == expected.parameters[i]) {
      continue;
    }
    const auto name = [i](const auto& list) {
      return i < list.size() ? list[i].name : std::string("none");
    };
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "'{}' is of another model: parameter {} is {} there and {} here, or of another shape",
            checkpoint.path().string(), i, name(meta.parameters), name(expected.parameters)));
  }
  if (meta.tokenizer_hash != expected.tokenizer_hash) {
    return fail(ErrorKind::invalid, fmt::format("'{}' was trained with another tokenizer; give its "
                                                "corpus, or begin in a new run folder",
                                                checkpoint.path().string()));
  }
  auto& state = parts_->state;
  const char* names[] = {"weights", "adam_m", "adam_v"};
  for (std::size_t i = 0; i < state.arrays.size(); ++i) {
    TESON_TRY_VOID(checkpoint.read_floats(names[i], state.arrays[i]));
  }
  state.step = static_cast<std::int64_t>(meta.step);
  TESON_TRY(state.chain, chain_of(checkpoint));
  TESON_TRY(state.tokens, counter_of(checkpoint, "tokens"));
  TESON_TRY(state.updates, counter_of(checkpoint, "updates"));
  TESON_TRY(state.skipped_in_a_row, counter_of(checkpoint, "skipped_in_a_row"));
  state_changed();
  return {};
}

std::string Replica::weights_sha256() const {
  std::vector<const FlatEntry*> entries;
  for (const auto& entry : layout().entries)
    entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  Sha256 sha;
  for (const auto* entry : entries) {
    sha.update(std::as_bytes(std::span(parts_->parameters->weights() + entry->offset,
                                       static_cast<std::size_t>(entry->elements))));
  }
  return sha.finish();
}

double Replica::unigram_entropy() const {
  return parts_->corpus.manifest().train_entropy;
}
const std::string& Replica::corpus_fingerprint() const {
  return parts_->corpus.fingerprint();
}

}  // namespace teson::train
