#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::quorum {

// How torchft's lighthouse forms a quorum, as a pure function of (state, now): no threads, no
// sockets, no protobuf. Members ask; an asking member takes part in the next quorum; a quorum is
// formed when the last one is complete again, when every heartbeating member asked, or when a
// majority of those waited for the stragglers long enough. Three things are stricter than in
// torchft: min_replicas holds on every path, a stranger's shrink_only never forms an empty quorum,
// and a call that ended no longer takes part.

struct TorchftRules {
  std::size_t min_replicas = 1;
  Duration join_timeout = std::chrono::seconds(
      60);  ///< how long a majority waits for heartbeating members that did not ask
  Duration heartbeat_timeout =
      std::chrono::seconds(5);  ///< a member is healthy while its last heartbeat is younger
};

/// One member as it asked. The rules read the first three fields; `payload` (its message as bytes,
/// fields unknown to us included) is carried along untouched.
struct TorchftMember {
  std::string replica_id;
  bool shrink_only = false;
  std::int64_t commit_failures = 0;
  std::string payload;
};

/// One call that waits for a quorum. Numbers are never used twice.
using TorchftTicket = std::uint64_t;

struct TorchftParticipant {
  Instant joined{};
  bool shrink_only = false;
  TorchftTicket ticket = 0;  ///< not read by the rules
};

/// All that a decision depends on. Maps are ordered, so members come out sorted bytewise by
/// replica_id ("name_10" before "name_2").
struct TorchftState {
  std::map<std::string, Instant, std::less<>> heartbeats;
  std::map<std::string, TorchftParticipant, std::less<>>
      participants;                                  ///< who asked for the next quorum
  std::optional<std::vector<std::string>> previous;  ///< ids of the last quorum, sorted
  std::int64_t quorum_id = 0;
};

struct TorchftDecision {
  bool ready = false;
  std::vector<std::string> members;  ///< if ready: never empty, sorted
  /// Why, in torchft's words: "New quorum not ready, only have 1 participants, need min_replicas 2
  /// [1/1 participants healthy]…".
  std::string reason;
};

TorchftDecision torchft_decide(const TorchftState& state, const TorchftRules& rules, Instant now);

/// The earliest instant after `now` at which `torchft_decide` may answer otherwise though nobody
/// speaks: a heartbeat grows too old or the stragglers have been waited for. Empty: never.
std::optional<Instant> torchft_next_change(const TorchftState& state, const TorchftRules& rules,
                                           Instant now);

/// A quorum that was just formed.
struct TorchftQuorum {
  std::int64_t quorum_id = 0;
  bool changed =
      false;  ///< the id is new: other members than last time, or a member reports commit failures
  std::vector<TorchftMember> members;
  std::vector<TorchftTicket>
      tickets;  ///< the calls that it answers, in the order in which they asked
};

/// Bounds on what callers can make the lighthouse keep.
struct TorchftLimits {
  std::size_t replica_id_bytes_max = 1024;
  std::size_t payload_bytes_max = std::size_t{1} << 20;
  /// Of all waiting members together: torchft's clients read replies of at most 4 MiB.
  std::size_t quorum_bytes_max = (std::size_t{4} << 20) - 4096;
  std::size_t waiting_max = 16384;     ///< calls that wait at once
  std::size_t heartbeats_max = 65536;  ///< members that are known at once
  int heartbeat_kept_timeouts =
      10;  ///< a silent member is forgotten after this many heartbeat timeouts
};

/// The state with its transitions. One owner, one thread at a time.
class TorchftLighthouse {
 public:
  /// `quorum_id` is the last id in use: the first quorum gets the next one.
  explicit TorchftLighthouse(TorchftRules rules, TorchftLimits limits = {},
                             std::int64_t quorum_id = 0);

  /// Fails with `invalid` (no or too long an id) or `overloaded`.
  Result<void> heartbeat(std::string_view replica_id, Instant now);

  /// The member waits for the next quorum; counts as its heartbeat. A second call under the same id
  /// replaces the first as the member, and both are answered. Fails as `heartbeat`, or when the
  /// member is too large for a quorum. Call `tick` afterwards.
  Result<TorchftTicket> join(TorchftMember member, Instant now);

  /// The call ended without an answer (cancelled, past its deadline, disconnected): it takes part
  /// no longer. If another call of the same id still waits, that one becomes the member. An unknown
  /// ticket is ignored.
  void leave(TorchftTicket ticket, Instant now);

  /// Forms a quorum if one is due. Calls that it does not contain go on waiting, as asked at `now`.
  std::optional<TorchftQuorum> tick(Instant now);

  std::optional<Instant> next_change(Instant now) const {
    return torchft_next_change(state_, rules_, now);
  }
  const TorchftState& state() const { return state_; }
  std::size_t waiting() const { return waiting_.size(); }
  /// The last tick's reason.
  const std::string& reason() const { return reason_; }

 private:
  void participate(TorchftTicket ticket, const TorchftMember& member, Instant now);
  void forget_silent(Instant now);

  const TorchftRules rules_;
  const TorchftLimits limits_;
  TorchftState state_;
  std::map<TorchftTicket, TorchftMember>
      waiting_;  ///< every call without an answer, participant or not
  std::size_t waiting_bytes_ = 0;
  Instant next_sweep_{};
  TorchftTicket last_ticket_ = 0;
  std::string reason_;
};

}  // namespace teson::quorum
