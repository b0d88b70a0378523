#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "teson/actor/actor_ref.h"
#include "teson/actor/endpoints.h"
#include "teson/base/error.h"
#include "teson/job/records.h"

namespace teson::job {

/// What the controller and a worker say to each other. The step loop is never on this path: the
/// worker's actor posts to it, and the controller only listens. Instants are CLOCK_MONOTONIC
/// nanoseconds; one host.

/// A step that the reporting rank has committed. Every rank reports every step.
struct StepReport {
  std::int32_t replica = 0;
  std::int64_t committed_ns = 0;
  std::uint64_t incarnation = 0;  ///< of the history: after a total loss steps are done again
  StepRecord step;
  LedgerLine ledger;  ///< of the whole step, not only this rank's lanes
};

struct EvaluationReport {
  std::int64_t step = 0;
  double loss = 0;  ///< mean per token, nats
};

struct CheckpointReport {
  std::int64_t step = 0;
  bool written = false;
  std::string text;     ///< the folder, or why there is none
  std::string trouble;  ///< of removing old ones afterwards; empty: none
  double seconds = 0;
};

/// The rank has the state and works in this epoch.
struct EnteredReport {
  std::int32_t replica = 0;
  std::int64_t epoch = 0;
  bool was_learner = false;
  /// The checkpoint that its state came from, if this process began from one.
  std::string checkpoint;
  std::int64_t checkpoint_step = 0;
};

/// A damaged checkpoint that a rank passed over when it looked for the newest.
struct DamagedCheckpoint {
  std::string path;
  std::string reason;
};

enum class EndKind : std::uint8_t { completed, stopped, failed };

/// The job's end, from the rank that speaks for it.
struct FinishReport {
  EndKind kind = EndKind::completed;
  std::string reason;
  std::int64_t step = 0;
  std::optional<double> val_loss;
  std::string weights_sha256;
  double unigram_entropy = 0;
};

/// The controller's side. Hosted by the controller; workers cast to it.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step_committed(const StepReport& report) = 0;
  virtual void evaluated(const EvaluationReport& report) = 0;
  virtual void checkpoint_ended(const CheckpointReport& report) = 0;
  virtual void checkpoint_damaged(const DamagedCheckpoint& report) = 0;
  virtual void entered(const EnteredReport& report) = 0;
  virtual void finished(const FinishReport& report) = 0;
  /// The rank is about to end itself for this reason. `invalid`: starting it again would not help.
  virtual void failed(std::int32_t replica, const Error& error) = 0;
  using endpoints =
      actor::Endpoints<&RunObserver::step_committed, &RunObserver::evaluated,
                       &RunObserver::checkpoint_ended, &RunObserver::checkpoint_damaged,
                       &RunObserver::entered, &RunObserver::finished, &RunObserver::failed>;
};

/// Everything that a worker needs beside the run's folder.
struct WorkerOrder {
  std::string run_dir;
  std::string prepared;  ///< folder of the prepared corpus
  std::int32_t replica = 0;
  std::uint64_t instance = 0;                ///< of this process, in the quorum protocol
  std::string lighthouse;                    ///< address; empty: fixed membership
  std::string data_address;                  ///< where this rank's communicator listens
  std::vector<std::string> fixed_addresses;  ///< data addresses by rank, for fixed membership
  std::vector<std::uint64_t> fixed_instances;
  std::vector<std::string> faults;  ///< as after --inject
  actor::ActorRef<RunObserver> observer;
};

/// The worker's side, one an actor proc.
class WorkerControl {
 public:
  virtual ~WorkerControl() = default;
  /// Begins to train; returns at once. Once.
  virtual Result<void> start(const WorkerOrder& order) = 0;
  /// The whole job ends at the next step boundary, with a checkpoint.
  virtual void stop_at_boundary() = 0;
  virtual void checkpoint_now() = 0;
  using endpoints = actor::Endpoints<&WorkerControl::start, &WorkerControl::stop_at_boundary,
                                     &WorkerControl::checkpoint_now>;
};

}  // namespace teson::job
