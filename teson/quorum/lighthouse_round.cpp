// How LighthouseState forms an epoch: who is proposed, what the answers come to, what follows.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/quorum/lighthouse_state.h"

namespace teson::quorum {
namespace {

/// Instances that are gone and in no record are remembered up to this number: a late HELLO of
/// theirs is refused.
constexpr std::size_t gone_max = 4096;

}  // namespace

void LighthouseState::want_round(const std::string& why, std::int64_t evidence_at_ns) {
  if (stage_ == Stage::running && !wanted_) wanted_ = {why, evidence_at_ns};
}

void LighthouseState::remove_peer(std::uint64_t instance) {
  const auto found = peers_.find(instance);
  if (found == peers_.end()) return;
  if (found->second.link != 0) {
    links_.erase(found->second.link);
    outputs_.emplace_back(CloseLink{found->second.link});
  }
  peers_.erase(found);
  if (round_ && !round_->is_persisting) {
    round_->proposed.erase(instance);
    round_->answers.erase(instance);
  }
}

void LighthouseState::mark_gone(std::uint64_t instance, Gone how) {
  if (gone_.insert_or_assign(instance, how).second) gone_order_.push_back(instance);
  for (std::size_t looked_at = gone_order_.size(); gone_order_.size() > gone_max && looked_at > 0;
       --looked_at) {
    const std::uint64_t oldest = gone_order_.front();
    gone_order_.pop_front();
    if (is_in_record(oldest)) {
      gone_order_.push_back(oldest);
    } else {
      gone_.erase(oldest);
    }
  }
  promised_stateless_.erase(instance);
  const auto peer = peers_.find(instance);
  if (peer == peers_.end()) return;
  const bool was_member = peer->second.member;
  const std::int32_t replica = peer->second.hello.id.replica;
  const bool is_folded_in = round_ && !round_->is_persisting;
  // Whoever finished is not missed, unless somebody turns out to need it.
  if (was_member && !is_folded_in && !finished_.contains(instance)) {
    const char* what = how == Gone::dead ? "died" : how == Gone::left ? "left" : "was expelled";
    want_round(fmt::format("replica {} {}", replica, what));
  }
  remove_peer(instance);
}

void LighthouseState::expel(std::uint64_t instance, Cause cause, const std::string& text) {
  const auto found = peers_.find(instance);
  if (found == peers_.end()) return;
  Event event = event_of(EventKind::expelled, found->second);
  event.cause = cause;
  event.text = text;
  push(std::move(event));
  if (found->second.link != 0) {
    send(found->second.link, Refused{"expelled", "", std::string(to_string(cause)),
                                     fmt::format("this process was expelled from the job ({}): {}",
                                                 to_string(cause), text)});
  }
  mark_gone(instance, Gone::expelled);
}

bool LighthouseState::replica_is_held(const Peer& newcomer) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const Peer& other = entry.second;
    if (&other == &newcomer || other.hello.id.replica != newcomer.hello.id.replica ||
        other.hello.id.shard != newcomer.hello.id.shard) {
      return false;
    }
    return other.member || other.order < newcomer.order;
  });
}

std::vector<std::uint64_t> LighthouseState::candidates() const {
  std::vector<std::uint64_t> result;
  for (const auto& [instance, peer] : peers_) {
    if (peer.member) result.push_back(instance);
  }
  return result;
}

std::vector<std::uint64_t> LighthouseState::joiners() const {
  std::vector<std::uint64_t> result;
  for (const auto& [instance, peer] : peers_) {
    if (!peer.member && peer.link != 0 && !replica_is_held(peer)) result.push_back(instance);
  }
  return result;
}

void LighthouseState::begin_round() {
  Round round;
  round.epoch = make_epoch(term_, ++counter_);
  round.began = now_;
  round.why = wanted_                    ? wanted_->first
              : stage_ == Stage::forming ? "the job begins"
                                         : "new members join";
  round.evidence_at_ns = wanted_ ? wanted_->second : 0;
  wanted_.reset();
  joining_since_.reset();
  unreachable_.clear();
  unreachable_since_.reset();
  for (const std::uint64_t instance : candidates())
    round.proposed.insert(instance);
  for (const std::uint64_t instance : joiners())
    round.proposed.insert(instance);
  round_ = std::move(round);
  Event event;
  event.kind = EventKind::fenced;
  event.epoch = round_->epoch;
  event.evidence_at_ns = round_->evidence_at_ns;
  event.text = round_->why;
  for (const std::uint64_t instance : round_->proposed)
    event.members.push_back(peers_.at(instance).hello.id);
  for (const std::uint64_t instance : std::set<std::uint64_t>(round_->proposed))
    propose(instance);
  push(std::move(event));
}

