#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "teson/base/error.h"
#include "teson/comm/communicator.h"

namespace teson::train {

/// What a rank has after `step` committed steps: everything that the next step depends on besides
/// data and configuration. The arrays belong to the trainer and all have the same length on every
/// rank.
struct TrainingState {
  std::int64_t step = 0;
  std::uint64_t chain = 0;            ///< H_step: agrees on all ranks with the same history
  std::int64_t tokens = 0;            ///< trained on so far
  std::int64_t updates = 0;           ///< steps that changed the weights, the others were skipped
  std::int64_t skipped_in_a_row = 0;  ///< steps skipped since the last update
  std::vector<std::span<float>> arrays;  ///< weights and the optimizer's moments, flat
};

/// Brings the learners of an epoch level: each donor sends its share of every array to each
/// learner; the learner checks the shares' digests and that all donors are at the same (step,
/// chain), and only then changes the numbers in `state`. Ranks that are neither do nothing. All
/// ranks pass the same two lists (ranks of the communicator, ascending, disjoint; at least one
/// donor). Blocks until this rank's part is done. Errors: those of the communicator; `failed` at a
/// learner when a share is damaged or donors differ (its arrays are then undefined, it is still a
/// learner).
Result<void> transfer_state(comm::Communicator& communicator, const std::vector<int>& donors,
                            const std::vector<int>& learners, TrainingState& state);

}  // namespace teson::train
