#include "teson/quorum/deal.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>

#include "teson/base/check.h"

namespace teson::quorum {
namespace {

using comm::TreeNode;

int popcount(int value) {
  return std::popcount(static_cast<unsigned>(value));
}

int size_of(TreeNode node, int lanes) {
  const auto [first, last] = comm::lanes_of(node, lanes);
  return last - first;
}

/// Deals the lanes that nobody holds; see lanes_by_member.
class OrphanDeal {
 public:
  OrphanDeal(const EpochRecord& record)
      : lanes_(record.lanes_total), dealt_(record.members.size()) {
    std::vector<bool> is_held(static_cast<std::size_t>(lanes_), false);
    for (std::size_t rank = 0; rank < dealt_.size(); ++rank) {
      for (const int lane : record.members[rank].lanes_held) {
        TESON_CHECK(lane >= 0 && lane < lanes_ && !is_held[static_cast<std::size_t>(lane)], lane,
                    lanes_);
        is_held[static_cast<std::size_t>(lane)] = true;
        dealt_[rank].insert(lane);
      }
      loads_.push_back(static_cast<int>(dealt_[rank].size()));
    }
    const int busiest = *std::max_element(loads_.begin(), loads_.end());
    for (std::size_t rank = 0; rank < dealt_.size(); ++rank) {
      if (record.members[rank].learner) loads_[rank] = busiest;
    }
    std::vector<int> orphans;
    for (int lane = 0; lane < lanes_; ++lane) {
      if (!is_held[static_cast<std::size_t>(lane)]) orphans.push_back(lane);
    }
    const int work =
        std::accumulate(loads_.begin(), loads_.end(), static_cast<int>(orphans.size()));
    const int groups = static_cast<int>(loads_.size());
    fair_share_ = (work + groups - 1) / groups;
    blocks_ = comm::cover_of(orphans, lanes_);
  }

  std::vector<std::vector<int>> run() {
    while (!blocks_.empty()) {
      const auto largest =
          std::max_element(blocks_.begin(), blocks_.end(), [this](TreeNode a, TreeNode b) {
            const int size_a = size_of(a, lanes_);
            const int size_b = size_of(b, lanes_);
            return size_a != size_b
                       ? size_a < size_b
                       : comm::lanes_of(a, lanes_).first > comm::lanes_of(b, lanes_).first;
          });
      const TreeNode block = *largest;
      blocks_.erase(largest);
      place(block);
    }
    std::vector<std::vector<int>> result;
    for (const auto& lanes : dealt_)
      result.emplace_back(lanes.begin(), lanes.end());
    return result;
  }

 private:
  void place(TreeNode block) {
    const int size = size_of(block, lanes_);
    if (size == 0) return;
    std::size_t best = 0;
    for (std::size_t rank = 1; rank < loads_.size(); ++rank) {
      const bool is_sibling =
          holds(rank, comm::sibling_of(block)) && !holds(best, comm::sibling_of(block));
      if (loads_[rank] < loads_[best] || (loads_[rank] == loads_[best] && is_sibling)) best = rank;
    }
    if (size > 1 && loads_[best] + size > fair_share_) {
      blocks_.push_back(comm::left_child_of(block));
      blocks_.push_back(comm::right_child_of(block));
      return;
    }
    const auto [first, last] = comm::lanes_of(block, lanes_);
    for (int lane = first; lane < last; ++lane)
      dealt_[best].insert(lane);
    loads_[best] += size;
  }

  bool holds(std::size_t rank, TreeNode node) const {
    const auto [first, last] = comm::lanes_of(node, lanes_);
    for (int lane = first; lane < last; ++lane) {
      if (!dealt_[rank].contains(lane)) return false;
    }
    return first < last;
  }

