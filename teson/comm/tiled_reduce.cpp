#include "teson/comm/tiled_reduce.h"

#include <algorithm>

#include <fmt/core.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"

namespace teson::comm {

float* Staging::at_least(std::size_t elements) {
  if (elements > capacity) {
    floats.reset();
    floats = std::make_unique_for_overwrite<float[]>(elements);
    capacity = elements;
  }
  return floats.get();
}

TiledReduce::TiledReduce(ReduceJob job, Staging& staging, const std::atomic<bool>& stop)
    : Operation(job.size),
      job_(std::move(job)),
      staging_(staging),
      stop_(stop),
      terms_of_(static_cast<std::size_t>(job_.size)) {
  TESON_CHECK(job_.tiles.size() < items_max, job_.tiles.size());
  TESON_CHECK(job_.term_ranks.size() == job_.own_terms.size(), job_.term_ranks.size(),
              job_.own_terms.size());
}

Result<void> TiledReduce::start(std::uint64_t number, FrameSender& sender) {
  number_ = number;
  sender_ = &sender;
  for (std::size_t term = 0; term < job_.term_ranks.size(); ++term) {
    terms_of_[static_cast<std::size_t>(job_.term_ranks[term])].push_back(term);
    remote_index_.push_back(remote_terms_);
    if (job_.term_ranks[term] != job_.rank) ++remote_terms_;
  }
  ordinal_.resize(job_.tiles.size());
  finished_.resize(job_.tiles.size());
  for (std::size_t tile = 0; tile < job_.tiles.size(); ++tile) {
    if (job_.tiles[tile].given) {
      start_given(tile);
    } else if (job_.tiles[tile].owner == job_.rank) {
      start_owned(tile);
    } else {
      start_foreign(tile);
    }
  }
  slots_.resize(std::min(owned_.size(), tiles_in_flight_max));
  for (Slot& slot : slots_)
    slot = {remote_terms_, std::vector<std::uint8_t>(job_.term_ranks.size())};
  if (remote_terms_ == 0) steps_left_ = owned_.size();
  staging_floats_ = staging_.at_least(slots_.size() * remote_terms_ * tile_elements_max_);
  return {};
}

bool TiledReduce::has_given(std::size_t rank, std::size_t tile) const {
  if (static_cast<int>(rank) == job_.tiles[tile].owner) return true;
  return !job_.finals.empty() && job_.finals[rank][tile] != 0;
}

void TiledReduce::start_given(std::size_t tile) {
  const auto own = static_cast<std::size_t>(job_.rank);
  const int owner = job_.tiles[tile].owner;
  finished_[tile] = has_given(own, tile);
  if (finished_[tile] == 0) ++receives_left_[static_cast<std::size_t>(owner)];
  if (owner == job_.rank) send_final(tile, job_.digests[tile], false);
}

void TiledReduce::start_owned(std::size_t tile) {
  ordinal_[tile] = owned_.size();
  owned_.push_back(tile);
  tile_elements_max_ = std::max(tile_elements_max_, job_.tiles[tile].elements);
  for (const int rank : job_.term_ranks) {
    if (rank != job_.rank) ++receives_left_[static_cast<std::size_t>(rank)];
  }
  if (!job_.distribute) return;
  for (int rank = 0; rank < job_.size; ++rank) {
    if (rank != job_.rank) ++sends_left_[static_cast<std::size_t>(rank)];
  }
}

void TiledReduce::start_foreign(std::size_t tile) {
  const ReduceTile& work = job_.tiles[tile];
  const auto owner = static_cast<std::size_t>(work.owner);
  if (job_.distribute) ++receives_left_[owner];
  const auto& own = terms_of_[static_cast<std::size_t>(job_.rank)];
  for (std::size_t position = 0; position < own.size(); ++position) {
    ++sends_left_[owner];
    const std::span<const float> floats(job_.own_terms[own[position]] + work.in_offset,
                                        work.elements);
    sender_->push(work.owner, {.kind = FrameKind::part,
                               .flags = static_cast<std::uint16_t>(position),
                               .sequence = sequence_of(number_, tile),
                               .payload = std::as_bytes(floats),
                               .listener = this});
  }
}

void TiledReduce::send_final(std::size_t tile, std::uint64_t digest, bool first) {
  const OutgoingFrame frame{.kind = FrameKind::final,
                            .sequence = sequence_of(number_, tile),
                            .payload = out_bytes(tile),
                            .checksum = digest,
                            .listener = this};
  for (int rank = 0; rank < job_.size; ++rank) {
    const auto to = static_cast<std::size_t>(rank);
    if (rank == job_.rank || (job_.tiles[tile].given && has_given(to, tile))) continue;
    if (first) {
      sender_->push_first(rank, frame);
    } else {
      ++sends_left_[to];
      sender_->push(rank, frame);
    }
  }
}

std::span<std::byte> TiledReduce::out_bytes(std::size_t tile) const {
  return std::as_writable_bytes(
      std::span(job_.out + job_.tiles[tile].out_offset, job_.tiles[tile].elements));
}

float* TiledReduce::staged(std::size_t ordinal, std::size_t term) const {
  return staging_floats_ +
         (ordinal % slots_.size() * remote_terms_ + remote_index_[term]) * tile_elements_max_;
}

Result<std::optional<std::span<std::byte>>> TiledReduce::place(int rank,
                                                               const net::FrameHeader& header) {
  const std::uint64_t tile = item_of(header.sequence);
  if (tile >= job_.tiles.size())
    return unexpected(rank, header, fmt::format("an item below {}", job_.tiles.size()));
  const ReduceTile& work = job_.tiles[tile];
  if (header.payload_bytes != work.elements * sizeof(float)) {
    return unexpected(rank, header,
                      fmt::format("{} bytes for this tile", work.elements * sizeof(float)));
  }
  if (header.kind == static_cast<std::uint16_t>(FrameKind::part))
    return place_part(rank, header, tile);
  const bool wanted = header.kind == static_cast<std::uint16_t>(FrameKind::final) &&
                      work.owner == rank && finished_[tile] == 0 && (job_.distribute || work.given);
  if (!wanted)
    return unexpected(rank, header,
                      fmt::format("the sum of this tile once, from rank {}", work.owner));
  return out_bytes(tile);
}

Result<std::optional<std::span<std::byte>>> TiledReduce::place_part(int rank,
                                                                    const net::FrameHeader& header,
                                                                    std::size_t tile) {
  const auto& terms = terms_of_[static_cast<std::size_t>(rank)];
  if (job_.tiles[tile].owner != job_.rank || job_.tiles[tile].given ||
      header.flags >= terms.size()) {
    return unexpected(
        rank, header,
        fmt::format("terms of tiles of rank {}, {} from each", job_.rank, terms.size()));
  }
  const std::size_t ordinal = ordinal_[tile];
  if (ordinal >= first_open_ + slots_.size()) return std::nullopt;
  const std::size_t term = terms[header.flags];
  if (ordinal < first_open_ || finished_[tile] != 0 || slot_of(ordinal).arrived[term] != 0) {
    return unexpected(rank, header, "each term of a tile once");
  }
  return std::as_writable_bytes(std::span(staged(ordinal, term), job_.tiles[tile].elements));
}

Result<void> TiledReduce::received(int rank, const net::FrameHeader& header) {
  std::size_t& left = receives_left_[static_cast<std::size_t>(rank)];
  const std::size_t tile = item_of(header.sequence);
  if (header.kind == static_cast<std::uint16_t>(FrameKind::final)) {
    --left;
    finished_[tile] = 1;
    if (job_.digests != nullptr) job_.digests[tile] = header.payload_checksum;
    if (job_.on_final) job_.on_final(tile);
    return {};
  }
  const std::size_t ordinal = ordinal_[tile];
  Slot& slot = slot_of(ordinal);
  slot.arrived[terms_of_[static_cast<std::size_t>(rank)][header.flags]] = 1;
  // Counted only after the addition: one that was interrupted must not look done.
  if (--slot.missing == 0) TESON_TRY_VOID(add_up(ordinal));
  --left;
  return {};
}

Result<void> TiledReduce::add_up(std::size_t ordinal) {
  const std::size_t tile = owned_[ordinal];
  const ReduceTile& work = job_.tiles[tile];
  std::vector<const float*> terms;
  for (std::size_t term = 0; term < job_.own_terms.size(); ++term) {
    terms.push_back(job_.term_ranks[term] == job_.rank ? job_.own_terms[term] + work.in_offset
                                                       : staged(ordinal, term));
  }
  job_.plan.run(terms, job_.out + work.out_offset, work.elements, stop_);
  if (stop_.load(std::memory_order_relaxed))
    return fail(ErrorKind::aborted, "the communicator ended during a sum");
  const bool digested = job_.distribute || job_.digests != nullptr;
  const std::uint64_t digest = digested ? net::frame_checksum(out_bytes(tile)) : 0;
  if (job_.digests != nullptr) job_.digests[tile] = digest;
  finished_[tile] = 1;
  slot_of(ordinal) = {remote_terms_, std::vector<std::uint8_t>(job_.term_ranks.size())};
  while (first_open_ < owned_.size() && finished_[owned_[first_open_]] != 0)
    ++first_open_;
  if (job_.distribute) send_final(tile, digest, true);
  if (job_.on_final) job_.on_final(tile);
  return {};
}

Result<void> TiledReduce::step() {
  TESON_TRY_VOID(add_up(first_open_));
  --steps_left_;
  return {};
}

}  // namespace teson::comm