void LighthouseState::propose(std::uint64_t instance) {
  round_->proposed.insert(instance);
  round_->answer_by = now_ + rules_.bounds.answer();
  const Peer& peer = peers_.at(instance);
  if (peer.link == 0) return;  // is told when it comes back
  Fence fence;
  fence.epoch = round_->epoch;
  fence.why = round_->why;
  for (const std::uint64_t other : round_->proposed)
    fence.proposed.push_back(peers_.at(other).hello.id);
  fence.record = record_;
  send(peer.link, std::move(fence));
}

void LighthouseState::fold_joiners() {
  // A round that is short of members is open for as long as it takes.
  const bool is_short = round_->proposed.size() < static_cast<std::size_t>(rules_.replicas_min);
  if (!is_short && now_ - round_->began > rules_.bounds.coalesce()) return;
  for (const std::uint64_t instance : joiners()) {
    if (!round_->proposed.contains(instance)) propose(instance);
  }
}

Proposal LighthouseState::proposal() const {
  Proposal proposal;
  proposal.job = rules_.job;
  proposal.epoch = round_->epoch;
  proposal.replicas_expected = rules_.replicas_expected;
  if (stage_ == Stage::running) {
    proposal.plan_hash = record_->plan_hash;
    proposal.mode = record_->mode;
    proposal.lanes_total = record_->lanes_total;
    proposal.replicas_expected = record_->replicas_expected;
  } else {
    const Hello& hello = peers_.at(*round_->proposed.begin()).hello;
    proposal.plan_hash = hello.plan_hash;
    proposal.mode = hello.mode;
    proposal.lanes_total = hello.lanes_total;
  }
  return proposal;
}

void LighthouseState::decide_if_complete() {
  if (round_->proposed.empty()) {
    if (stage_ == Stage::running) return enter_waiting_proof();
    round_.reset();
    return;
  }
  std::vector<Answer> answers;
  for (const std::uint64_t instance : round_->proposed) {
    const Peer& peer = peers_.at(instance);
    const auto answer = round_->answers.find(instance);
    if (answer == round_->answers.end() || peer.link == 0) return;
    Member member;
    member.id = peer.hello.id;
    member.data_address = peer.hello.data_address;
    member.host = peer.hello.host;
    member.pid = peer.hello.pid;
    answers.push_back({std::move(member), answer->second});
  }
  const bool enough = static_cast<std::int32_t>(answers.size()) >= rules_.replicas_min;
  if (stage_ == Stage::running) {
    // With too few the round stays open: nobody trains until others have joined it.
    if (!enough) return tell_short(answers.size());
    take_decision(decide_next(*record_, proposal(), std::move(answers), rules_.broken));
    return;
  }
  if (!enough) {
    round_.reset();  // some went while the first record was being made: back to waiting
    return;
  }
  // Newer than any checkpoint that a member has begun from, whatever this lighthouse remembers.
  for (const std::uint64_t instance : round_->proposed)
    incarnation_forming_ =
        std::max(incarnation_forming_, peers_.at(instance).hello.incarnation + 1);
  take_decision(decide_first(record_ ? record_->epoch : 0, incarnation_forming_, proposal(),
                             std::move(answers)));
}

void LighthouseState::tell_short(std::size_t present) {
  if (std::exchange(round_->is_told_short, true)) return;
  Event event;
  event.kind = EventKind::trouble;
  event.epoch = round_->epoch;
  event.text = fmt::format("{} of at least {} replicas are there: training waits for others",
                           present, rules_.replicas_min);
  push(std::move(event));
}

void LighthouseState::take_decision(const Decision& decision) {
  if (const auto* next = std::get_if<NewRecord>(&decision)) return persist(next->record);
  if (std::holds_alternative<NoInsider>(decision)) return enter_waiting_proof();
  if (const auto* conflict = std::get_if<Conflict>(&decision)) {
    for (const std::uint64_t instance : conflict->instances) {
      const Peer& peer = peers_.at(instance);
      refuse(peer.link, peer.hello.id, "chain", fmt::format("{:016x}", conflict->chain_expected),
             fmt::format("{:016x}", peer.hello.chain), conflict->text);
      mark_gone(instance, Gone::expelled);
    }
    return;
  }
  for (const std::uint64_t instance : std::set<std::uint64_t>(round_->proposed)) {
    expel(instance, Cause::no_state,
          "nobody has a state of the model any more: start again from a checkpoint");
  }
}

void LighthouseState::persist(EpochRecord record) {
  round_->is_persisting = true;
  if (rules_.broken.start_before_durable) {
    for (const Member& member : record.members)
      send(peers_.at(member.id.instance).link, Start{record});
  }
  outputs_.emplace_back(Persist{std::move(record)});
}

