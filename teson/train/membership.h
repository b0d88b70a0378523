#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "teson/base/error.h"
#include "teson/quorum/member_state.h"
#include "teson/quorum/protocol.h"

namespace teson::quorum {
class MemberClient;
}

namespace teson::train {

/// Who trains together, as the step loop sees it: the calls of quorum::MemberClient, whose comments
/// say what each means. One step loop calls; `fenced`, `hold_final` and `add_progress` from any
/// thread.
class Membership {
 public:
  virtual ~Membership() = default;

  /// Blocks until there is an epoch to enter. `aborted`: this rank is to end; `invalid`: it was
  /// refused, for good.
  virtual Result<quorum::StartOrder> wait_start() = 0;
  virtual bool fenced() const = 0;
  /// Whether steps are committed by votes. Without: whatever is reduced is committed.
  virtual bool votes() const = 0;

  virtual Result<void> set_level(std::int64_t epoch, std::int64_t step, std::uint64_t chain) = 0;
  virtual Result<void> begin_step(std::int64_t epoch, std::int64_t step) = 0;
  virtual Result<void> hold_lane(std::int64_t epoch, std::int32_t lane) = 0;
  /// Called on the communicator's thread.
  virtual Result<void> hold_final(std::int64_t epoch, std::size_t tile) = 0;
  virtual Result<void> prepare(const quorum::Vote& vote) = 0;
  virtual Result<void> commit(std::int64_t epoch, const quorum::Outcome& outcome) = 0;
  virtual void set_phase(quorum::Phase phase) = 0;
  virtual void add_progress() = 0;
  virtual void report_peer_lost(std::int64_t epoch, int rank, const std::string& what) = 0;
  virtual void report_mismatch(std::int64_t epoch, std::int64_t step,
                               const std::vector<int>& ranks) = 0;
};

/// Epochs from a lighthouse. The client outlives it.
std::unique_ptr<Membership> quorum_membership(quorum::MemberClient& client);

/// One epoch, given beforehand; no quorum, no vote, no fencing. The second wait_start fails: a lost
/// peer ends the run.
std::unique_ptr<Membership> fixed_membership(quorum::StartOrder order);

}  // namespace teson::train
