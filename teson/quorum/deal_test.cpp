#include "teson/quorum/deal.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/base/random.h"

namespace teson::quorum {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Lanes = std::vector<int>;

EpochRecord record_of(int lanes, int replicas, Verdict verdict = Verdict::commit) {
  EpochRecord record;
  record.epoch = make_epoch(1, 1);
  record.verdict = verdict;
  record.lanes_total = lanes;
  record.replicas_expected = replicas;
  const auto weights = choose_weights(lanes, replicas);
  for (int i = 0; i < replicas; ++i) {
    Member member;
    member.id = {static_cast<std::uint64_t>(100 + i), i, 0};
    member.lanes = weights[static_cast<std::size_t>(i)];
    record.members.push_back(member);
  }
  return record;
}

int popcounts(const std::vector<int>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0, [](int sum, int w) {
    return sum + std::popcount(static_cast<unsigned>(w));
  });
}

/// Every way to write `lanes` as `groups` weights, descending.
void each_choice(int lanes, int groups, int most, Lanes& chosen,
                 const std::function<void(const Lanes&)>& visit) {
  if (groups == 0) {
    if (lanes == 0) visit(chosen);
    return;
  }
  for (int w = std::min(lanes, most); w >= 0; --w) {
    chosen.push_back(w);
    each_choice(lanes - w, groups - 1, w, chosen, visit);
    chosen.pop_back();
  }
}

