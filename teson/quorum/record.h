#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "teson/base/error.h"
#include "teson/quorum/vote.h"

namespace teson::quorum {

/// One rank of the job as a process: `instance` is new at every process start and never used again.
struct MemberId {
  std::uint64_t instance = 0;
  std::int32_t replica = 0;
  std::int32_t shard = 0;
  auto operator<=>(const MemberId&) const = default;
};

/// exact: the sum over all lanes, whoever computes them. elastic: the sum over the lanes of those
/// who take part.
enum class Mode : std::uint8_t { exact, elastic };

/// What became of step base_step + 1, which the epoch before may have left unfinished (go_on,
/// discard), or of base_step itself (commit).
enum class Verdict : std::uint8_t {
  go_on = 0,    ///< base_step + 1 goes on: lanes and final tiles that members hold stay valid
  commit = 1,   ///< base_step was voted for by all who are left, and is committed hereby
  discard = 2,  ///< base_step + 1 starts again from nothing (elastic mode; first record of an
                ///< incarnation)
};

/// A member of an epoch. Its rank is its index in EpochRecord::members.
struct Member {
  MemberId id;
  std::string data_address;  ///< where its communicator listens, as the member gave it
  std::string host;          ///< for people, and for finding the process: with `pid`
  std::int64_t pid = 0;
  /// Enters without the state of base_step: gets it from a donor, then calls set_level.
  bool learner = false;
  /// w: how many lanes it is dealt in every step but an interrupted one. Zero: a spare.
  std::int32_t lanes = 0;
  /// Of step base_step + 1, when the verdict is go_on: lanes it has begun or done, ascending.
  std::vector<std::int32_t> lanes_held;
  /// The same: bit t%8 of byte t/8 is set if it holds tile t of the final gradient. Shorter than
  /// the tiles: the rest is 0.
  std::vector<std::uint8_t> tiles_final;

  bool operator==(const Member&) const = default;
};

/// Who trains together and from where: written durably by the lighthouse before anyone hears of it.
/// Everything that ranks must agree on without talking is a pure function of this (deal.h).
struct EpochRecord {
  std::string job;
  std::uint64_t plan_hash = 0;
  std::uint64_t incarnation =
      0;  ///< goes up when the job restarted from checkpoints instead of living members
  std::int64_t epoch = 0;   ///< (term << 32 | counter), see make_epoch; never used twice
  std::int64_t parent = 0;  ///< the record before; 0: none
  Mode mode = Mode::exact;
  Verdict verdict = Verdict::discard;
  std::int64_t base_step =
      0;  ///< committed by every member that is no learner (after applying this record)
  std::uint64_t base_chain = 0;  ///< H of base_step
  Outcome base_outcome;  ///< of base_step, for members that must still apply it; meaningful if its
                         ///< step equals base_step
  std::int32_t lanes_total = 0;        ///< L
  std::int32_t replicas_expected = 0;  ///< R, as configured: what elastic mode's slices are cut by
  std::vector<Member> members;         ///< ascending by (replica, shard)

  bool operator==(const EpochRecord&) const = default;
};

/// Index of an instance in the record's members (its rank in this epoch), or -1.
int rank_of(const EpochRecord& record, std::uint64_t instance);

constexpr std::int64_t make_epoch(std::uint32_t term, std::uint32_t counter) {
  return static_cast<std::int64_t>(std::uint64_t{term} << 32 | counter);
}
constexpr std::uint32_t term_of(std::int64_t epoch) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(epoch) >> 32);
}

/// `invalid` if a record from outside breaks what deal.h relies on: counts and ranges, lanes held
/// twice, weights that do not add up.
Result<void> check_record(const EpochRecord& record);

bool tile_is_final(const Member& member, std::size_t tile);
/// A bitmap in the layout of Member::tiles_final.
void set_tile(std::vector<std::uint8_t>& bitmap, std::size_t tile);

inline constexpr std::int32_t lanes_max = 1 << 17;

/// "epoch 1.4, incarnation 1, base step 20 (go_on), members 0 1 2(learner)" for logs.
std::string describe(const EpochRecord& record);
/// "1.4": term and counter.
std::string epoch_text(std::int64_t epoch);

}  // namespace teson::quorum
