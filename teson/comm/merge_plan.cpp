#include "teson/comm/merge_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <fmt/core.h>

#include "teson/base/check.h"

namespace teson::comm {
namespace {

/// Terms and scratch of one block stay in the first-level cache.
constexpr std::size_t block_elements = 2048;
constexpr int lanes_max = 1 << 17;

void add(float* target, const float* left, const float* right, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i)
    target[i] = left[i] + right[i];
}

}  // namespace

MergePlan MergePlan::in_order(int terms) {
  TESON_CHECK(terms >= 1, terms);
  MergePlan plan;
  plan.terms_ = terms;
  for (int term = 1; term < terms; ++term) {
    plan.additions_.push_back({-1, plan.root_, term});
    plan.root_ = -1;
    plan.slots_ = 1;
  }
  return plan;
}

struct MergePlan::TreeBuilder {
  MergePlan& plan;
  std::map<TreeNode, int> terms;
  int lanes;
  int found = 0;

  /// The operand with the value of `node`, using scratch from slot `free` on; nothing if it has no
  /// lanes here.
  std::optional<int> visit(TreeNode node, int free) {
    const auto [first, last] = lanes_of(node, lanes);
    if (first == last) return std::nullopt;
    if (const auto term = terms.find(node); term != terms.end()) {
      ++found;
      return term->second;
    }
    if (node.level == 0) return std::nullopt;
    const auto left = visit(left_child_of(node), free);
    const auto right = visit(right_child_of(node), left && *left < 0 ? free + 1 : free);
    if (!left || !right) return left ? left : right;
    const int target = -1 - free;
    plan.slots_ = std::max(plan.slots_, free + 1);
    plan.additions_.push_back({target, *left, *right});
    return target;
  }
};

Result<MergePlan> MergePlan::along_tree(std::span<const TreeNode> nodes, int lanes) {
  if (lanes < 1 || lanes > lanes_max) {
    return fail(ErrorKind::invalid,
                fmt::format("lane tree: expected 1 to {} lanes, found {}", lanes_max, lanes));
  }
  const TreeNode root = root_of(lanes);
  MergePlan plan;
  plan.terms_ = static_cast<int>(nodes.size());
  TreeBuilder builder{plan, {}, lanes};
  for (const TreeNode node : nodes) {
    const bool in_tree = node.level >= 0 && node.level <= root.level && node.index >= 0 &&
                         node.index <= lanes_max &&
                         lanes_of(node, lanes).first < lanes_of(node, lanes).second;
    if (!in_tree) {
      return fail(ErrorKind::invalid,
                  fmt::format("lane tree: node (level {}, index {}) is not in the tree of {} lanes",
                              node.level, node.index, lanes));
    }
    builder.terms.emplace(node, static_cast<int>(builder.terms.size()));
  }
  const auto operand = builder.visit(root, 0);
  if (!operand)
    return fail(ErrorKind::invalid, "lane tree: no rank holds any lane, so there is no sum");
  if (builder.found != plan.terms_) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "lane tree: {} nodes were given but only {} do not overlap: some lane is held twice",
            plan.terms_, builder.found));
  }
  plan.root_ = *operand;
  return plan;
}

void MergePlan::run(std::span<const float* const> terms, float* out, std::size_t elements,
                    const std::atomic<bool>& stop) const {
  TESON_CHECK(static_cast<int>(terms.size()) == terms_, terms.size(), terms_);
  if (additions_.empty()) {
    if (terms[static_cast<std::size_t>(root_)] != out) {
      std::memmove(out, terms[static_cast<std::size_t>(root_)], elements * sizeof(float));
    }
    return;
  }
  std::vector<float> scratch(static_cast<std::size_t>(slots_) * block_elements);
  for (std::size_t begin = 0; begin < elements; begin += block_elements) {
    if (stop.load(std::memory_order_relaxed)) return;
    const auto operand = [&](int index) -> const float* {
      return index >= 0 ? terms[static_cast<std::size_t>(index)] + begin
                        : scratch.data() + static_cast<std::size_t>(-1 - index) * block_elements;
    };
    const std::size_t count = std::min(block_elements, elements - begin);
    for (const Addition& addition : additions_) {
      const bool last = &addition == &additions_.back();
      float* const target =
          last ? out + begin
               : scratch.data() + static_cast<std::size_t>(-1 - addition.target) * block_elements;
      add(target, operand(addition.left), operand(addition.right), count);
    }
  }
}

}  // namespace teson::comm
