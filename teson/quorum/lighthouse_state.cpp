#include "teson/quorum/lighthouse_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::quorum {
namespace {

/// Processes that are known at a time; more are refused.
constexpr std::size_t peers_max = 4096;

/// A job begins again once at each total loss: a number like this is damage.
constexpr std::uint64_t incarnation_max = std::uint64_t{1} << 48;

/// More than this a member cannot claim for its smallest piece of work.
constexpr Duration work_max = std::chrono::minutes(10);

std::string text_of(Mode mode) {
  return mode == Mode::exact ? "exact" : "elastic";
}

}  // namespace

LighthouseState::LighthouseState(LighthouseRules rules, std::uint32_t term,
                                 std::optional<EpochRecord> record, Instant now)
    : rules_(std::move(rules)),
      term_(term),
      now_(now),
      record_(std::move(record)),
      ticked_at_(now) {
  if (!record_) return;
  // A predecessor's members train on; none counts as absent before they had the time to come back.
  stage_ = Stage::running;
  for (const Member& member : record_->members) {
    Peer peer;
    peer.hello.id = member.id;
    peer.hello.data_address = member.data_address;
    peer.hello.host = member.host;
    peer.hello.pid = member.pid;
    peer.hello.plan_hash = record_->plan_hash;
    peer.hello.lanes_total = record_->lanes_total;
    peer.hello.mode = record_->mode;
    peer.return_by = now_ + rules_.bounds.answer();
    peer.progress_at = now_;
    peer.member = true;
    peer.level = !member.learner;
    peers_[member.id.instance] = peer;
  }
}

std::vector<Output> LighthouseState::on_message(Link link, const ToLighthouse& message,
                                                Instant now) {
  now_ = now;
  if (Peer* peer = peer_at(link)) peer->heard_at = now_;
  std::visit([&](const auto& value) { handle(link, value); }, message);
  return settle();
}

std::vector<Output> LighthouseState::on_link_lost(Link link, Instant now) {
  now_ = now;
  agents_.erase(link);
  if (const auto found = links_.find(link); found != links_.end()) {
    const std::uint64_t instance = found->second;
    links_.erase(found);
    Peer& peer = peers_.at(instance);
    peer.link = 0;
    peer.return_by = now_ + rules_.bounds.reconnect();
    const bool peers_saw_it =
        std::any_of(unreachable_.begin(), unreachable_.end(),
                    [&](const auto& pair) { return pair.second == instance; });
    const bool is_entering = round_ && round_->is_persisting && round_->proposed.contains(instance);
    if (!peer.member && !is_entering) {
      remove_peer(instance);
    } else if (peers_saw_it) {
      expel(instance, Cause::link_lost, "end of stream, here and at a peer");
    }
  }
  return settle();
}

std::vector<Output> LighthouseState::tick(Instant now) {
  now_ = now;
  // Whoever slept cannot say that others were silent meanwhile.
  const Duration slept = now_ - ticked_at_;
  if (slept > rules_.bounds.answer()) {
    for (auto& [instance, peer] : peers_) {
      peer.heard_at = now_;
      peer.progress_at = now_;
      if (peer.link == 0) peer.return_by = std::max(peer.return_by, now_ + rules_.bounds.answer());
    }
    if (round_) round_->answer_by = now_ + rules_.bounds.answer();
  }
  ticked_at_ = now_;
  watch_links();
  watch_round();
  watch_reports();
  watch_finished();
  watch_progress();
  return settle();
}

