#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "teson/comm/lane_tree.h"

namespace teson::comm {
namespace {

/// The lanes of a node, by the definition: those whose number, shifted by the level, is the index.
std::set<int> lanes_by_definition(TreeNode node, int lanes) {
  std::set<int> covered;
  for (int lane = 0; lane < lanes; ++lane) {
    if (lane >> node.level == node.index) covered.insert(lane);
  }
  return covered;
}

std::vector<TreeNode> all_nodes(int lanes) {
  std::vector<TreeNode> nodes;
  for (int level = 0; level <= root_of(lanes).level; ++level) {
    for (int index = 0; index <= (lanes - 1) >> level; ++index)
      nodes.push_back({level, index});
  }
  return nodes;
}

std::vector<int> some_lanes(int lanes) {
  const auto chosen = *rc::gen::container<std::vector<bool>>(static_cast<std::size_t>(lanes),
                                                             rc::gen::arbitrary<bool>());
  std::vector<int> held;
  for (int lane = 0; lane < lanes; ++lane) {
    if (chosen[static_cast<std::size_t>(lane)]) held.push_back(lane);
  }
  return held;
}

RC_GTEST_PROP(LaneTree, a_nodes_lanes_are_those_of_the_definition, ()) {
  const int lanes = *rc::gen::inRange(1, 70);
  for (const TreeNode node : all_nodes(lanes)) {
    const auto [first, last] = lanes_of(node, lanes);
    std::set<int> covered;
    for (int lane = first; lane < last; ++lane)
      covered.insert(lane);
    RC_ASSERT(covered == lanes_by_definition(node, lanes));
  }
  RC_ASSERT(lanes_by_definition(root_of(lanes), lanes).size() == static_cast<std::size_t>(lanes));
}

RC_GTEST_PROP(LaneTree, relatives_fit_together, ()) {
  const int lanes = *rc::gen::inRange(2, 70);
  for (const TreeNode node : all_nodes(lanes)) {
    if (node == root_of(lanes)) continue;
    const TreeNode sibling = sibling_of(node);
    RC_ASSERT(sibling != node);
    RC_ASSERT(sibling_of(sibling) == node);
    RC_ASSERT(parent_of(sibling) == parent_of(node));
    RC_ASSERT((left_child_of(parent_of(node)) == std::min(node, sibling)));
    RC_ASSERT((right_child_of(parent_of(node)) == std::max(node, sibling)));
    std::set<int> both = lanes_by_definition(node, lanes);
    both.merge(lanes_by_definition(sibling, lanes));
    RC_ASSERT(both == lanes_by_definition(parent_of(node), lanes));
  }
}

RC_GTEST_PROP(LaneTree, a_cover_is_exact_disjoint_ordered_and_the_smallest, ()) {
  const int lanes = *rc::gen::inRange(1, 70);
  const std::vector<int> held = some_lanes(lanes);
  const std::vector<TreeNode> cover = cover_of(held, lanes);
  std::vector<int> covered;
  for (const TreeNode node : cover) {
    const auto of_node = lanes_by_definition(node, lanes);
    RC_ASSERT(!of_node.empty());
    covered.insert(covered.end(), of_node.begin(), of_node.end());
  }
  RC_ASSERT(covered == held);
  // The smallest by brute force: greedily the largest node that fits, from every lane on, highest
  // level first.
  std::set<int> left(held.begin(), held.end());
  std::size_t fewest = 0;
  auto nodes = all_nodes(lanes);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](TreeNode a, TreeNode b) { return a.level > b.level; });
  for (const TreeNode node : nodes) {
    const auto of_node = lanes_by_definition(node, lanes);
    if (!std::includes(left.begin(), left.end(), of_node.begin(), of_node.end())) continue;
    for (const int lane : of_node)
      left.erase(lane);
    ++fewest;
  }
  RC_ASSERT(cover.size() == fewest);
}

RC_GTEST_PROP(LaneTree, the_order_of_the_lanes_given_does_not_matter, ()) {
  const int lanes = *rc::gen::inRange(1, 40);
  const std::vector<int> held = some_lanes(lanes);
  std::vector<int> reversed(held.rbegin(), held.rend());
  RC_ASSERT(cover_of(held, lanes) == cover_of(reversed, lanes));
}

TEST(LaneTree, a_part_beyond_the_last_lane_counts_as_complete) {
  EXPECT_EQ(cover_of({2}, 3), (std::vector<TreeNode>{{1, 1}}));
  EXPECT_EQ(cover_of({0, 1, 2}, 3), (std::vector<TreeNode>{root_of(3)}));
  EXPECT_EQ(cover_of({}, 3), std::vector<TreeNode>{});
  // The worked example of eight lanes among three groups.
  EXPECT_EQ(cover_of({0, 1, 6}, 8), (std::vector<TreeNode>{{1, 0}, {0, 6}}));
}

}  // namespace
}  // namespace teson::comm
