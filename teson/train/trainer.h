#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/comm/communicator.h"
#include "teson/job/inject.h"
#include "teson/job/records.h"
#include "teson/quorum/member_state.h"
#include "teson/quorum/vote.h"
#include "teson/train/lane_gradients.h"
#include "teson/train/replica.h"

namespace teson {
class AsyncCheckpointWriter;
struct CheckpointOutcome;
}  // namespace teson

namespace teson::train {

class Membership;

/// Builds the communicator of an epoch; ends early, with `aborted`, when the epoch is fenced.
/// A rank found dead is reported to the membership by whoever makes this function.
using Connect = std::function<Result<std::unique_ptr<comm::Communicator>>(
    const quorum::EpochRecord& record, int rank)>;

enum class FinishStatus : std::uint8_t {
  completed,  ///< all steps are done
  stopped,    ///< on request, at a step boundary
  failed,     ///< train.nan_limit skipped steps in a row, or the last checkpoint was not written
};

/// How training ended, as the rank that speaks for the job tells it.
struct Finish {
  FinishStatus status = FinishStatus::completed;
  std::string reason;
  std::int64_t step = 0;
  std::optional<double> val_loss;
  std::string weights_sha256;
  double unigram_entropy = 0;
};

/// A step that was committed and applied here.
struct CommittedStep {
  std::uint64_t incarnation = 0;
  job::StepRecord record;
  job::LedgerLine ledger;
  Instant at{};  ///< the instant of its commit
};

/// What the trainer tells the outside, always on the step loop's thread. All must be quick. Any may
/// be empty.
struct TrainerEvents {
  std::function<void(const CommittedStep&)> committed;
  std::function<void(std::int64_t step, double loss)> evaluated;
  /// This rank has the state and is about to work in this epoch.
  std::function<void(std::int64_t epoch, bool was_learner)> entered;
  std::function<void(std::int64_t step, const Error& error)> checkpoint_skipped;
  /// Once an epoch at the most; again when a later epoch finds the job finished too.
  std::function<void(const Finish&)> finished;
};

/// A fault to be put in at a place of the step loop. Returns whether the lane's gradient is to be
/// poisoned; other faults do not return, or throw.
using InjectFault = std::function<bool(std::int64_t step, job::FaultPhase phase)>;

struct TrainerOptions {
  int replica = 0;
  const Clock* clock = nullptr;
  Connect connect;
  AsyncCheckpointWriter* checkpoints = nullptr;  ///< null: none are written
  TrainerEvents events;
  InjectFault inject;
};

/// The step loop of one rank: computes its lanes, reduces along the lane tree, votes, commits,
/// applies; enters each epoch that the membership announces, catches up as a learner, gives its
/// state as a donor. `run` is called once, on a thread of the caller's; the other calls come from
/// any thread. The arithmetic and the protocol are those of docs/fault_tolerance.md.
class Trainer {
 public:
  /// Tiles are 1 MiB of fp32.
  static constexpr std::size_t kTileElements = 256 * 1024;

  /// The replica and the membership outlive it.
  Trainer(Replica& replica, Membership& membership, TrainerOptions options);

  /// Trains, then waits in later epochs for the job's end: `aborted` once the membership is closed.
  /// Any other error is this rank's own (a damaged shard, no memory): its process should end. With
  /// a fixed membership it returns at the end of the run.
  Result<void> run();

  /// Ends the job at the next step boundary, all ranks at the same one; a checkpoint is written
  /// there.
  void request_stop() { stop_requested_ = true; }
  /// A checkpoint at the next step boundary.
  void request_checkpoint() { checkpoint_requested_ = true; }

 private:
  using Epoch = quorum::EpochRecord;
  Result<void> run_epoch(const quorum::StartOrder& order);
  void settle(const quorum::StartOrder& order);
  Result<void> enter(const quorum::StartOrder& order);
  Result<void> train_steps(const Epoch& epoch);
  Result<void> run_step(const Epoch& epoch);
  Result<void> compute_lanes(const Epoch& epoch, const std::vector<std::int32_t>& lanes);
  Result<void> reduce(const Epoch& epoch, std::vector<std::vector<comm::TreeNode>> held,
                      std::vector<std::vector<std::uint8_t>> finals);
  Result<quorum::Outcome> vote(const Epoch& epoch, bool hold_against_plan);
  quorum::Vote own_vote(const Epoch& epoch) const;
  void apply(const quorum::Outcome& outcome, const Epoch& epoch);
  void note_ledger(const Epoch& epoch, const std::vector<std::vector<std::int32_t>>& lanes);
  Result<std::optional<double>> evaluate();
  Result<void> after_step(const Epoch& epoch, bool checkpoint_wanted);
  Result<void> finish(const Epoch& epoch);
  Result<void> write_final_checkpoint(const Epoch& epoch);
  void start_checkpoint(const Epoch& epoch);
  bool speaks_for_job() const { return communicator_->rank() == 0; }
  bool inject(std::int64_t step, job::FaultPhase phase);

  Replica& replica_;
  Membership& membership_;
  TrainerOptions options_;

  LaneGradients gradients_;
  std::vector<LaneSamples> samples_;    ///< by lane, of the running step, where computed here
  std::vector<float> sum_;              ///< the final sum over lanes
  std::vector<std::uint64_t> digests_;  ///< by tile of sum_
  double sum_of_squares_ = 0;
  std::int64_t step_tokens_ = 0;               ///< that the sum covers
  job::LedgerLine ledger_;                     ///< of the running step
  std::vector<quorum::PlannedLanes> planned_;  ///< by rank, of the step and epoch of ledger_
  Instant step_began_{};

  std::unique_ptr<comm::Communicator> communicator_;
  std::optional<FinishStatus> ended_;
  std::string end_reason_;
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> checkpoint_requested_{false};
};

}  // namespace teson::train
