#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/address.h"
#include "teson/net/loop.h"
#include "teson/quorum/deal.h"
#include "teson/quorum/member_state.h"
#include "teson/quorum/protocol.h"
#include "teson/quorum/record.h"
#include "teson/quorum/vote.h"

namespace teson::quorum {

struct MemberOptions {
  net::Address lighthouse;
  std::string job;
  std::string secret;  ///< of the job; empty only on loopback and Unix sockets
  std::uint64_t instance =
      0;  ///< given by whoever spawned the process, so that it can report the death; 0: made here
  std::int32_t replica = 0;
  std::int32_t shard = 0;
  std::string
      data_address;  ///< where this rank's communicator listens; handed to all peers as it is
  std::string host;  ///< for people; empty: the machine's name
  std::uint64_t plan_hash = 0;
  std::int32_t lanes_total = 1;
  Mode mode = Mode::exact;
  /// Whether this process holds the state after `step` (a checkpoint, or fresh and equal on all
  /// ranks at step 0), with its chain.
  bool has_state = false;
  std::int64_t step = 0;
  std::uint64_t chain = 0;
  /// Of the checkpoint that the state came from; 0: fresh. A job that begins anew takes a higher
  /// one, so that its checkpoints are newer than all before.
  std::uint64_t incarnation = 0;
  /// How long the smallest piece of work took when it was tried (one microbatch): the lighthouse
  /// suspects no hang before several times this.
  Duration work{};
  /// Called on the loop's thread the moment a newer epoch is promised, before the lighthouse gets
  /// its answer: abort the communicators of older epochs here. Must not block and must not call the
  /// MemberClient. With INT64_MAX (perhaps on the connecting thread): this process was refused or
  /// expelled, nothing of it goes on.
  std::function<void(std::int64_t epoch)> on_fence;
};

/// A rank's connection to the lighthouse, and its side of the step protocol (member_state.h). It
/// says HELLO, beats, answers FENCEs and takes STARTs on the loop's thread without the step loop's
/// help; when the link breaks it reconnects, for as long as it takes, while training goes on.
/// Threads: the step loop's calls from any thread; they take a mutex for microseconds and never
/// wait for the network, but for wait_start and leave.
///
///     for (;;) {
///       TESON_TRY(auto order, member.wait_start(timeout));  // aborted: closed; invalid: refused
///       communicator = connect(order.record.epoch, order.rank, addresses of order.record.members);
///       if (order.apply_prepared) apply the kept gradient;
///       if (order.discard) forget lanes and tiles of the step begun;
///       donors send, learners receive and call set_level(epoch, base_step, base_chain);
///       for (t = base_step + 1;; ++t) {                     // any `aborted`: back to wait_start
///         member.begin_step(epoch, t);
///         for each lane of lanes_by_member(record, t)[rank] that is not computed yet:
///           member.hold_lane(epoch, lane), compute;
///         reduce_parts{nodes_by_member(record, t), finals_by_member(record, t),
///                      on_final: member.hold_final(epoch, tile)};
///         member.prepare(vote); all_gather(vote); decide(votes);
///         unanimous: member.commit(epoch, outcome), then apply;
///         else member.report_mismatch;
///       }
///     }
class MemberClient {
 public:
  /// Starts connecting at once, on a thread of its own, and returns without waiting. `loop` must
  /// outlive it.
  static std::unique_ptr<MemberClient> start(net::Loop& loop, MemberOptions options);
  /// Closes. Not on the loop's thread.
  ~MemberClient();
  MemberClient(const MemberClient&) = delete;
  MemberClient& operator=(const MemberClient&) = delete;

  std::uint64_t instance() const;

  /// Blocks until there is an order newer than the last one returned which no FENCE has overtaken.
  /// Errors: `invalid`: the lighthouse refused this process for good, or expelled it (the message
  /// says why: exit); `aborted`: close or leave was called; `timed_out`.
  Result<StartOrder> wait_start(Duration timeout);
  /// A newer epoch than the one last returned by wait_start is promised: the step loop should go
  /// back to wait_start soon.
  bool fenced() const;

  // The step loop's calls; errors as in MemberState.
  Result<void> set_level(std::int64_t epoch, std::int64_t step, std::uint64_t chain);
  Result<void> begin_step(std::int64_t epoch, std::int64_t step);
  Result<void> hold_lane(std::int64_t epoch, std::int32_t lane);
  Result<void> hold_final(std::int64_t epoch, std::size_t tile);
  Result<void> prepare(const Vote& vote);
  Result<void> commit(std::int64_t epoch, const Outcome& outcome);

  /// What the step loop is doing, for the hang rule. Two atomic stores.
  void set_phase(Phase phase);
  /// Something was done (a lane, a tile, a batch of an evaluation). One atomic addition.
  void add_progress(std::uint64_t amount = 1);

  /// A communicator's connection to `rank` of `epoch` is broken. The lighthouse decides; FENCE
  /// follows within two heartbeats at the latest.
  void report_peer_lost(std::int64_t epoch, int rank, const std::string& what);
  /// decide() said mismatch. A FENCE follows.
  void report_mismatch(std::int64_t epoch, std::int64_t step, const std::vector<int>& ranks);

  /// Takes no further part, tells the lighthouse (waiting at most `timeout` for it to take the
  /// message) and closes. `finished`: the job's last step is committed here. Idempotent.
  void leave(bool finished, const std::string& why, Duration timeout);
  /// Ends the connection and every wait. What the lighthouse sees is an end of stream.
  void close();

  /// Committed step and its chain, active and promised epoch: a snapshot.
  Status status() const;
  /// Whether the lighthouse is reachable now.
  bool connected() const;

 private:
  class Impl;
  explicit MemberClient(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace teson::quorum
