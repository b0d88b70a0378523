#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/job/config.h"

namespace teson::job {

enum class FaultKind : std::uint8_t {
  kill,       ///< SIGKILL
  stop,       ///< SIGSTOP: the process freezes, its sockets stay open
  segfault,   ///< a crash in native code
  exception,  ///< the step loop throws
  hang,       ///< the step loop stops making progress, heartbeats go on
  nan,        ///< the lane gradients of the step become NaN
};
enum class FaultPhase : std::uint8_t { compute, reduce, vote, apply, checkpoint };
std::string_view to_string(FaultKind kind);
std::string_view to_string(FaultPhase phase);

/// A fault at one place: replica `replica`, in the given phase of step `step`.
struct Fault {
  FaultKind kind = FaultKind::kill;
  int replica = 0;
  std::int64_t step = 1;
  FaultPhase phase = FaultPhase::compute;
  std::string text = {};  ///< as it was asked for; for people, no part of its identity
  /// Also its file's name in the folder faults/: "kill-replica1-step20-compute".
  std::string name() const;
  bool operator==(const Fault& other) const {
    return kind == other.kind && replica == other.replica && step == other.step &&
           phase == other.phase;
  }
};

/// Faults at random times, put in by the controller with a signal: kill, stop or segfault.
struct RandomFaults {
  FaultKind kind = FaultKind::kill;
  Duration every{};  ///< mean distance
  std::uint64_t seed = 0;
  std::optional<std::int64_t> count;  ///< unset: until the run ends

  /// When fault n = 0, 1, … comes, counted from the first step: gaps are uniform in
  /// [0.5, 1.5)·every, a pure function of the seed.
  Duration time_of(std::int64_t n) const;
  /// Which of `candidates` >= 1 living replicas fault n hits, as an index.
  int victim_of(std::int64_t n, int candidates) const;
  bool operator==(const RandomFaults&) const = default;
};

struct FaultPlan {
  std::vector<Fault> faults;
  std::vector<RandomFaults> random;

  /// The planned faults of this place, in the order they were written. Whether each has already
  /// fired is what claim_fault tells.
  std::vector<Fault> due(int replica, std::int64_t step, FaultPhase phase) const;
  bool empty() const { return faults.empty() && random.empty(); }
};

/// From `--inject` texts: "kill:replica=1,step=20" with phase=compute|reduce|vote|apply|checkpoint,
/// or "kill:every=15s,seed=7" with count=n. Kinds: kill, stop, segfault, exception, hang, nan.
/// Durations: ms, s, m. `invalid`, naming the part that is wrong.
Result<FaultPlan> parse_faults(const std::vector<std::string>& texts);
/// The texts again, for a worker's order; parse_faults gives the same plan.
std::vector<std::string> to_texts(const FaultPlan& plan);
/// `invalid` if a fault names a replica or a step that the job does not have.
Result<void> check_faults(const FaultPlan& plan, const Config& config);

/// Each fault fires once in the life of a run, in whichever process comes first: true for the one
/// that made the file faults/NAME, which holds the claim's monotonic nanoseconds. To be followed by
/// the fault at once.
Result<bool> claim_fault(const std::filesystem::path& faults, const Fault& fault, Instant now);
/// When it fired; unset if it did not, or if the file is cut.
std::optional<Instant> claimed_at(const std::filesystem::path& faults, const Fault& fault);
/// The texts of the planned faults that have not fired in the life of the run so far.
std::vector<std::string> unfired(const std::filesystem::path& faults, const FaultPlan& plan);
/// One line about them.
std::string unfired_text(const std::vector<std::string>& texts);

}  // namespace teson::job
