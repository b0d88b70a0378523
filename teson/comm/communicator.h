#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "teson/base/error.h"
#include "teson/comm/lane_tree.h"

namespace teson::comm {

/// One asynchronous operation. A cheap handle; copies mean the same operation. Threads: any.
class Work {
 public:
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Blocks until the operation ended: done, failed (disconnected: a peer is gone), or aborted.
  /// Never longer than that.
  Result<void> wait() const;
  bool done() const;

 private:
  std::shared_ptr<State> state_;
};

/// The sum, along the lane tree, of buffers that different ranks hold for different nodes of it.
/// Every rank describes the same `held` and `finals`; only the pointers are its own. All pointers
/// stay valid until the Work has ended.
struct ReduceParts {
  std::size_t elements = 0;  ///< floats in each buffer
  /// The unit of reduction: tile j covers [j·tile_elements, (j+1)·tile_elements).
  std::size_t tile_elements = 0;
  int lanes = 0;  ///< leaves of the tree
  /// Per rank: the nodes it holds, disjoint over all ranks. Lanes that nobody holds are absent and
  /// skipped by the sum.
  std::vector<std::vector<TreeNode>> held;
  /// The buffers of held[own rank], in its order. Not changed.
  std::vector<const float*> own_parts;
  /// Per rank and tile: 1 where that rank's `out` already holds the final tile. A tile that is
  /// final anywhere is sent from the lowest such rank and not summed again. Empty: none is final
  /// anywhere.
  std::vector<std::vector<std::uint8_t>> finals;
  float* out = nullptr;  ///< overlaps none of own_parts
  /// XXH3 of each final tile's bytes, filled as tiles become final; already final ones are filled
  /// by the caller. Size: tiles.
  std::uint64_t* tile_digests = nullptr;
  /// Called on the communicator's thread as each tile of `out` becomes final here. May be empty.
  /// Must be quick.
  std::function<void(std::size_t tile)> on_final;
};

/// Collectives among the ranks of one epoch. Operations start at once and run on the communicator's
/// own thread. Collectives run and end in the order in which they were started, which must be the
/// same on every rank. Messages (send, recv) go beside them and end when they are done; but one that
/// was sent after its sender had started a collective lies behind that one's bytes, so its receiver
/// must have started the same collective before it waits for the message. Buffers are
/// contiguous and belong to the caller, who keeps them alive and untouched until the Work ended.
/// Sums are taken in rank order (or along the lane tree), so all ranks get the same bits, always
/// the same. Threads: any; operations may be started from several, if their order is the same on
/// every rank.
///
/// A peer's end of stream fails the operations that need it, at once, with `disconnected` naming
/// the rank; nothing is retried. After the first failure of an operation the communicator has
/// ended: every other one fails with the same error. Arguments that do not fit are `invalid`, and
/// start nothing.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::uint64_t epoch() const = 0;

  /// data[i] becomes the sum over ranks 0 … size-1, in that order.
  virtual Work all_reduce(std::span<float> data) = 0;
  /// in: size·n floats, out: n floats: the sum of everybody's n floats at rank()·n.
  virtual Work reduce_scatter(std::span<const float> in, std::span<float> out) = 0;
  /// out: size·n bytes; the n bytes of rank r land at r·n.
  virtual Work all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  /// in and out: size·n bytes; bytes r·n … of `in` go to rank r, bytes r·n … of `out` come from it.
  virtual Work all_to_all(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  virtual Work broadcast(std::span<std::byte> data, int root) = 0;
  /// Point to point, matched by `tag` in order of sending.
  virtual Work send(std::span<const std::byte> data, int to, std::uint32_t tag) = 0;
  virtual Work recv(std::span<std::byte> data, int from, std::uint32_t tag) = 0;
  virtual Work barrier() = 0;
  virtual Work reduce_parts(ReduceParts parts) = 0;

  /// Ends every running operation, and every later one, with `error` (usually kind aborted), within
  /// milliseconds. Threads: any.
  virtual void abort(Error error) = 0;
};

}  // namespace teson::comm