void LighthouseState::handle(Link link, const Hello& hello) {
  if (hello.protocol != protocol_version) {
    return refuse(link, hello.id, "protocol", fmt::to_string(protocol_version),
                  fmt::to_string(hello.protocol),
                  "lighthouse and worker are of different builds: use one build for the whole job");
  }
  if (hello.job != rules_.job) {
    return refuse(link, hello.id, "job", rules_.job, hello.job,
                  "this lighthouse serves another job: check the address");
  }
  if (hello.id.instance == 0 || hello.id.replica < 0 || hello.id.shard != 0) {
    return refuse(link, hello.id, "id", "an instance, a replica from 0 on, shard 0",
                  fmt::format("instance {}, replica {}, shard {}", hello.id.instance,
                              hello.id.replica, hello.id.shard),
                  "this rank's numbers are out of range");
  }
  if (hello.incarnation >= incarnation_max) {
    return refuse(link, hello.id, "incarnation", fmt::format("less than {}", incarnation_max),
                  fmt::to_string(hello.incarnation), "the incarnation is out of range");
  }
  if (hello.lanes_total < 1 || hello.lanes_total > lanes_max) {
    return refuse(link, hello.id, "lanes", fmt::format("1 to {}", lanes_max),
                  fmt::to_string(hello.lanes_total), "the number of lanes is out of range");
  }
  if (const auto gone = gone_.find(hello.id.instance); gone != gone_.end()) {
    const bool was_expelled = gone->second == Gone::expelled;
    return refuse(link, hello.id, was_expelled ? "expelled" : "instance", "a new process",
                  fmt::format("instance {:016x}", hello.id.instance),
                  was_expelled
                      ? "this process was expelled from the job: end it and start a new one"
                      : "this instance has died or left: start a new process with a new instance");
  }
  admit(link, hello);
}

void LighthouseState::admit(Link link, const Hello& hello) {
  const auto spoken = links_.find(link);
  if (agents_.contains(link) || (spoken != links_.end() && spoken->second != hello.id.instance)) {
    return refuse(link, hello.id, "link", "one process on a connection", "another one",
                  "a connection speaks for one process");
  }
  const auto known = peers_.find(hello.id.instance);
  if (known == peers_.end()) {
    if (peers_.size() >= peers_max) {
      return refuse(link, hello.id, "members", fmt::format("at most {}", peers_max), "one more",
                    "too many processes");
    }
    if (refuse_if_other(link, hello)) return;
  } else if (const Hello& was = known->second.hello;
             hello.id != was.id || hello.plan_hash != was.plan_hash ||
             hello.lanes_total != was.lanes_total || hello.mode != was.mode) {
    return refuse(link, hello.id, "instance", "what it said at first", "something else",
                  "a process cannot change its place or its plan: start a new one");
  }
  const bool is_new = known == peers_.end();
  Peer& peer = peers_[hello.id.instance];
  if (peer.link != 0 && peer.link != link) {
    links_.erase(peer.link);
    outputs_.emplace_back(CloseLink{peer.link});
  }
  if (is_new) {
    peer.order = ++hellos_;
    peer.member = stage_ != Stage::forming && is_in_record(hello.id.instance);
  }
  longest_progress_ = std::max(longest_progress_, std::min(Duration(hello.work_ns), work_max));
  peer.hello = hello;
  peer.link = link;
  peer.heard_at = now_;
  peer.progress_at = now_;
  peer.level = hello.has_state;
  peer.beat = Beat{hello.active, hello.has_state, hello.step, Phase::idle, 0};
  links_[link] = hello.id.instance;
  send(link, Welcome{rules_.bounds.heartbeat.count(), term_, record_ ? record_->incarnation : 0,
                     record_ ? record_->epoch : 0});
  Event event = event_of(EventKind::hello, peer);
  event.text = fmt::format(
      "{} step {}", hello.has_state ? "with the state of" : "without a state, last", hello.step);
  push(std::move(event));
  welcome_back(peer);
}

void LighthouseState::welcome_back(Peer& peer) {
  const Hello& hello = peer.hello;
  if (round_ && round_->is_persisting) return;  // START follows
  if (round_ && round_->proposed.contains(hello.id.instance)) return propose(hello.id.instance);
  if (!peer.member || !record_) return;
  if (stage_ == Stage::waiting_proof && hello.has_state) {
    stage_ = Stage::running;
    return want_round("a member with the state has come back");
  }
  if (hello.promised > record_->epoch)
    return want_round("a member had promised an epoch that was never decided");
  if (hello.active < record_->epoch) send(peer.link, Start{*record_});
  if (hello.active > record_->epoch) {
    Event event = event_of(EventKind::trouble, peer);
    event.text = fmt::format(
        "replica {} is in epoch {}, the newest record here is {}: the record file has lost an "
        "entry",
        hello.id.replica, epoch_text(hello.active), epoch_text(record_->epoch));
    push(std::move(event));
  }
}

