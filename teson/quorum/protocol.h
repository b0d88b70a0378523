#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "teson/base/error.h"
#include "teson/quorum/record.h"
#include "teson/quorum/vote.h"

namespace teson::quorum {

/// The messages between the lighthouse, the members of a job and their agents (the controller, host
/// agents). Aggregates for net::encode; on the wire the frame's kind is the message's index in its
/// variant. Instants are CLOCK_MONOTONIC nanoseconds of the sender's host.
inline constexpr std::uint32_t protocol_version = 1;

/// What a member is doing, as its step loop says. Only waiting_for_peers makes it no suspect of a
/// hang.
enum class Phase : std::uint8_t {
  idle,
  warming,
  compute,
  waiting_for_peers,
  applying,
  evaluating,
  checkpointing
};
std::string_view to_string(Phase phase);

// From members.

/// The first message on a link, also after a reconnect (then with `active` and `promised` of the
/// same instance).
struct Hello {
  std::uint32_t protocol = protocol_version;
  std::string job;
  MemberId id;
  std::string data_address;
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t plan_hash = 0;
  std::int32_t lanes_total = 0;
  Mode mode = Mode::exact;
  bool has_state = false;
  std::int64_t step = 0;
  std::uint64_t chain = 0;
  std::uint64_t incarnation = 0;  ///< of the history that the state is of; 0: a fresh one
  std::int64_t active = 0;
  std::int64_t promised = 0;
  /// How long this rank's smallest piece of work took when it was tried; no hang is suspected
  /// sooner.
  std::int64_t work_ns = 0;
};

/// Every heartbeat interval, and at once when has_state changes.
struct Beat {
  std::int64_t active = 0;
  bool has_state = false;
  std::int64_t step = 0;
  Phase phase = Phase::idle;
  std::uint64_t progress = 0;  ///< any change means progress
};

/// The answer to a FENCE, and with it a promise: nothing is sent, voted or committed below `epoch`
/// any more.
struct Status {
  std::int64_t epoch = 0;   ///< of the FENCE
  std::int64_t active = 0;  ///< the newest record applied; 0: none
  bool has_state = false;
  std::int64_t step = 0;  ///< c
  std::uint64_t chain = 0;
  Outcome last_outcome;                  ///< of step c; meaningful if its step is c
  std::optional<Vote> vote;              ///< cast in `active` for step c + 1
  std::vector<std::int32_t> lanes_held;  ///< of step c + 1
  std::vector<std::uint8_t> tiles_final;
};

/// A peer's data connection broke, or it cannot be reached.
struct PeerLost {
  std::int64_t epoch = 0;
  std::uint64_t peer = 0;  ///< instance
  std::string what;
};

/// Votes differed.
struct Mismatch {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::vector<std::uint64_t> instances;  ///< those that differ from the largest group
};

struct Leave {
  bool finished =
      false;  ///< the job's last step is committed: nobody needs to go on without this member
  std::string why;
};

// To members.

struct Welcome {
  std::int64_t heartbeat_ns = 0;
  std::uint32_t term = 0;
  std::uint64_t incarnation = 0;  ///< of the newest record; 0: none yet
  std::int64_t epoch = 0;
};

/// Final: the member ends. `field`: what differs ("plan_hash"), or "expelled".
struct Refused {
  std::string field;
  std::string expected;
  std::string found;
  std::string message;  ///< whole, for people
};

struct Fence {
  std::int64_t epoch = 0;
  std::string why;
  std::vector<MemberId> proposed;
  std::optional<EpochRecord> record;  ///< the newest one
};

struct Start {
  EpochRecord record;
};

/// Answers a Beat, so that a member can tell a silent lighthouse.
struct Pulse {
  std::int64_t epoch = 0;  ///< of the newest record
};

// From and to agents.

struct Observe {
  std::uint32_t protocol = protocol_version;
  std::string job;
  std::string name;  ///< for logs
};

enum class Cause : std::uint8_t {
  none,
  process_ended,  ///< seen by pidfd: proof
  launcher,       ///< confirmed stopped by the launcher or an operator: proof
  link_lost,      ///< end of stream and no return: no proof
  silent,         ///< ten heartbeats missing: no proof
  hang,           ///< no progress while all others wait: no proof
  no_status,      ///< did not answer a FENCE: no proof
  unreachable,    ///< its peers cannot reach it: no proof
  mismatch,       ///< voted with other digests again and again
  left,           ///< said so: as good as a proof
  no_state,       ///< needs a state that nobody has any more: to start again from a checkpoint
};
std::string_view to_string(Cause cause);

/// Proof that a process is gone.
struct ReportDead {
  std::uint64_t instance = 0;
  Cause cause = Cause::process_ended;
  std::int64_t at_ns = 0;
  std::string what;  ///< "signal 9 (Killed)"
};

enum class EventKind : std::uint8_t {
  hello,     ///< a process said HELLO
  dead,      ///< proof of a death has arrived
  fenced,    ///< a round began: FENCE was sent
  started,   ///< a record is durable, START was sent
  expelled,  ///< out without proof of death: whoever runs it must kill it
  left,
  refused,
  waiting_proof,  ///< no member with state is left: waits for proof that the old ones are dead
  forming,        ///< an incarnation waits for its members
  level,          ///< a learner has the state
  trouble,        ///< something to read
};
std::string_view to_string(EventKind kind);

/// Pushed to every agent as it happens. Fields without meaning for a kind are zero.
struct Event {
  EventKind kind = EventKind::trouble;
  std::int64_t at_ns = 0;  ///< when the lighthouse acted
  std::int64_t evidence_at_ns =
      0;  ///< dead: as the agent said; fenced and started: of the evidence that caused the round
  std::int64_t epoch = 0;
  MemberId id;
  std::int64_t pid = 0;
  std::string host;
  Cause cause = Cause::none;
  Verdict verdict = Verdict::discard;  ///< started
  std::int64_t base_step = 0;          ///< started
  std::uint64_t incarnation = 0;
  std::vector<MemberId> members;   ///< fenced: proposed; started: in rank order
  std::vector<MemberId> learners;  ///< started
  std::string text;
};

/// The newest record, sent to an agent when it connects: whom to look for.
struct RecordNews {
  std::optional<EpochRecord> record;
};

using ToLighthouse =
    std::variant<Hello, Beat, Status, PeerLost, Mismatch, Leave, Observe, ReportDead>;
using FromLighthouse = std::variant<Welcome, Refused, Fence, Start, Pulse, Event, RecordNews>;

/// Payload bytes of one message. `kind` becomes the frame's kind.
struct Packed {
  std::uint16_t kind = 0;
  std::string payload;
};
Packed pack(const ToLighthouse& message);
Packed pack(const FromLighthouse& message);
/// `invalid` for an unknown kind or bytes that are not such a message, whatever they are.
Result<ToLighthouse> unpack_to_lighthouse(std::uint16_t kind, std::string_view payload);
Result<FromLighthouse> unpack_from_lighthouse(std::uint16_t kind, std::string_view payload);

inline constexpr std::size_t message_bytes_max = std::size_t{64} << 20;

}  // namespace teson::quorum