  int lanes_;
  int fair_share_ = 0;
  std::vector<std::set<int>> dealt_;
  std::vector<int> loads_;
  std::vector<TreeNode> blocks_;
};

std::vector<std::vector<int>> elastic_slices(const EpochRecord& record) {
  const std::int64_t lanes = record.lanes_total;
  const std::int64_t replicas = record.replicas_expected;
  TESON_CHECK(replicas >= 1, replicas);
  std::vector<std::vector<int>> result;
  for (const Member& member : record.members) {
    std::vector<int>& slice = result.emplace_back();
    const std::int64_t replica = member.id.replica;
    if (replica < 0 || replica >= replicas) continue;
    for (std::int64_t lane = lanes * replica / replicas; lane < lanes * (replica + 1) / replicas;
         ++lane) {
      slice.push_back(static_cast<int>(lane));
    }
  }
  return result;
}

}  // namespace

std::vector<int> choose_weights(int lanes, int groups) {
  TESON_CHECK(lanes >= 0 && groups >= 1, lanes, groups);
  const int cap = (lanes + groups - 1) / groups;
  // Every group has cap lanes less some deficit; the deficits add up to `slack` < groups. cost[d]:
  // the least sum of popcounts of the groups so far with deficits adding up to d.
  const int slack = cap * groups - lanes;
  constexpr int unreachable = std::numeric_limits<int>::max() / 2;
  const auto width = static_cast<std::size_t>(slack) + 1;
  std::vector<std::vector<int>> cost(static_cast<std::size_t>(groups) + 1,
                                     std::vector<int>(width, unreachable));
  std::vector<std::vector<int>> chosen(cost.size(), std::vector<int>(width, 0));
  cost[0][0] = 0;
  for (std::size_t group = 1; group < cost.size(); ++group) {
    for (int total = 0; total <= slack; ++total) {
      for (int deficit = 0; deficit <= std::min(total, cap); ++deficit) {
        const int candidate =
            cost[group - 1][static_cast<std::size_t>(total - deficit)] + popcount(cap - deficit);
        if (candidate < cost[group][static_cast<std::size_t>(total)]) {
          cost[group][static_cast<std::size_t>(total)] = candidate;
          chosen[group][static_cast<std::size_t>(total)] = deficit;
        }
      }
    }
  }
  std::vector<int> weights;
  int total = slack;
  for (std::size_t group = cost.size() - 1; group >= 1; --group) {
    const int deficit = chosen[group][static_cast<std::size_t>(total)];
    weights.push_back(cap - deficit);
    total -= deficit;
  }
  TESON_CHECK(total == 0, total);
  std::sort(weights.begin(), weights.end(), std::greater<>());
  return weights;
}

std::vector<std::vector<int>> buddy_deal(const std::vector<int>& weights) {
  struct Block {
    int size;
    std::size_t group;
  };
  std::vector<Block> blocks;
  for (std::size_t group = 0; group < weights.size(); ++group) {
    TESON_CHECK(weights[group] >= 0, weights[group]);
    for (int bit = 0; bit < 31; ++bit) {
      if ((weights[group] >> bit & 1) != 0) blocks.push_back({1 << bit, group});
    }
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.size != b.size ? a.size > b.size : a.group < b.group;
  });
  std::vector<std::vector<int>> result(weights.size());
  int lane = 0;
  for (const Block& block : blocks) {
    for (int i = 0; i < block.size; ++i)
      result[block.group].push_back(lane++);
  }
  return result;
}

bool is_interrupted(const EpochRecord& record, std::int64_t step) {
  if (record.mode != Mode::exact || record.verdict != Verdict::go_on ||
      step != record.base_step + 1)
    return false;
  return std::any_of(record.members.begin(), record.members.end(), [](const Member& member) {
    return !member.lanes_held.empty() || !member.tiles_final.empty();
  });
}

std::vector<std::vector<int>> lanes_by_member(const EpochRecord& record, std::int64_t step) {
  TESON_CHECK(!record.members.empty() && record.lanes_total >= 1, record.lanes_total);
  TESON_CHECK(step > record.base_step, step, record.base_step);
  if (record.mode == Mode::elastic) return elastic_slices(record);
  if (is_interrupted(record, step)) return OrphanDeal(record).run();
  std::vector<int> weights;
  for (const Member& member : record.members)
    weights.push_back(member.lanes);
  TESON_CHECK(std::accumulate(weights.begin(), weights.end(), 0) == record.lanes_total,
              record.lanes_total);
  return buddy_deal(weights);
}

std::vector<std::vector<comm::TreeNode>> nodes_by_member(const EpochRecord& record,
                                                         std::int64_t step) {
  std::vector<std::vector<comm::TreeNode>> result;
  for (const auto& lanes : lanes_by_member(record, step))
    result.push_back(comm::cover_of(lanes, record.lanes_total));
  return result;
}

std::vector<std::vector<std::uint8_t>> finals_by_member(const EpochRecord& record,
                                                        std::int64_t step, std::size_t tiles) {
  if (!is_interrupted(record, step)) return {};
  std::vector<std::vector<std::uint8_t>> result;
  bool any = false;
  for (const Member& member : record.members) {
    std::vector<std::uint8_t>& row = result.emplace_back(tiles, std::uint8_t{0});
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      row[tile] = tile_is_final(member, tile) ? 1 : 0;
      any |= row[tile] != 0;
    }
  }
  return any ? result : std::vector<std::vector<std::uint8_t>>{};
}

int donor_of(const EpochRecord& record, int rank) {
  TESON_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < record.members.size(), rank);
  if (!record.members[static_cast<std::size_t>(rank)].learner) return -1;
  std::vector<int> donors;
  int turn = 0;
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    if (!record.members[i].learner)
      donors.push_back(static_cast<int>(i));
    else if (static_cast<int>(i) < rank)
      ++turn;
  }
  TESON_CHECK(!donors.empty());
  return donors[static_cast<std::size_t>(turn) % donors.size()];
}

}  // namespace teson::quorum
