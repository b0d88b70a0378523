#include "teson/train/lane_gradients.h"

#include <cstring>
#include <utility>

#include "teson/base/check.h"

namespace teson::train {
namespace {

void add_into(float* left, const float* right, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i)
    left[i] = left[i] + right[i];
}

}  // namespace

LaneGradients::LaneGradients(std::size_t elements, int lanes)
    : elements_(elements), lanes_(lanes) {}

LaneGradients::Buffer LaneGradients::take() {
  if (spare_.empty()) return std::make_unique_for_overwrite<float[]>(elements_);
  Buffer buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

float* LaneGradients::begin_lane() {
  TESON_CHECK(!open_);
  open_ = take();
  std::memset(open_.get(), 0, elements_ * sizeof(float));
  return open_.get();
}

void LaneGradients::drop_lane() {
  if (open_) spare_.push_back(std::move(open_));
}

void LaneGradients::finish_lane(int lane) {
  TESON_CHECK(open_ != nullptr);
  TESON_CHECK(!holds(lane), lane);
  comm::TreeNode node{0, lane};
  Buffer buffer = std::move(open_);
  const comm::TreeNode root = comm::root_of(lanes_);
  while (node.level < root.level) {
    const auto [first, last] = comm::lanes_of(comm::sibling_of(node), lanes_);
    if (first != last) {
      const auto sibling = nodes_.find(first);
      if (sibling == nodes_.end() || sibling->second.first != comm::sibling_of(node)) break;
      Buffer other = std::move(sibling->second.second);
      nodes_.erase(sibling);
      if (node.index % 2 != 0) std::swap(buffer, other);
      add_into(buffer.get(), other.get(), elements_);
      spare_.push_back(std::move(other));
    }
    node = comm::parent_of(node);
  }
  nodes_.emplace(comm::lanes_of(node, lanes_).first, std::pair(node, std::move(buffer)));
}

bool LaneGradients::holds(int lane) const {
  auto after = nodes_.upper_bound(lane);
  if (after == nodes_.begin()) return false;
  return lane < comm::lanes_of(std::prev(after)->second.first, lanes_).second;
}

std::vector<comm::TreeNode> LaneGradients::nodes() const {
  std::vector<comm::TreeNode> list;
  for (const auto& [first, entry] : nodes_)
    list.push_back(entry.first);
  return list;
}

std::vector<const float*> LaneGradients::parts() const {
  std::vector<const float*> list;
  for (const auto& [first, entry] : nodes_)
    list.push_back(entry.second.get());
  return list;
}

void LaneGradients::clear() {
  drop_lane();
  for (auto& [first, entry] : nodes_)
    spare_.push_back(std::move(entry.second));
  nodes_.clear();
}

}  // namespace teson::train