std::vector<Output> LighthouseState::on_persisted(const EpochRecord& durable, Instant now) {
  TESON_CHECK(round_ && round_->is_persisting && round_->epoch == durable.epoch, durable.epoch);
  now_ = now;
  Event event;
  event.kind = EventKind::started;
  event.epoch = durable.epoch;
  event.evidence_at_ns = round_->evidence_at_ns;
  event.text = round_->why;
  event.verdict = durable.verdict;
  event.base_step = durable.base_step;
  event.incarnation = durable.incarnation;
  if (record_ && durable.base_step > trouble_step_) unreachable_rounds_ = mismatch_rounds_ = 0;
  record_ = durable;
  incarnation_forming_ = durable.incarnation;
  stage_ = Stage::running;
  round_.reset();
  finished_.clear();
  promised_stateless_.clear();
  forming_since_.reset();
  for (auto& [instance, peer] : peers_) {
    const int rank = rank_of(durable, instance);
    peer.member = rank >= 0;
    peer.progress_at = now_;
    if (rank < 0) continue;
    peer.level = !durable.members[static_cast<std::size_t>(rank)].learner;
    if (peer.link != 0) send(peer.link, Start{durable});
  }
  for (const Member& member : durable.members) {
    event.members.push_back(member.id);
    if (member.learner) event.learners.push_back(member.id);
    if (!peers_.contains(member.id.instance))
      want_round(fmt::format("replica {} died meanwhile", member.id.replica));
  }
  push(std::move(event));
  return settle();
}

void LighthouseState::enter_waiting_proof() {
  for (const auto& [instance, status] : round_->answers) {
    if (is_in_record(instance) && !status.has_state) promised_stateless_.insert(instance);
  }
  round_.reset();
  wanted_.reset();
  stage_ = Stage::waiting_proof;
  Event event;
  event.kind = EventKind::waiting_proof;
  event.epoch = record_->epoch;
  event.base_step = record_->base_step;
  event.incarnation = record_->incarnation;
  event.text =
      "no member with the state of the last epoch answers; waiting for proof that each has died, "
      "to start again from "
      "checkpoints";
  for (const Member& member : record_->members) {
    const auto gone = gone_.find(member.id.instance);
    const bool is_proven = (gone != gone_.end() && gone->second != Gone::expelled) ||
                           promised_stateless_.contains(member.id.instance);
    if (!is_proven) event.members.push_back(member.id);
  }
  push(std::move(event));
}

bool LighthouseState::proof_is_complete() {
  return std::all_of(record_->members.begin(), record_->members.end(),
                     [this](const Member& member) {
                       const auto gone = gone_.find(member.id.instance);
                       if (gone != gone_.end()) return gone->second != Gone::expelled;
                       const auto peer = peers_.find(member.id.instance);
                       return peer != peers_.end() && peer->second.link != 0 &&
                              promised_stateless_.contains(member.id.instance);
                     });
}

bool LighthouseState::forming_is_ready() {
  const auto present = static_cast<std::int32_t>(joiners().size());
  if (present < rules_.replicas_min || present == 0) {
    forming_since_.reset();
    return false;
  }
  if (!forming_since_) forming_since_ = now_;
  return present >= rules_.replicas_expected ||
         now_ - *forming_since_ >= rules_.bounds.forming_grace();
}

bool LighthouseState::joiners_are_ready() {
  const std::size_t joining = joiners().size();
  if (joining == 0) {
    joining_since_.reset();
    return false;
  }
  std::size_t living = 0;
  for (const auto& [instance, peer] : peers_) {
    if (!peer.member) continue;
    // Whoever is away, or is being fed, is not disturbed for a newcomer.
    if (peer.link == 0 || !peer.level) return false;
    ++living;
  }
  if (!joining_since_) joining_since_ = now_;
  const bool nobody_else_is_due =
      living + joining >= static_cast<std::size_t>(rules_.replicas_expected);
  return nobody_else_is_due || now_ - *joining_since_ >= rules_.bounds.coalesce();
}

bool LighthouseState::settle_once() {
  if (round_) {
    if (round_->is_persisting) return false;
    fold_joiners();
    const std::size_t proposed = round_->proposed.size();
    decide_if_complete();
    return !round_ || (!round_->is_persisting && round_->proposed.size() != proposed);
  }
  bool begin = false;
  if (stage_ == Stage::running) {
    begin = wanted_.has_value() || joiners_are_ready();
  } else if (stage_ == Stage::forming) {
    begin = forming_is_ready();
  } else if (proof_is_complete()) {
    stage_ = Stage::forming;
    incarnation_forming_ = record_->incarnation + 1;
    for (auto& [instance, peer] : peers_)
      peer.member = false;
    Event event;
    event.kind = EventKind::forming;
    event.incarnation = incarnation_forming_;
    event.text = "all members of the last epoch are accounted for";
    push(std::move(event));
    return true;
  }
  if (begin) begin_round();
  return begin;
}

std::vector<Output> LighthouseState::settle() {
  // Each pass removes a process, ends a round or begins one, so their number is bounded by the
  // processes known.
  while (settle_once()) {
  }
  return std::exchange(outputs_, {});
}

}  // namespace teson::quorum
