#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "teson/base/clock.h"
#include "teson/quorum/protocol.h"
#include "teson/quorum/record.h"
#include "teson/quorum/rules.h"

namespace teson::quorum {

struct LighthouseRules {
  std::string job;
  Bounds bounds;
  std::int32_t replicas_expected = 1;
  std::int32_t replicas_min = 1;
  BrokenRules broken;  ///< for tests of the tests
};

/// A connection, numbered by whoever owns it; never reused, never 0.
using Link = std::uint64_t;

/// What the state machine wants done, in order.
struct Send {
  Link link = 0;
  FromLighthouse message;
};
/// To every agent.
struct Push {
  Event event;
};
/// After what was sent on it before.
struct CloseLink {
  Link link = 0;
};
/// To be made durable; then on_persisted. Nothing is decided meanwhile.
struct Persist {
  EpochRecord record;
};
using Output = std::variant<Send, Push, CloseLink, Persist>;

/// The lighthouse's leader as a pure state machine: it forms epochs from what members and agents
/// say. No I/O; time is what `now` says. Feed it each input as it happens, and tick at least every
/// half heartbeat; do the outputs in order. One thread. What it does is told in `Bounds` and in the
/// events it pushes.
///
/// Phases: forming (an incarnation waits for its members) -> running (a record is current) ->
/// waiting_proof (nobody with state is left; proof that all members of the last record are dead
/// begins the next incarnation). A round (FENCE, STATUS, verdict, record, START) may be under way
/// in forming and running.
class LighthouseState {
 public:
  /// `term`: fresh, durable. `record`: the newest durable one, if any.
  LighthouseState(LighthouseRules rules, std::uint32_t term, std::optional<EpochRecord> record,
                  Instant now);

  std::vector<Output> on_message(Link link, const ToLighthouse& message, Instant now);
  std::vector<Output> on_link_lost(Link link, Instant now);
  std::vector<Output> tick(Instant now);
  /// The record of the last Persist is durable, as `durable` says (a store may drop final tiles);
  /// START goes out.
  std::vector<Output> on_persisted(const EpochRecord& durable, Instant now);

  enum class Stage : std::uint8_t { forming, running, waiting_proof };
  Stage stage() const { return stage_; }
  bool in_round() const { return round_.has_value(); }
  const std::optional<EpochRecord>& record() const { return record_; }
  /// Where Push goes.
  const std::set<Link>& agents() const { return agents_; }

  /// For a status page: every process known now.
  struct Known {
    MemberId id;
    bool connected = false;
    bool member = false;
    bool learner = false;
    Phase phase = Phase::idle;
    std::int64_t step = 0;
    std::uint64_t progress = 0;
  };
  std::vector<Known> known() const;

 private:
  struct Peer {
    Hello hello;
    Link link = 0;
    Instant heard_at{};       ///< last message
    Instant return_by{};      ///< link == 0: expelled then
    std::uint64_t order = 0;  ///< of the first HELLO
    bool member = false;      ///< in record_
    bool level = false;       ///< has the state, as far as is known
    Beat beat;
    Instant progress_at{};
  };
  struct Round {
    std::int64_t epoch = 0;
    Instant began{};
    Instant answer_by{};
    std::string why;
    std::int64_t evidence_at_ns = 0;
    std::set<std::uint64_t> proposed;
    std::map<std::uint64_t, Status> answers;
    bool is_persisting = false;
    bool is_told_short = false;  ///< the event of too few members is out
  };
  enum class Gone : std::uint8_t { dead, left, expelled };

  // Inputs (lighthouse_state.cpp).
  void handle(Link link, const Hello& hello);
  void handle(Link link, const Beat& beat);
  void handle(Link link, const Status& status);
  void handle(Link link, const PeerLost& lost);
  void handle(Link link, const Mismatch& mismatch);
  void handle(Link link, const Leave& leave);
  void handle(Link link, const Observe& observe);
  void handle(Link link, const ReportDead& report);
  bool refuse_if_other(Link link, const Hello& hello);
  void admit(Link link, const Hello& hello);
  void refuse(Link link, const MemberId& id, std::string field, std::string expected,
              std::string found, std::string message);
  void welcome_back(Peer& peer);

  // Membership (lighthouse_round.cpp).
  Peer* peer_at(Link link);
  bool is_gone(std::uint64_t instance) const { return gone_.contains(instance); }
  bool is_in_record(std::uint64_t instance) const {
    return record_ && rank_of(*record_, instance) >= 0;
  }
  void mark_gone(std::uint64_t instance, Gone how);
  void expel(std::uint64_t instance, Cause cause, const std::string& text);
  void remove_peer(std::uint64_t instance);
  void want_round(const std::string& why, std::int64_t evidence_at_ns = 0);
  bool replica_is_held(const Peer& newcomer) const;
  std::vector<std::uint64_t> candidates() const;
  std::vector<std::uint64_t> joiners() const;
  void begin_round();
  void propose(std::uint64_t instance);
  void fold_joiners();
  void decide_if_complete();
  void tell_short(std::size_t present);
  void take_decision(const Decision& decision);
  void persist(EpochRecord record);
  void enter_waiting_proof();
  bool old_members_are_accounted_for() const;
  bool forming_is_ready();
  bool joiners_are_ready();
  bool proof_is_complete();
  Proposal proposal() const;
  bool settle_once();
  std::vector<Output> settle();

  // Watching (lighthouse_watch.cpp).
  void watch_links();
  void watch_round();
  void watch_reports();
  void watch_progress();
  void expel_unreachable();
  void watch_finished();

  void send(Link link, FromLighthouse message);
  void push(Event event);
  static Event event_of(EventKind kind, const Peer& peer);

  LighthouseRules rules_;
  std::uint32_t term_;
  std::uint32_t counter_ = 0;
  Instant now_;
  Stage stage_ = Stage::forming;
  std::optional<EpochRecord> record_;
  std::uint64_t incarnation_forming_ = 1;
  std::map<std::uint64_t, Peer> peers_;  ///< by instance
  std::uint64_t hellos_ = 0;
  std::map<Link, std::uint64_t> links_;  ///< of members
  std::set<Link> agents_;
  std::map<std::uint64_t, Gone> gone_;
  std::deque<std::uint64_t> gone_order_;
  std::set<std::uint64_t>
      finished_;  ///< members of record_ that left with the job's last step committed
  std::set<std::uint64_t>
      promised_stateless_;  ///< living members of record_ without state that promised a later epoch
  std::optional<Round> round_;
  std::optional<std::pair<std::string, std::int64_t>>
      wanted_;  ///< why a round must begin, and the evidence's instant
  std::optional<Instant> forming_since_;
  std::optional<Instant> joining_since_;
  std::set<std::pair<std::uint64_t, std::uint64_t>>
      unreachable_;  ///< (reporter, peer) in this epoch
  std::optional<Instant> unreachable_since_;
  int unreachable_rounds_ = 0;  ///< in a row without a committed step
  int mismatch_rounds_ = 0;
  std::int64_t trouble_step_ = -1;  ///< base step of those rounds
  Duration longest_progress_{};
  Instant ticked_at_{};
  std::vector<Output> outputs_;
};

}  // namespace teson::quorum
