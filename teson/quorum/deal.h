#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "teson/comm/lane_tree.h"
#include "teson/quorum/record.h"

namespace teson::quorum {

/// Who computes what: pure functions of the epoch's record, the same on every rank. All results
/// have one entry a member, in rank order. (A member is a replica group here: with several shards a
/// group, the ranks of one group are dealt the same lanes.)

/// w: how many lanes each of `groups` gets so that the busiest has as few as possible, and of those
/// choices the one with the fewest tree nodes to send (sum of popcounts). Descending. groups >= 1,
/// lanes >= 0.
std::vector<int> choose_weights(int lanes, int groups);

/// The buddy deal: every weight is cut into powers of two, and all blocks are laid out in
/// descending size from lane 0, ties by group. So each block is one aligned node of the lane tree.
/// Lanes ascending. The weights must add up to `lanes`.
std::vector<std::vector<int>> buddy_deal(const std::vector<int>& weights);

/// True for the one step that the record found half done: base_step + 1 after a go_on for which
/// someone holds a lane.
bool is_interrupted(const EpochRecord& record, std::int64_t step);

/// The lanes whose gradients each member contributes to `step`, ascending; step > base_step.
/// Together: all lanes once (exact mode).
///  - exact, interrupted step: who holds a lane keeps it. The rest goes in aligned blocks, largest
///    first, to who then has the fewest lanes (a learner counts as having as many as the busiest:
///    it begins late), ties to the holder of the block's sibling, then by rank. A block is halved
///    while giving it whole would leave its owner above everybody's fair share.
///  - exact, otherwise: the buddy deal of Member::lanes.
///  - elastic: replica r of R computes its own slice [L·r/R, L·(r+1)/R); lanes of absent replicas
///    are absent.
std::vector<std::vector<int>> lanes_by_member(const EpochRecord& record, std::int64_t step);

/// The same as nodes of the lane tree: what ReduceParts::held wants.
std::vector<std::vector<comm::TreeNode>> nodes_by_member(const EpochRecord& record,
                                                         std::int64_t step);

/// Which final tiles of `step` the record knows of, a byte a tile: what ReduceParts::finals wants.
/// Empty if there are none, so always but in an interrupted step. A rank may trust only these of
/// its own tiles: others it finishes again.
std::vector<std::vector<std::uint8_t>> finals_by_member(const EpochRecord& record,
                                                        std::int64_t step, std::size_t tiles);

/// The rank that gives its state to learner `rank`: members with state take learners in turn. -1 if
/// `rank` is no learner.
int donor_of(const EpochRecord& record, int rank);

}  // namespace teson::quorum