bool LighthouseState::refuse_if_other(Link link, const Hello& hello) {
  std::optional<Hello> reference;
  if (record_ && stage_ == Stage::running) {
    reference = Hello{};
    reference->plan_hash = record_->plan_hash;
    reference->lanes_total = record_->lanes_total;
    reference->mode = record_->mode;
  } else {
    std::uint64_t first = 0;
    for (const auto& [instance, peer] : peers_) {
      if (peer.link == 0 || (first != 0 && peer.order > first)) continue;
      first = peer.order;
      reference = peer.hello;
    }
  }
  if (!reference) return false;
  const char* same_job =
      "all ranks of a job must have the same; start this one with the job's configuration";
  if (hello.plan_hash != reference->plan_hash) {
    refuse(link, hello.id, "plan_hash", fmt::format("{:016x}", reference->plan_hash),
           fmt::format("{:016x}", hello.plan_hash), same_job);
  } else if (hello.lanes_total != reference->lanes_total) {
    refuse(link, hello.id, "lanes", fmt::to_string(reference->lanes_total),
           fmt::to_string(hello.lanes_total), same_job);
  } else if (hello.mode != reference->mode) {
    refuse(link, hello.id, "mode", text_of(reference->mode), text_of(hello.mode), same_job);
  } else {
    return false;
  }
  return true;
}

void LighthouseState::refuse(Link link, const MemberId& id, std::string field, std::string expected,
                             std::string found, std::string message) {
  Event event;
  event.kind = EventKind::refused;
  event.id = id;
  event.text = fmt::format("{}: expected {}, found {}: {}", field, expected, found, message);
  send(link, Refused{std::move(field), std::move(expected), std::move(found), std::move(message)});
  outputs_.emplace_back(CloseLink{link});
  push(std::move(event));
}

void LighthouseState::handle(Link link, const Beat& beat) {
  Peer* peer = peer_at(link);
  if (peer == nullptr) return;
  const Beat& last = peer->beat;
  if (beat.progress != last.progress || beat.phase != last.phase || beat.step != last.step) {
    const bool is_work =
        beat.phase == last.phase && (beat.phase == Phase::compute || beat.phase == Phase::applying);
    if (is_work && stage_ == Stage::running && !round_ && peer->member) {
      longest_progress_ = std::max(longest_progress_, now_ - peer->progress_at);
    }
    peer->progress_at = now_;
  }
  if (peer->member && record_ && beat.active == record_->epoch && beat.has_state && !peer->level) {
    peer->level = true;
    push(event_of(EventKind::level, *peer));
  }
  peer->beat = beat;
  send(link, Pulse{record_ ? record_->epoch : 0});
}

void LighthouseState::handle(Link link, const Status& status) {
  const Peer* peer = peer_at(link);
  if (peer == nullptr || !round_ || round_->is_persisting || status.epoch != round_->epoch) return;
  if (round_->proposed.contains(peer->hello.id.instance))
    round_->answers[peer->hello.id.instance] = status;
}

void LighthouseState::handle(Link link, const PeerLost& lost) {
  const Peer* peer = peer_at(link);
  if (peer == nullptr || !record_ || lost.epoch != record_->epoch || round_ || wanted_ ||
      lost.peer == peer->hello.id.instance) {
    return;
  }
  if (finished_.contains(lost.peer)) return want_round("a member needs one that has left");
  const auto target = peers_.find(lost.peer);
  if (target == peers_.end() || !target->second.member) return;
  if (target->second.link == 0) {
    return expel(lost.peer, Cause::link_lost,
                 fmt::format("end of stream, here and at a peer ({})", lost.what));
  }
  unreachable_.emplace(peer->hello.id.instance, lost.peer);
  if (!unreachable_since_) unreachable_since_ = now_;
}

