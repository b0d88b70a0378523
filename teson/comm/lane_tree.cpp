#include "teson/comm/lane_tree.h"

#include <algorithm>

#include "teson/base/check.h"

namespace teson::comm {

std::pair<int, int> lanes_of(TreeNode node, int lanes) {
  const std::int64_t first = static_cast<std::int64_t>(node.index) << node.level;
  const std::int64_t last = static_cast<std::int64_t>(node.index + 1) << node.level;
  return {static_cast<int>(std::min<std::int64_t>(first, lanes)),
          static_cast<int>(std::min<std::int64_t>(last, lanes))};
}

TreeNode parent_of(TreeNode node) {
  return {node.level + 1, node.index / 2};
}
TreeNode sibling_of(TreeNode node) {
  return {node.level, node.index ^ 1};
}
TreeNode left_child_of(TreeNode node) {
  return {node.level - 1, node.index * 2};
}
TreeNode right_child_of(TreeNode node) {
  return {node.level - 1, node.index * 2 + 1};
}

TreeNode root_of(int lanes) {
  TESON_CHECK(lanes >= 1, lanes);
  TreeNode root;
  while ((std::int64_t{1} << root.level) < lanes)
    ++root.level;
  return root;
}

std::vector<TreeNode> cover_of(std::vector<int> lanes_held, int lanes) {
  std::sort(lanes_held.begin(), lanes_held.end());
  std::vector<TreeNode> level_nodes;
  for (const int lane : lanes_held) {
    TESON_CHECK(lane >= 0 && lane < lanes, lane, lanes);
    TESON_CHECK(level_nodes.empty() || level_nodes.back().index != lane, lane);
    level_nodes.push_back({0, lane});
  }
  std::vector<TreeNode> complete;
  for (const TreeNode root = root_of(lanes); !level_nodes.empty();) {
    std::vector<TreeNode> next;
    for (std::size_t i = 0; i < level_nodes.size(); ++i) {
      const TreeNode node = level_nodes[i];
      const bool is_left = node.index % 2 == 0;
      const bool with_sibling =
          is_left && i + 1 < level_nodes.size() && level_nodes[i + 1] == sibling_of(node);
      const auto [first, last] = lanes_of(sibling_of(node), lanes);
      if (node.level < root.level && (with_sibling || (is_left && first == last))) {
        next.push_back(parent_of(node));
        if (with_sibling) ++i;
      } else {
        complete.push_back(node);
      }
    }
    level_nodes = std::move(next);
  }
  std::sort(complete.begin(), complete.end(), [lanes](TreeNode a, TreeNode b) {
    return lanes_of(a, lanes).first < lanes_of(b, lanes).first;
  });
  return complete;
}

}  // namespace teson::comm
