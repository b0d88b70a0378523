#pragma once

#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

namespace teson::comm {

/// A node of the balanced binary tree over lanes 0 … lanes-1: node (level, index) covers the lanes
/// [index·2^level, (index+1)·2^level) ∩ [0, lanes). Its value is the left child's value plus the
/// right child's; a child without lanes is skipped, never added as zero. Sums defined this way
/// depend on who computed what in nothing.
struct TreeNode {
  std::int32_t level = 0;
  std::int32_t index = 0;
  auto operator<=>(const TreeNode&) const = default;
};

/// The lanes a node covers, as [first, last). Empty for a node beyond the last lane.
std::pair<int, int> lanes_of(TreeNode node, int lanes);
TreeNode parent_of(TreeNode node);
TreeNode sibling_of(TreeNode node);
TreeNode left_child_of(TreeNode node);
TreeNode right_child_of(TreeNode node);
/// The node that covers all lanes. lanes >= 1.
TreeNode root_of(int lanes);

/// The fewest nodes that together cover exactly the given lanes (sorted or not, each at most once),
/// in order of their first lane. A node whose missing part lies beyond the last lane counts as
/// complete: with 3 lanes, {2} is node (1, 1).
std::vector<TreeNode> cover_of(std::vector<int> lanes_held, int lanes);

}  // namespace teson::comm
