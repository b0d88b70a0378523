#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/checkpoint/checkpoint.h"
#include "teson/job/config.h"
#include "teson/train/flat_layout.h"
#include "teson/train/state_transfer.h"

namespace teson::train {

/// What the samples of a lane were.
struct LaneSamples {
  std::int64_t samples = 0;
  std::uint64_t hash = 0;  ///< data::sample_hash over all of them, in order
};

/// What one committed step did.
struct StepOutcome {
  double loss = 0;           ///< mean per token, in nats
  double gradient_norm = 0;  ///< of the mean gradient, before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;
  bool skipped = false;  ///< non-finite: the step counts, the weights stay
};

/// One rank's share of the job without any communication: model, optimizer state and data. A
/// gradient buffer is buffer_elements() floats: the flat gradient (sums over tokens, not means),
/// then a tail: the sum of losses, and a flag that stays set in a sum. One thread. libtorch's
/// exceptions end here as Errors.
class Replica {
 public:
  /// Builds the model from the configuration and opens the prepared corpus. Sets the threads of
  /// libtorch's kernels.
  static Result<std::unique_ptr<Replica>> create(const job::Config& config,
                                                 const std::filesystem::path& prepared);
  ~Replica();

  const job::Config& config() const;
  const FlatLayout& layout() const;
  std::size_t buffer_elements() const;
  /// Steps, chain and arrays as of now. The arrays may be written from outside (a learner's): call
  /// state_changed() afterwards.
  TrainingState& state();
  void state_changed();

  /// Runs one forward and backward pass of a microbatch on made-up tokens, so that the first real
  /// step is not slower than the others. Returns how long it took.
  Result<Duration> warm_up(const Clock& clock);

  /// Adds the gradient of `lane` of the running step (state().step) to `buffer`: a pure function of
  /// weights, seed, step and lane. Between microbatches asks `go_on`; false ends with `aborted`.
  Result<LaneSamples> compute_lane(int lane, float* buffer, const std::function<bool()>& go_on);
  /// The planned samples of a lane of any step.
  LaneSamples planned_samples(std::int64_t step, int lane) const;

  /// Of a buffer's gradient; infinite or NaN where the gradient is. The bits depend on nothing but
  /// the gradient's.
  double sum_of_squares(const float* sum) const;
  /// The loss in a buffer's tail: the sum over tokens, in nats.
  double loss_sum(const float* sum) const;
  /// The flag in a buffer's tail: set in the sum if it was set in any lane.
  void set_flag(float* buffer, bool value) const;
  bool any_flag(const float* sum) const;
  /// Clips, updates the weights and counts the step. `sum`: the final sum over lanes; `tokens`: how
  /// many it covers. Where the loss or the norm is not finite the step counts and the weights stay.
  /// The chain is the caller's.
  StepOutcome apply(const float* sum, double sum_of_squares, std::int64_t tokens);

  /// Batches of the validation split; 0 if there is none to evaluate.
  int evaluation_batches() const;
  /// Sum of losses and count of tokens of one of them.
  struct EvaluationSum {
    double loss = 0;
    double tokens = 0;
  };
  Result<EvaluationSum> evaluate_batch(int batch);

  /// The state as a checkpoint; the sections point into this object.
  CheckpointMeta checkpoint_meta() const;
  std::vector<CheckpointSection> checkpoint_sections() const;
  /// Takes the state of a checkpoint of the same model. `invalid` names the parameter that differs.
  Result<void> load(const CheckpointReader& checkpoint);

  /// SHA-256 over all parameters, ordered by name, as fp32 in memory order. Lower-case hexadecimal.
  std::string weights_sha256() const;
  /// Entropy of the training split's token frequencies, nats a token.
  double unigram_entropy() const;
  /// Digest of corpus and tokenizer: must agree between ranks.
  const std::string& corpus_fingerprint() const;

 private:
  struct Parts;
  explicit Replica(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace teson::train
