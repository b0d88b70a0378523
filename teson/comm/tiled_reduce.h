#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "teson/comm/merge_plan.h"
#include "teson/comm/operation.h"

namespace teson::comm {

/// The unit of a reduction: `elements` floats at `in_offset` of every term, whose sum lies at
/// `out_offset`.
struct ReduceTile {
  std::size_t in_offset = 0;
  std::size_t out_offset = 0;
  std::size_t elements = 0;
  int owner = 0;       ///< the rank that adds (or, if given, already has the sum)
  bool given = false;  ///< the owner already has the sum
};

/// A sum of terms that lie at different ranks. All but the pointers is the same on every rank.
struct ReduceJob {
  int rank = 0;
  int size = 1;
  MergePlan plan;
  std::vector<int> term_ranks;          ///< by term: who holds it; ascending
  std::vector<const float*> own_terms;  ///< by term: its start, or null if another rank holds it
  std::vector<ReduceTile> tiles;
  bool distribute = true;  ///< whether every rank gets the sum, or each tile's owner only
  /// By rank and tile: already has a given tile. Empty: only owners do.
  std::vector<std::vector<std::uint8_t>> finals;
  float* out = nullptr;
  std::uint64_t* digests = nullptr;  ///< by tile, or null
  std::function<void(std::size_t tile)> on_final;
};

/// Scratch memory of reductions, kept from one to the next.
struct Staging {
  std::unique_ptr<float[]> floats;
  std::size_t capacity = 0;
  float* at_least(std::size_t elements);
};

/// Runs a ReduceJob: holders send the tiles of their terms straight from memory to the tile's
/// owner, which adds them in the order of the plan and sends the sum to the others, straight into
/// their `out`. Sums go before terms, terms in the order of tiles.
///
/// Memory: an owner has at most tiles_in_flight_max of its tiles in work, the lowest ones not yet
/// done; a frame for a later tile waits in its sender's stream. So it needs tiles_in_flight_max ×
/// (terms of others) × (tile bytes). This cannot lock up: the frames of the lowest tile stand
/// before those of later tiles in every stream, and sums are always taken.
class TiledReduce final : public Operation {
 public:
  static constexpr std::size_t tiles_in_flight_max = 4;

  /// `stop`: becomes true when the communicator ends; long additions look at it. Both must outlive
  /// the operation.
  TiledReduce(ReduceJob job, Staging& staging, const std::atomic<bool>& stop);

  Result<void> start(std::uint64_t number, FrameSender& sender) override;
  Result<std::optional<std::span<std::byte>>> place(int rank,
                                                    const net::FrameHeader& header) override;
  Result<void> received(int rank, const net::FrameHeader& header) override;
  Result<void> step() override;

 private:
  /// A tile of ours in work.
  struct Slot {
    std::size_t missing = 0;
    std::vector<std::uint8_t> arrived;  ///< by term
  };

  void start_given(std::size_t tile);
  void start_owned(std::size_t tile);
  void start_foreign(std::size_t tile);
  Result<std::optional<std::span<std::byte>>> place_part(int rank, const net::FrameHeader& header,
                                                         std::size_t tile);
  Result<void> add_up(std::size_t ordinal);
  void send_final(std::size_t tile, std::uint64_t digest, bool first);
  bool has_given(std::size_t rank, std::size_t tile) const;
  std::span<std::byte> out_bytes(std::size_t tile) const;
  float* staged(std::size_t ordinal, std::size_t term) const;
  Slot& slot_of(std::size_t ordinal) { return slots_[ordinal % slots_.size()]; }

  ReduceJob job_;
  Staging& staging_;
  const std::atomic<bool>& stop_;
  FrameSender* sender_ = nullptr;
  std::uint64_t number_ = 0;
  std::vector<std::vector<std::size_t>>
      terms_of_;  ///< by rank: its terms, in the order of their frames' flags
  std::vector<std::size_t> remote_index_;  ///< by term: its place among those of other ranks
  std::size_t remote_terms_ = 0;
  std::size_t tile_elements_max_ = 0;
  std::vector<std::size_t> owned_;    ///< tiles that this rank adds, ascending
  std::vector<std::size_t> ordinal_;  ///< by tile: its place in owned_
  std::vector<std::uint8_t>
      finished_;  ///< by tile: final at this rank (or, if not distributed, added here)
  std::size_t first_open_ = 0;  ///< the first of owned_ not yet added
  std::vector<Slot> slots_;
  float* staging_floats_ = nullptr;
};

}  // namespace teson::comm