void expect_each_lane_once(const std::vector<Lanes>& dealt, int lanes) {
  std::vector<int> all;
  for (const Lanes& mine : dealt) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int> expected(static_cast<std::size_t>(lanes));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(Deal, worked_example_of_eight_lanes_and_three_groups) {
  EpochRecord record = record_of(8, 3);
  EXPECT_THAT(choose_weights(8, 3), ElementsAre(3, 3, 2));
  EXPECT_THAT(lanes_by_member(record, 1), ElementsAre(Lanes{0, 1, 6}, Lanes{2, 3, 7}, Lanes{4, 5}));
  const auto nodes = nodes_by_member(record, 1);
  EXPECT_THAT(nodes[0], ElementsAre(comm::TreeNode{1, 0}, comm::TreeNode{0, 6}));
  EXPECT_THAT(nodes[1], ElementsAre(comm::TreeNode{1, 1}, comm::TreeNode{0, 7}));
  EXPECT_THAT(nodes[2], ElementsAre(comm::TreeNode{1, 2}));
}

TEST(Deal, worked_example_goes_on_after_a_death_in_the_reduction) {
  EpochRecord record = record_of(8, 2, Verdict::go_on);
  record.members[0].lanes_held = {0, 1, 6};
  record.members[1].lanes_held = {4, 5};
  EXPECT_THAT(lanes_by_member(record, 1), ElementsAre(Lanes{0, 1, 6, 7}, Lanes{2, 3, 4, 5}));
  const auto nodes = nodes_by_member(record, 1);
  EXPECT_THAT(nodes[0], ElementsAre(comm::TreeNode{1, 0}, comm::TreeNode{1, 3}));
  EXPECT_THAT(nodes[1], ElementsAre(comm::TreeNode{1, 1}, comm::TreeNode{1, 2}));
  EXPECT_THAT(lanes_by_member(record, 2), ElementsAre(Lanes{0, 1, 2, 3}, Lanes{4, 5, 6, 7}))
      << "then the fresh deal";
}

TEST(Deal, other_published_weights) {
  EXPECT_THAT(choose_weights(12, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(choose_weights(64, 3), ElementsAre(22, 22, 20));
  EXPECT_THAT(choose_weights(2, 4), ElementsAre(1, 1, 0, 0))
      << "groups beyond the lanes are spares";
  EXPECT_THAT(choose_weights(8, 1), ElementsAre(8));
}

TEST(Deal, weights_are_the_best_of_all_choices) {
  for (int lanes = 1; lanes <= 16; ++lanes) {
    for (int groups = 1; groups <= 5; ++groups) {
      const Lanes weights = choose_weights(lanes, groups);
      ASSERT_THAT(weights, SizeIs(static_cast<std::size_t>(groups)));
      ASSERT_EQ(std::accumulate(weights.begin(), weights.end(), 0), lanes);
      Lanes chosen;
      each_choice(lanes, groups, lanes, chosen, [&](const Lanes& other) {
        EXPECT_LE(std::pair(weights[0], popcounts(weights)), std::pair(other[0], popcounts(other)))
            << lanes << " lanes, " << groups << " groups";
      });
    }
  }
}

TEST(Deal, buddy_blocks_are_aligned_nodes_one_for_each_bit_of_the_weight) {
  for (int lanes = 1; lanes <= 40; ++lanes) {
    for (int groups = 1; groups <= 9; ++groups) {
      const EpochRecord record = record_of(lanes, groups);
      const auto dealt = lanes_by_member(record, 1);
      expect_each_lane_once(dealt, lanes);
      const auto nodes = nodes_by_member(record, 1);
      for (std::size_t i = 0; i < dealt.size(); ++i) {
        const int weight = record.members[i].lanes;
        EXPECT_THAT(dealt[i], SizeIs(static_cast<std::size_t>(weight)));
        EXPECT_LE(nodes[i].size(),
                  static_cast<std::size_t>(std::popcount(static_cast<unsigned>(weight))));
      }
    }
  }
}

TEST(Deal, interrupted_steps_keep_what_is_held_and_spread_the_rest_fairly) {
  CounterRandom random({42});
  for (int round = 0; round < 3000; ++round) {
    const int lanes = 1 + static_cast<int>(random.below(24));
    const int groups = 1 + static_cast<int>(random.below(6));
    EpochRecord record = record_of(lanes, groups, Verdict::go_on);
    int held = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const auto owner = random.below(static_cast<std::uint64_t>(groups) * 2);
      if (owner >= static_cast<std::uint64_t>(groups)) continue;
      record.members[owner].lanes_held.push_back(lane);
      ++held;
    }
    if (held == 0) continue;
    int busiest_before = 0;
    for (const Member& member : record.members)
      busiest_before = std::max(busiest_before, static_cast<int>(member.lanes_held.size()));
    const auto dealt = lanes_by_member(record, record.base_step + 1);
    expect_each_lane_once(dealt, lanes);
    std::size_t busiest = 0;
    for (std::size_t i = 0; i < dealt.size(); ++i) {
      busiest = std::max(busiest, dealt[i].size());
      for (const int lane : record.members[i].lanes_held)
        EXPECT_TRUE(std::binary_search(dealt[i].begin(), dealt[i].end(), lane));
    }
    EXPECT_LE(static_cast<int>(busiest),
              std::max(busiest_before, (lanes + groups - 1) / groups) + 1);
  }
}

TEST(Deal, learner_counts_as_busy_as_the_busiest) {
  EpochRecord record = record_of(8, 2, Verdict::go_on);
  record.members[0].lanes_held = {0, 1, 2, 3};
  record.members[1].learner = true;
  EXPECT_THAT(lanes_by_member(record, 1), ElementsAre(Lanes{0, 1, 2, 3, 4, 5}, Lanes{6, 7}));
}

TEST(Deal, elastic_replicas_compute_their_own_slices_only) {
  EpochRecord record = record_of(8, 3);
  record.mode = Mode::elastic;
  record.members.erase(record.members.begin() + 1);
  record.members.push_back(record.members[0]);
  record.members.back().id.replica = 3;
  EXPECT_THAT(lanes_by_member(record, 1), ElementsAre(Lanes{0, 1}, Lanes{5, 6, 7}, IsEmpty()));
}

TEST(Deal, finals_are_those_of_the_record) {
  EpochRecord record = record_of(4, 2, Verdict::go_on);
  record.members[0].lanes_held = {0};
  EXPECT_THAT(finals_by_member(record, 1, 10), IsEmpty());
  set_tile(record.members[1].tiles_final, 9);
  set_tile(record.members[1].tiles_final, 0);
  const auto finals = finals_by_member(record, 1, 10);
  ASSERT_THAT(finals, SizeIs(2));
  EXPECT_THAT(finals[0], ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(finals[1], ElementsAre(1, 0, 0, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(finals_by_member(record, 2, 10), IsEmpty());
}

TEST(Deal, learners_are_fed_in_turn) {
  EpochRecord record = record_of(8, 5);
  record.members[1].learner = record.members[2].learner = record.members[4].learner = true;
  EXPECT_EQ(donor_of(record, 0), -1);
  EXPECT_EQ(donor_of(record, 1), 0);
  EXPECT_EQ(donor_of(record, 2), 3);
  EXPECT_EQ(donor_of(record, 4), 0);
}

}  // namespace
}  // namespace teson::quorum
