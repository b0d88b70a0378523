#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace teson::quorum {

/// What a rank says about a step once every tile of its gradient is final: it holds G_step, has
/// applied nothing, and keeps it until the step is committed or a record says otherwise. All else
/// about the step (loss, norm, whether it is finite) is a function of G_step, so whoever holds the
/// same bits finds it alone, while the votes travel. A fixed layout, so that votes go by one
/// all-gather of bytes between ranks of one build.
struct Vote {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::uint64_t digest = 0;        ///< of all final tiles, in order: hash64 over the tile digests
  std::uint64_t sample_hash = 0;   ///< of the samples of the lanes this rank computed; they add up,
                                   ///< wrapping
  std::uint64_t state_digest = 0;  ///< of a piece of parameters and moments; 0: none this time
  std::int32_t lanes_computed = 0;  ///< how many lanes sample_hash is over
  std::uint8_t stop_requested = 0;  ///< this rank was asked to stop after this step
  std::uint8_t checkpoint_requested = 0;
  std::uint16_t reserved = 0;

  bool operator==(const Vote&) const = default;
};
static_assert(std::is_trivially_copyable_v<Vote> && sizeof(Vote) == 48,
              "votes are gathered as bytes");

/// What a committed step came to: the same on every rank. When a step was committed by a record
/// instead of by all votes, sample_hash covers only the ranks that were still there
/// (`lanes_counted` tells); the digest is always whole.
struct Outcome {
  std::int64_t step = 0;
  std::uint64_t digest = 0;
  std::uint64_t sample_hash = 0;
  std::int32_t lanes_counted = 0;
  bool stop = false;  ///< all ranks stop after this step
  bool checkpoint = false;

  bool operator==(const Outcome&) const = default;
};

struct VoteResult {
  Outcome outcome;              ///< where nobody is mismatched
  std::vector<int> mismatched;  ///< ranks that differ from the largest group of equal votes (ties:
                                ///< that of the lowest rank); none: the step may be committed

  bool unanimous() const { return mismatched.empty(); }
};

/// The rule of unanimity over the votes of all ranks, in rank order: equal epoch, step, digest and
/// state digest, else nobody commits. Pure. TESON_CHECK: at least one vote.
VoteResult decide(std::span<const Vote> votes);

/// What the plan gives a rank in a step: comparable with its vote.
struct PlannedLanes {
  std::uint64_t sample_hash = 0;  ///< of its lanes' samples; they add up, wrapping
  std::int32_t lanes = 0;
};

/// Ranks whose votes say that they computed other samples than the plan gives them: what they add
/// to the gradient is not the job's. `planned`: one entry a vote, in rank order. Pure.
std::vector<int> ranks_off_plan(std::span<const Vote> votes, std::span<const PlannedLanes> planned);

/// H_t = hash(H_{t-1}, t, digest): equal chains mean equal histories, whoever computed them and
/// over however many epochs. Pure.
std::uint64_t chain_next(std::uint64_t previous, const Outcome& outcome);

}  // namespace teson::quorum
