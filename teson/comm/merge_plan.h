#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "teson/base/error.h"
#include "teson/comm/lane_tree.h"

namespace teson::comm {

/// In which order buffers ("terms") are added: a program of pairwise additions, each rounded to
/// fp32. The order is all that decides the bits, so plans for the same terms give the same sum
/// wherever they run. Immutable once made.
class MergePlan {
 public:
  /// ((term 0 + term 1) + term 2) + …
  static MergePlan in_order(int terms);
  /// Along the lane tree: terms[i] is the value of node i; a node without lanes among the terms is
  /// skipped. `invalid` if nodes overlap, lie outside the tree, or there is none.
  static Result<MergePlan> along_tree(std::span<const TreeNode> nodes, int lanes);

  int terms() const { return terms_; }
  /// out[i] = the sum of terms[·][i]. `out` may be the same buffer as one of the terms, not overlap
  /// one otherwise. Returns early, with `out` unfinished, soon after `stop` becomes true.
  void run(std::span<const float* const> terms, float* out, std::size_t elements,
           const std::atomic<bool>& stop) const;

 private:
  /// An operand: 0 or above is a term, below 0 is slot -1-operand of scratch memory.
  struct Addition {
    int target;
    int left;
    int right;
  };
  struct TreeBuilder;

  int terms_ = 0;
  int slots_ = 0;
  int root_ = 0;
  std::vector<Addition> additions_;
};

}  // namespace teson::comm