void LighthouseState::handle(Link link, const Mismatch& mismatch) {
  const Peer* peer = peer_at(link);
  if (peer == nullptr || !record_ || mismatch.epoch != record_->epoch || round_ || wanted_) return;
  Event event = event_of(EventKind::trouble, *peer);
  event.base_step = mismatch.step;
  event.text = fmt::format("votes for step {} differ", mismatch.step);
  push(std::move(event));
  if (mismatch_rounds_ > 0 && trouble_step_ == record_->base_step) {
    for (const std::uint64_t instance : mismatch.instances) {
      if (peers_.contains(instance) && is_in_record(instance)) {
        return expel(instance, Cause::mismatch,
                     fmt::format("its votes for step {} differ again", mismatch.step));
      }
    }
  }
  ++mismatch_rounds_;
  trouble_step_ = record_->base_step;
  want_round("votes differ");
}

void LighthouseState::handle(Link link, const Leave& leave) {
  Peer* peer = peer_at(link);
  if (peer == nullptr) return;
  const std::uint64_t instance = peer->hello.id.instance;
  Event event = event_of(EventKind::left, *peer);
  event.cause = Cause::left;
  event.text = leave.why;
  push(std::move(event));
  if (leave.finished && peer->member) finished_.insert(instance);
  mark_gone(instance, Gone::left);
}

void LighthouseState::handle(Link link, const Observe& observe) {
  MemberId nobody;
  if (observe.protocol != protocol_version) {
    return refuse(link, nobody, "protocol", fmt::to_string(protocol_version),
                  fmt::to_string(observe.protocol), "lighthouse and agent are of different builds");
  }
  if (observe.job != rules_.job) {
    return refuse(link, nobody, "job", rules_.job, observe.job,
                  "this lighthouse serves another job: check the address");
  }
  agents_.insert(link);
  send(link, RecordNews{record_});
}

void LighthouseState::handle(Link link, const ReportDead& report) {
  if (!agents_.contains(link) || report.instance == 0) return;
  const auto before = gone_.find(report.instance);
  if (before != gone_.end() && before->second == Gone::dead) return;
  Event event;
  event.kind = EventKind::dead;
  event.id.instance = report.instance;
  if (const auto peer = peers_.find(report.instance); peer != peers_.end())
    event = event_of(EventKind::dead, peer->second);
  event.evidence_at_ns = report.at_ns;
  event.cause = report.cause;
  event.text = report.what;
  push(std::move(event));
  const bool was_here = peers_.contains(report.instance);
  mark_gone(report.instance, Gone::dead);
  if (was_here && wanted_ && wanted_->second == 0) wanted_->second = report.at_ns;
}

std::vector<LighthouseState::Known> LighthouseState::known() const {
  std::vector<Known> result;
  for (const auto& [instance, peer] : peers_) {
    Known known;
    known.id = peer.hello.id;
    known.connected = peer.link != 0;
    known.member = peer.member;
    known.learner = peer.member && !peer.level;
    known.phase = peer.beat.phase;
    known.step = peer.beat.step;
    known.progress = peer.beat.progress;
    result.push_back(known);
  }
  return result;
}

LighthouseState::Peer* LighthouseState::peer_at(Link link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &peers_.at(found->second);
}

void LighthouseState::send(Link link, FromLighthouse message) {
  outputs_.emplace_back(Send{link, std::move(message)});
}

void LighthouseState::push(Event event) {
  event.at_ns = now_.time_since_epoch().count();
  outputs_.emplace_back(Push{std::move(event)});
}

Event LighthouseState::event_of(EventKind kind, const Peer& peer) {
  Event event;
  event.kind = kind;
  event.id = peer.hello.id;
  event.pid = peer.hello.pid;
  event.host = peer.hello.host;
  event.base_step = peer.beat.step;
  return event;
}

}  // namespace teson::quorum
