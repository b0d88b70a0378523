#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "teson/comm/lane_tree.h"

namespace teson::train {

/// The gradients of the running step that this rank holds, as nodes of the lane tree: one flat fp32
/// buffer a node. Sibling nodes are merged (left + right) as soon as both are here, so a rank with
/// w lanes of an aligned block keeps at most ⌊log2 w⌋ + 1 buffers. Buffers are reused from step to
/// step. One thread.
class LaneGradients {
 public:
  /// elements: floats in each buffer; lanes: leaves of the tree.
  LaneGradients(std::size_t elements, int lanes);

  /// A zeroed buffer to accumulate the next lane's gradient into. Valid until finish_lane or
  /// drop_lane.
  float* begin_lane();
  /// The buffer of begin_lane now holds the whole gradient of `lane`.
  void finish_lane(int lane);
  /// Forgets the lane that was begun.
  void drop_lane();

  bool holds(int lane) const;
  /// The nodes held, in order of their first lane: disjoint and as few as possible.
  std::vector<comm::TreeNode> nodes() const;
  /// Their buffers, in the same order. Valid until the next call that is not const.
  std::vector<const float*> parts() const;
  /// Forgets all nodes: the step is over.
  void clear();

 private:
  using Buffer = std::unique_ptr<float[]>;
  Buffer take();

  std::size_t elements_;
  int lanes_;
  std::map<int, std::pair<comm::TreeNode, Buffer>> nodes_;  // by first lane
  Buffer open_;
  std::vector<Buffer> spare_;
};

}  // namespace teson::train
