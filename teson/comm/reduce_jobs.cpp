#include "teson/comm/reduce_jobs.h"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>

namespace teson::comm {
namespace {

/// Small sums are cut finer, so that every rank adds a part of them; but not below a page.
constexpr std::size_t tile_elements_min = 1024;

std::size_t tile_elements_for(std::size_t elements, int size) {
  const std::size_t share =
      (elements + static_cast<std::size_t>(size) - 1) / static_cast<std::size_t>(size);
  return std::clamp(share, tile_elements_min, reduce_tile_elements);
}

/// One term a rank, added in rank order.
ReduceJob rank_order_job(int rank, int size, const float* own) {
  ReduceJob job;
  job.rank = rank;
  job.size = size;
  job.plan = MergePlan::in_order(size);
  for (int term = 0; term < size; ++term) {
    job.term_ranks.push_back(term);
    job.own_terms.push_back(term == rank ? own : nullptr);
  }
  return job;
}

Failure wrong(std::string message) {
  return fail(ErrorKind::invalid, "reduce_parts: " + std::move(message));
}

Result<void> check_parts(int rank, int size, const ReduceParts& parts, std::size_t tiles) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto own = static_cast<std::size_t>(rank);
  if (parts.held.size() != ranks)
    return wrong(fmt::format("held describes {} ranks, the group has {}", parts.held.size(), size));
  if (parts.own_parts.size() != parts.held[own].size()) {
    return wrong(fmt::format("own_parts has {} buffers for {} nodes of held[{}]",
                             parts.own_parts.size(), parts.held[own].size(), rank));
  }
  const bool null_part = std::ranges::count(parts.own_parts, nullptr) > 0;
  if (parts.elements > 0 && (null_part || parts.out == nullptr || parts.tile_digests == nullptr)) {
    return wrong("a buffer of own_parts, out or tile_digests is null");
  }
  if (std::ranges::any_of(parts.held,
                          [](const auto& nodes) { return nodes.size() > UINT16_MAX; })) {
    return wrong(fmt::format("a rank holds more than {} nodes", UINT16_MAX));
  }
  if (tiles >= items_max)
    return wrong(
        fmt::format("{} tiles, at most {} are possible: use larger ones", tiles, items_max - 1));
  if (std::min(parts.tile_elements, parts.elements) > frame_payload_bytes_max / sizeof(float)) {
    return wrong(fmt::format("tile_elements is {}, at most {} fit into a frame",
                             parts.tile_elements, frame_payload_bytes_max / sizeof(float)));
  }
  if (parts.finals.empty()) return {};
  if (parts.finals.size() != ranks) {
    return wrong(
        fmt::format("finals describes {} ranks, the group has {}", parts.finals.size(), size));
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (parts.finals[r].size() != tiles) {
      return wrong(fmt::format("finals[{}] describes {} tiles, there are {}", r,
                               parts.finals[r].size(), tiles));
    }
  }
  return {};
}

}  // namespace

ReduceJob all_reduce_job(int rank, int size, std::span<float> data) {
  ReduceJob job = rank_order_job(rank, size, data.data());
  job.out = data.data();
  const std::size_t tile = tile_elements_for(data.size(), size);
  for (std::size_t begin = 0; begin < data.size(); begin += tile) {
    const int owner = static_cast<int>(job.tiles.size() % static_cast<std::size_t>(size));
    job.tiles.push_back({begin, begin, std::min(tile, data.size() - begin), owner, false});
  }
  return job;
}

Result<ReduceJob> reduce_scatter_job(int rank, int size, std::span<const float> in,
                                     std::span<float> out) {
  if (in.size() != out.size() * static_cast<std::size_t>(size)) {
    return fail(
        ErrorKind::invalid,
        fmt::format("reduce_scatter among {} ranks: in has {} floats, out {}; expected {} in", size,
                    in.size(), out.size(), out.size() * static_cast<std::size_t>(size)));
  }
  ReduceJob job = rank_order_job(rank, size, in.data());
  job.out = out.data();
  job.distribute = false;
  for (std::size_t begin = 0; begin < out.size(); begin += reduce_tile_elements) {
    for (int owner = 0; owner < size; ++owner) {
      const std::size_t in_offset = static_cast<std::size_t>(owner) * out.size() + begin;
      job.tiles.push_back(
          {in_offset, begin, std::min(reduce_tile_elements, out.size() - begin), owner, false});
    }
  }
  return job;
}

Result<ReduceJob> reduce_parts_job(int rank, int size, ReduceParts parts) {
  if (parts.elements > 0 && parts.tile_elements == 0) return wrong("tile_elements is 0");
  const std::size_t tiles =
      parts.elements == 0 ? 0 : (parts.elements - 1) / parts.tile_elements + 1;
  TESON_TRY_VOID(check_parts(rank, size, parts, tiles));
  ReduceJob job;
  job.rank = rank;
  job.size = size;
  std::vector<TreeNode> nodes;
  for (int holder = 0; holder < size; ++holder) {
    const auto& held = parts.held[static_cast<std::size_t>(holder)];
    nodes.insert(nodes.end(), held.begin(), held.end());
    for (std::size_t i = 0; i < held.size(); ++i) {
      job.term_ranks.push_back(holder);
      job.own_terms.push_back(holder == rank ? parts.own_parts[i] : nullptr);
    }
  }
  bool all_given = true;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::size_t begin = tile * parts.tile_elements;
    ReduceTile& work = job.tiles.emplace_back();
    work = {begin, begin, std::min(parts.tile_elements, parts.elements - begin),
            static_cast<int>(tile % static_cast<std::size_t>(size)), false};
    const auto giver = std::ranges::find_if(
        parts.finals, [tile](const auto& finals) { return finals[tile] != 0; });
    if (giver != parts.finals.end()) {
      work.owner = static_cast<int>(giver - parts.finals.begin());
      work.given = true;
    }
    all_given = all_given && work.given;
  }
  // Where every tile is final already, nobody needs to hold anything any more.
  if (!all_given || !nodes.empty()) {
    TESON_TRY(job.plan, MergePlan::along_tree(nodes, parts.lanes));
  }
  job.finals = std::move(parts.finals);
  job.out = parts.out;
  job.digests = parts.tile_digests;
  job.on_final = std::move(parts.on_final);
  return job;
}

}  // namespace teson::comm
