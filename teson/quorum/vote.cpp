#include "teson/quorum/vote.h"

#include <array>

#include "teson/base/check.h"
#include "teson/base/hash.h"

namespace teson::quorum {
namespace {

bool agree(const Vote& a, const Vote& b) {
  return a.epoch == b.epoch && a.step == b.step && a.digest == b.digest &&
         a.state_digest == b.state_digest;
}

}  // namespace

VoteResult decide(std::span<const Vote> votes) {
  TESON_CHECK(!votes.empty());
  std::size_t reference = 0;
  std::size_t reference_count = 0;
  for (std::size_t i = 0; i < votes.size(); ++i) {
    std::size_t count = 0;
    for (const Vote& other : votes)
      count += agree(votes[i], other) ? 1 : 0;
    if (count > reference_count) {
      reference = i;
      reference_count = count;
    }
  }
  VoteResult result;
  for (std::size_t i = 0; i < votes.size(); ++i) {
    if (!agree(votes[i], votes[reference])) result.mismatched.push_back(static_cast<int>(i));
  }
  Outcome& outcome = result.outcome;
  outcome.step = votes[reference].step;
  outcome.digest = votes[reference].digest;
  for (const Vote& vote : votes) {
    outcome.sample_hash += vote.sample_hash;
    outcome.lanes_counted += vote.lanes_computed;
    outcome.stop |= vote.stop_requested != 0;
    outcome.checkpoint |= vote.checkpoint_requested != 0;
  }
  return result;
}

std::vector<int> ranks_off_plan(std::span<const Vote> votes,
                                std::span<const PlannedLanes> planned) {
  TESON_CHECK(votes.size() == planned.size(), votes.size(), planned.size());
  std::vector<int> ranks;
  for (std::size_t i = 0; i < votes.size(); ++i) {
    if (votes[i].sample_hash != planned[i].sample_hash ||
        votes[i].lanes_computed != planned[i].lanes) {
      ranks.push_back(static_cast<int>(i));
    }
  }
  return ranks;
}

std::uint64_t chain_next(std::uint64_t previous, const Outcome& outcome) {
  const std::array<std::uint64_t, 3> words = {previous, static_cast<std::uint64_t>(outcome.step),
                                              outcome.digest};
  return hash64(std::as_bytes(std::span(words)));
}

}  // namespace teson::quorum
