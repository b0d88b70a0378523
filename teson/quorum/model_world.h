#pragma once

// For tests: a whole job in one thread, on simulated time and an adversary's network, over the real
// rules (LighthouseState, MemberState). Every message waits in a queue (first in, first out for
// each pair) until the schedule delivers it; processes crash, pause and are cut off; the lighthouse
// crashes between any two of its acts. After every transition the invariants are checked. What is
// modelled by a few lines instead of the real thing: reduction, state transfer and the record's
// file. Tile values differ by epoch, so that agreement cannot lean on determinism.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "teson/base/random.h"
#include "teson/quorum/deal.h"
#include "teson/quorum/lighthouse_state.h"
#include "teson/quorum/member_state.h"

namespace teson::quorum {

struct ModelOptions {
  int ranks = 3;
  std::int64_t steps = 2;
  std::size_t tiles = 2;
  Mode mode = Mode::exact;
  BrokenRules broken;
  int faults = 6;         ///< crashes, pauses, cuts, and crashes of the lighthouse together
  int transitions = 250;  ///< with faults; then without until all is done
};

/// Between two trainers, over the communicator of one epoch.
struct DataMessage {
  enum class Kind : std::uint8_t { node, final, vote, state } kind = Kind::node;
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::size_t tile = 0;
  std::uint64_t value = 0;  ///< final: the tile; state: the chain
  int from_rank = 0;
  Vote vote;
};

struct ModelProcess {
  explicit ModelProcess(MemberState initial) : state(std::move(initial)) {}
  MemberState state;
  bool is_alive = true;
  bool is_paused = false;
  bool is_refused = false;
  Link link = 0;
  std::uint64_t progress = 0;
  // The trainer.
  std::optional<StartOrder> order;
  bool has_communicator = false;
  bool has_begun = false;
  std::map<std::size_t, std::uint64_t> tiles;  ///< final ones of step c + 1
  std::set<std::tuple<std::int64_t, std::size_t, int>> nodes;
  std::map<std::int64_t, std::map<int, Vote>> votes;
  std::set<std::uint64_t> lost;  ///< peers whose connections broke in this epoch
};

class ModelWorld {
 public:
  ModelWorld(const ModelOptions& options, std::uint64_t seed) : options_(options), random_({seed}) {
    rules_.job = "model";
    rules_.replicas_expected = options.ranks;
    rules_.broken = options.broken;
    leader_.emplace(rules_, ++term_, std::nullopt, now_);
    for (int slot = 0; slot < options.ranks; ++slot)
      spawn(slot);
  }

  /// The first violation, or empty.
  std::string run() {
    for (int i = 0; i < options_.transitions && violation_.empty(); ++i)
      transition(true);
    for (int i = 0; i < 6000 && violation_.empty() && !is_done(); ++i)
      transition(false);
    if (violation_.empty() && !is_done())
      violate("progress: the job does not get on though nothing fails any more");
    return violation_;
  }

  /// What happened, so that a test can tell that the schedules reach it.
  struct Coverage {
    std::int64_t records = 0;
    std::int64_t commits_by_record = 0;
    std::int64_t roll_forwards = 0;
    std::int64_t incarnations = 0;  ///< later ones than the first
    std::int64_t finals_kept = 0;   ///< records with final tiles of an interrupted step
    std::int64_t learners = 0;
  };
  const Coverage& coverage() const { return coverage_; }
  const std::string& trace() const { return trace_; }

 private:
  using Act = std::function<void()>;

  void violate(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  void note(const std::string& what) { trace_ += what + "\n"; }

  // Schedule.

  void transition(bool with_faults) {
    acts_.clear();
    collect_deliveries();
    collect_recovery(with_faults);
    if (with_faults && faults_ < options_.faults && random_.below(12) == 0) collect_faults();
    if (acts_.empty() || random_.below(with_faults ? 8 : 40) == 0) return pass_time(with_faults);
    acts_[random_.below(acts_.size())]();
    check_all();
  }

  void collect_deliveries() {
    for (auto& [instance, process] : processes_) {
      if (!process.is_alive || process.is_paused) continue;
      ModelProcess* p = &process;
      if (has_local_work(*p)) acts_.emplace_back([this, p] { work(*p); });
      if (p->link != 0 && !down_[p->link].empty())
        acts_.emplace_back([this, p] { deliver_down(*p); });
      else if (closed_links_.contains(p->link))
        acts_.emplace_back([this, p] { cut(*p); });
      if (p->link == 0 && !p->is_refused && leader_) acts_.emplace_back([this, p] { connect(*p); });
    }
    for (auto& [pair, queue] : data_) {
      const auto to = processes_.find(pair.second);
      if (queue.empty() || !to->second.is_alive || to->second.is_paused ||
          !can_take(to->second, queue.front()))
        continue;
      acts_.emplace_back([this, key = pair] { deliver_data(key); });
    }
    if (!leader_) return;
    if (persisting_) acts_.emplace_back([this] { make_durable(); });
    if (is_durable_untold_) acts_.emplace_back([this] { tell_durable(); });
    for (auto& [link, queue] : up_) {
      if (!queue.empty())
        acts_.emplace_back([this, key = link] { deliver_up(key); });
      else if (ended_links_.contains(link))
        acts_.emplace_back([this, key = link] { deliver_end(key); });
    }
    if (!reports_.empty()) acts_.emplace_back([this] { deliver_report(); });
  }

  void collect_recovery(bool with_faults) {
    if (!leader_) acts_.emplace_back([this] { restart_leader(); });
    for (auto& [instance, process] : processes_) {
      ModelProcess* p = &process;
      if (p->is_alive && p->is_paused && (!with_faults || random_.below(6) == 0))
        acts_.emplace_back([p] { p->is_paused = false; });
      // Whoever runs a process that was expelled or refused ends it, sooner or later.
      if (p->is_alive && (p->is_refused || to_be_killed_.contains(instance)) &&
          (!with_faults || random_.below(4) == 0)) {
        acts_.emplace_back([this, p] { crash(*p); });
      }
    }
    for (int slot = 0; slot < options_.ranks; ++slot) {
      if (!processes_.at(in_slot_.at(slot)).is_alive)
        acts_.emplace_back([this, slot] { spawn(slot); });
    }
  }

  void collect_faults() {
    for (auto& [instance, process] : processes_) {
      ModelProcess* p = &process;
      if (!p->is_alive) continue;
      acts_.emplace_back([this, p] {
        ++faults_;
        crash(*p);
      });
      acts_.emplace_back([this, p] {
        ++faults_;
        note("pause");
        p->is_paused = true;
      });
      if (p->link != 0)
        acts_.emplace_back([this, p] {
          ++faults_;
          note("cut");
          cut(*p);
        });
      for (auto& [other, peer] : processes_) {
        if (instance < other && peer.is_alive)
          acts_.emplace_back([this, a = instance, b = other] {
            ++faults_;
            cut_data(a, b);
          });
      }
    }
    if (leader_)
      acts_.emplace_back([this] {
        ++faults_;
        crash_leader();
      });
  }

  void pass_time(bool with_faults) {
    const Duration beat = rules_.bounds.heartbeat;
    now_ += with_faults && random_.below(3) == 0 ? 4 * beat : beat / 2;
    for (auto& [instance, process] : processes_) {
      if (!process.is_alive || process.is_paused || process.link == 0 || process.is_refused)
        continue;
      const bool is_at_end = process.state.has_state() && process.state.step() >= options_.steps;
      const Phase phase = has_local_work(process) ? Phase::compute
                          : is_at_end             ? Phase::idle
                                                  : Phase::waiting_for_peers;
      up_[process.link].push_back(Beat{process.state.active(), process.state.has_state(),
                                       process.state.step(), phase, process.progress});
      // Beats are quick when nothing fails: late ones are the adversary's.
      if (!with_faults && leader_) {
        while (!up_[process.link].empty() && process.link != 0)
          deliver_up(process.link);
      }
    }
    if (leader_) perform(leader_->tick(now_));
    check_all();
  }

  bool is_done() const {
    for (const auto& [slot, instance] : in_slot_) {
      const ModelProcess& process = processes_.at(instance);
      if (!process.is_alive || process.is_refused || !process.state.has_state() ||
          process.state.step() < options_.steps)
        return false;
    }
    return true;
  }

  // Faults and their traces.

  void spawn(int slot) {
    const std::uint64_t instance = ++instances_;
    const MemberId id{instance, slot, 0};
    // Every new process has the checkpoint of step 0: a state that is stale once the job has moved
    // on.
    processes_.emplace(instance, ModelProcess(MemberState(id, true, 0, 1000, options_.broken)));
    in_slot_[slot] = instance;
    note(fmt::format("spawn {} as {}", slot, instance));
  }

  void crash(ModelProcess& process) {
    note(fmt::format("crash {}", process.state.id().instance));
    cut(process);
    process.is_alive = false;
    reports_.push_back(process.state.id().instance);
    for (auto& [pair, queue] : data_) {
      if (pair.first == process.state.id().instance || pair.second == process.state.id().instance)
        tell_peer_lost(pair);
    }
  }

  void cut(ModelProcess& process) {
    if (process.link == 0) return;
    ended_links_.insert(process.link);
    down_.erase(process.link);
    process.link = 0;
  }

  void cut_data(std::uint64_t a, std::uint64_t b) {
    note(fmt::format("cut data {} {}", a, b));
    for (const auto& pair : {std::pair(a, b), std::pair(b, a)}) {
      for (const DataMessage& message : data_[pair])
        broken_in_epoch_[pair] = message.epoch;
      data_[pair].clear();
      broken_pairs_.insert(pair);
      tell_peer_lost(pair);
    }
  }

  /// Both ends, as far as they live, see the end of the stream.
  void tell_peer_lost(const std::pair<std::uint64_t, std::uint64_t>& pair) {
    const auto tell = [&](std::uint64_t who, std::uint64_t peer) {
      ModelProcess& process = processes_.at(who);
      if (!process.is_alive || !process.has_communicator ||
          rank_of(process.order->record, peer) < 0)
        return;
      process.lost.insert(peer);
      if (process.link != 0)
        up_[process.link].push_back(PeerLost{process.order->record.epoch, peer, "end of stream"});
    };
    tell(pair.first, pair.second);
    tell(pair.second, pair.first);
  }

  void crash_leader() {
    note("lighthouse crashes");
    leader_.reset();
    persisting_.reset();
    is_durable_untold_ = false;
    up_.clear();
    down_.clear();
    ended_links_.clear();
    agent_is_known_ = false;
    for (auto& [instance, process] : processes_)
      process.link = 0;
  }

  void restart_leader() {
    note("lighthouse restarts");
    leader_.emplace(rules_, ++term_, stored_, now_);
    reports_.clear();
    for (const auto& [instance, process] : processes_) {
      if (!process.is_alive) reports_.push_back(instance);
    }
  }

  // The lighthouse's side.

  void perform(std::vector<Output> outputs) {
    for (Output& output : outputs) {
      if (auto* send = std::get_if<Send>(&output)) {
        down_[send->link].push_back(std::move(send->message));
      } else if (auto* persist = std::get_if<Persist>(&output)) {
        persisting_ = std::move(persist->record);
      } else if (const auto* close = std::get_if<CloseLink>(&output)) {
        closed_links_.insert(close->link);
      } else if (const auto* push = std::get_if<Push>(&output)) {
        note(fmt::format("  {} {} epoch {} {}", to_string(push->event.kind),
                         push->event.id.instance, epoch_text(push->event.epoch), push->event.text));
        if (push->event.kind == EventKind::expelled) to_be_killed_.insert(push->event.id.instance);
      }
    }
  }

  void make_durable() {
    const EpochRecord next = *std::exchange(persisting_, std::nullopt);
    check_record_follows(next);
    stored_ = next;
    durable_epochs_.insert(next.epoch);
    bases_[next.epoch] = {next.incarnation, next.base_step};
    is_durable_untold_ = true;
    ++coverage_.records;
    coverage_.commits_by_record += next.verdict == Verdict::commit ? 1 : 0;
    coverage_.incarnations += next.incarnation > 1 && next.verdict == Verdict::discard ? 1 : 0;
    for (const Member& member : next.members) {
      coverage_.finals_kept += member.tiles_final.empty() ? 0 : 1;
      coverage_.learners += member.learner ? 1 : 0;
    }
    note("record " + describe(next));
  }

  void tell_durable() {
    is_durable_untold_ = false;
    perform(leader_->on_persisted(*stored_, now_));
  }

  void connect(ModelProcess& process) {
    process.link = ++links_;
    Hello hello;
    hello.job = "model";
    hello.id = process.state.id();
    hello.lanes_total = 4;
    hello.mode = options_.mode;
    hello.has_state = process.state.has_state();
    hello.step = process.state.step();
    hello.chain = process.state.chain();
    hello.active = process.state.active();
    hello.promised = process.state.promised();
    up_[process.link].push_back(hello);
    for (const std::uint64_t peer : process.lost) {
      up_[process.link].push_back(PeerLost{process.order->record.epoch, peer, "end of stream"});
    }
  }

  void deliver_up(Link link) {
    const ToLighthouse message = std::move(up_[link].front());
    up_[link].pop_front();
    perform(leader_->on_message(link, message, now_));
  }

  void deliver_end(Link link) {
    ended_links_.erase(link);
    up_.erase(link);
    perform(leader_->on_link_lost(link, now_));
  }

  void deliver_report() {
    if (!agent_is_known_) {
      Observe observe;
      observe.job = "model";
      perform(leader_->on_message(agent_link, observe, now_));
      agent_is_known_ = true;
    }
    ReportDead report;
    report.instance = reports_.front();
    report.at_ns = 1;
    reports_.pop_front();
    perform(leader_->on_message(agent_link, report, now_));
  }

  // A member's side.

  void deliver_down(ModelProcess& process) {
    const FromLighthouse message = std::move(down_[process.link].front());
    down_[process.link].pop_front();
    const std::int64_t step_before = process.state.has_state() ? process.state.step() : -1;
    if (const auto* fence = std::get_if<Fence>(&message)) {
      auto status = process.state.on_fence(*fence);
      if (!status) return violate("coverage: " + status.error().message);
      if (*status) {
        if (!options_.broken.noise_after_promise) process.has_communicator = false;
        up_[process.link].push_back(**status);
      }
    } else if (const auto* start = std::get_if<Start>(&message)) {
      const auto applied = process.state.on_start(start->record);
      if (!applied) return violate("coverage: " + applied.error().message);
    } else if (std::holds_alternative<Refused>(message)) {
      process.is_refused = true;
      process.has_communicator = false;
      process.state.leave();
      cut(process);
    }
    if (process.state.has_state() && process.state.step() > step_before &&
        process.state.active() != 0) {
      check_committed(process, false);
    }
  }

  bool has_local_work(const ModelProcess& process) const {
    const MemberState& state = process.state;
    if (process.is_refused || state.active() == 0) return false;
    if (state.promised() > state.active()) return false;
    if (!process.order || process.order->record.epoch != state.active()) return true;
    return process.has_communicator && state.has_state() && state.step() < options_.steps &&
           !process.has_begun;
  }

  void work(ModelProcess& process) {
    ++process.progress;
    if (auto order = process.state.take_order()) return enter(process, std::move(*order));
    begin(process);
  }

  void enter(ModelProcess& process, StartOrder order) {
    process.order = std::move(order);
    coverage_.roll_forwards +=
        process.order->apply_prepared && process.order->record.verdict != Verdict::commit ? 1 : 0;
    process.has_communicator = true;
    process.has_begun = false;
    process.nodes.clear();
    process.votes.clear();
    process.lost.clear();
    const EpochRecord& record = process.order->record;
    for (const Member& peer : record.members) {
      const std::pair pair{peer.id.instance, process.state.id().instance};
      if (const auto broken = broken_in_epoch_.find(pair);
          broken != broken_in_epoch_.end() && broken->second == record.epoch) {
        tell_peer_lost(pair);
      }
    }
    const Member& self = record.members[static_cast<std::size_t>(process.order->rank)];
    std::erase_if(process.tiles,
                  [&](const auto& entry) { return !tile_is_final(self, entry.first); });
    if (process.order->discard || process.order->apply_prepared) process.tiles.clear();
    for (std::size_t rank = 0; rank < record.members.size(); ++rank) {
      if (donor_of(record, static_cast<int>(rank)) != process.order->rank) continue;
      DataMessage message;
      message.kind = DataMessage::Kind::state;
      message.step = process.state.step();
      message.value = process.state.chain();
      send_data(process, rank, message);
    }
  }

  void begin(ModelProcess& process) {
    const EpochRecord& record = process.order->record;
    const std::int64_t step = process.state.step() + 1;
    if (!process.state.begin_step(record.epoch, step)) return;
    process.has_begun = true;
    const auto lanes = lanes_by_member(record, step);
    for (const int lane : lanes[static_cast<std::size_t>(process.order->rank)]) {
      (void)process.state.hold_lane(record.epoch, lane);
    }
    // Alone, a rank may have committed the step before the loop ends.
    for (std::size_t tile = 0; tile < options_.tiles && process.state.step() + 1 == step; ++tile) {
      const int server = server_of(record, step, tile);
      if (server == process.order->rank) {
        send_final(process, step, tile);
      } else if (server < 0) {
        const std::size_t owner = tile % record.members.size();
        DataMessage message;
        message.kind = DataMessage::Kind::node;
        message.step = step;
        message.tile = tile;
        message.from_rank = process.order->rank;
        if (owner == static_cast<std::size_t>(process.order->rank))
          take(process, message);
        else
          send_data(process, owner, message);
      }
    }
    vote_if_final(process);
  }

  /// The rank that serves a tile which is final already, or -1.
  int server_of(const EpochRecord& record, std::int64_t step, std::size_t tile) const {
    const auto finals = finals_by_member(record, step, options_.tiles);
    for (std::size_t rank = 0; rank < finals.size(); ++rank) {
      if (finals[rank][tile] != 0) return static_cast<int>(rank);
    }
    return -1;
  }

  void send_data(ModelProcess& from, std::size_t to_rank, DataMessage message) {
    message.epoch = from.order->record.epoch;
    message.from_rank = from.order->rank;
    const std::uint64_t to = from.order->record.members[to_rank].id.instance;
    const std::pair pair{from.state.id().instance, to};
    // A cut connection stays cut for its epoch.
    if (const auto broken = broken_in_epoch_.find(pair);
        broken != broken_in_epoch_.end() && broken->second == message.epoch)
      return;
    if (broken_pairs_.erase(pair) != 0) {
      broken_in_epoch_[pair] = message.epoch;
      tell_peer_lost(pair);
      return;
    }
    data_[pair].push_back(message);
    if (!processes_.at(to).is_alive) tell_peer_lost(pair);
  }

  bool is_current(const ModelProcess& process, const DataMessage& message) const {
    return process.order && process.has_communicator &&
           message.epoch == process.order->record.epoch;
  }

  bool can_take(const ModelProcess& process, const DataMessage& message) const {
    // Connections of an epoch exist once both ends have entered it; frames of older ones are
    // dropped.
    return is_current(process, message) || process.is_refused ||
           message.epoch < process.state.active() || message.epoch < process.state.promised();
  }

  void deliver_data(const std::pair<std::uint64_t, std::uint64_t>& pair) {
    ModelProcess& process = processes_.at(pair.second);
    const DataMessage message = data_[pair].front();
    data_[pair].pop_front();
    ++process.progress;
    if (is_current(process, message)) take(process, message);
  }

  void take(ModelProcess& process, const DataMessage& message) {
    const EpochRecord& record = process.order->record;
    switch (message.kind) {
      case DataMessage::Kind::node: {
        process.nodes.insert({message.step, message.tile, message.from_rank});
        form_tiles(process);
        break;
      }
      case DataMessage::Kind::final:
        if (message.step == process.state.step() + 1 && process.state.has_state() &&
            process.state.hold_final(record.epoch, message.tile)) {
          process.tiles[message.tile] = message.value;
        }
        break;
      case DataMessage::Kind::vote:
        process.votes[message.step][message.from_rank] = message.vote;
        break;
      case DataMessage::Kind::state:
        if (process.state.set_level(record.epoch, message.step, message.value))
          check_committed(process, true);
        break;
    }
    vote_if_final(process);
    commit_if_voted(process);
  }

  void form_tiles(ModelProcess& process) {
    const std::int64_t step = process.state.step() + 1;
    const auto ranks = static_cast<int>(process.order->record.members.size());
    for (std::size_t tile = 0; tile < options_.tiles && process.has_begun; ++tile) {
      bool is_complete = !process.tiles.contains(tile);
      for (int rank = 0; rank < ranks; ++rank)
        is_complete = is_complete && process.nodes.contains({step, tile, rank});
      if (!is_complete) continue;
      const std::int64_t epoch = process.order->record.epoch;
      if (!process.state.hold_final(epoch, tile)) continue;
      process.tiles[tile] =
          mix({static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(step), tile});
      send_final(process, step, tile);
    }
  }

  void send_final(ModelProcess& process, std::int64_t step, std::size_t tile) {
    DataMessage message;
    message.kind = DataMessage::Kind::final;
    message.step = step;
    message.tile = tile;
    const auto held = process.tiles.find(tile);
    if (held == process.tiles.end()) {
      return violate(fmt::format(
          "one_tile: the record says that instance {} holds final tile {} of step {}, it does not",
          process.state.id().instance, tile, step));
    }
    message.value = held->second;
    for (std::size_t rank = 0; rank < process.order->record.members.size(); ++rank) {
      if (static_cast<int>(rank) != process.order->rank) send_data(process, rank, message);
    }
  }

  void vote_if_final(ModelProcess& process) {
    const std::int64_t step = process.state.step() + 1;
    if (!process.state.has_state() || !process.has_begun || process.tiles.size() < options_.tiles)
      return;
    if (process.votes[step].contains(process.order->rank)) return;
    Vote vote;
    vote.epoch = process.order->record.epoch;
    vote.step = step;
    vote.digest = 1;
    for (const auto& [tile, value] : process.tiles)
      vote.digest = mix({vote.digest, tile, value});
    if (!process.state.prepare(vote)) return;
    if (process.state.promised() > vote.epoch && !options_.broken.noise_after_promise)
      violate("promise: voted below the promise");
    votes_cast_[{vote.epoch, step}][process.state.id().instance] = vote.digest;
    process.votes[step][process.order->rank] = vote;
    DataMessage message;
    message.kind = DataMessage::Kind::vote;
    message.step = step;
    message.vote = vote;
    for (std::size_t rank = 0; rank < process.order->record.members.size(); ++rank) {
      if (static_cast<int>(rank) != process.order->rank) send_data(process, rank, message);
    }
    commit_if_voted(process);
  }

  void commit_if_voted(ModelProcess& process) {
    const std::int64_t step = process.state.step() + 1;
    const std::size_t ranks = process.order->record.members.size();
    const auto& votes = process.votes[step];
    if (!votes.contains(process.order->rank)) return;
    const bool enough =
        options_.broken.majority_commits ? 2 * votes.size() > ranks : votes.size() == ranks;
    if (!enough) return;
    std::vector<Vote> all;
    for (const auto& [rank, vote] : votes)
      all.push_back(vote);
    const VoteResult result = decide(all);
    if (!result.unanimous()) return violate("one_tile: votes of one epoch differ");
    if (!process.state.commit(process.order->record.epoch, result.outcome)) return;
    if (process.state.promised() > process.order->record.epoch &&
        !options_.broken.noise_after_promise)
      violate("promise: committed below the promise");
    check_unanimous(process, step);
    check_committed(process, false);
    process.tiles.clear();
    process.has_begun = false;
  }

  // Invariants.

  void check_unanimous(const ModelProcess& process, std::int64_t step) {
    const EpochRecord& record = process.order->record;
    const auto& cast = votes_cast_[{record.epoch, step}];
    for (const Member& member : record.members) {
      if (!cast.contains(member.id.instance))
        violate("unanimity: committed without everybody's vote");
    }
  }

  void check_committed(const ModelProcess& process, bool as_learner) {
    const EpochRecord& record = *process.state.record();
    const auto [at, is_new] =
        history_.try_emplace({record.incarnation, process.state.step()}, process.state.chain());
    if (at->second != process.state.chain())
      violate(fmt::format("agreement: two histories of step {}", process.state.step()));
    if (as_learner) return;
    newest_[record.incarnation] = std::max(newest_[record.incarnation], process.state.step());
    for (auto later = bases_.upper_bound(record.epoch); later != bases_.end(); ++later) {
      if (later->second.first == record.incarnation &&
          later->second.second < process.state.step()) {
        violate(fmt::format(
            "coverage: step {} is committed in an epoch before a record with base step {}",
            process.state.step(), later->second.second));
      }
    }
  }

  void check_record_follows(const EpochRecord& next) {
    const std::int64_t present = stored_ ? stored_->epoch : 0;
    if (next.parent != present || next.epoch <= present || durable_epochs_.contains(next.epoch))
      violate("chain: records form no line");
    if (const auto good = check_record(next); !good) violate(good.error().message);
    if (newest_.contains(next.incarnation) && next.base_step < newest_[next.incarnation]) {
      violate(fmt::format("coverage: the record's base is step {}, step {} is committed",
                          next.base_step, newest_[next.incarnation]));
    }
    const auto known = history_.find({next.incarnation, next.base_step});
    if (known != history_.end() && known->second != next.base_chain)
      violate("coverage: the record has another history");
    bool has_insider = false;
    for (const Member& member : next.members) {
      const MemberState& state = processes_.at(member.id.instance).state;
      if (state.promised() < next.epoch)
        violate("promise: a member of the record has not promised it");
      has_insider |= stored_ && rank_of(*stored_, member.id.instance) >= 0 && state.has_state() &&
                     state.active() == stored_->epoch;
    }
    const bool is_first = !stored_ || stored_->incarnation != next.incarnation;
    if (!is_first && !has_insider) violate("continuity: no insider carries the history on");
    if (!is_first || !stored_) return;
    for (const Member& member : stored_->members) {
      const ModelProcess& old = processes_.at(member.id.instance);
      if (old.is_alive && !old.is_refused && old.state.has_state() &&
          old.state.active() == stored_->epoch) {
        violate("continuity: a new incarnation though a member with the state lives");
      }
    }
  }

  void check_all() {
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> steps;
    std::map<std::tuple<std::int64_t, std::int64_t, std::size_t>, std::uint64_t> values;
    for (const auto& [instance, process] : processes_) {
      const MemberState& state = process.state;
      if (state.active() == 0) continue;
      if (!durable_epochs_.contains(state.active()))
        violate("promise: START was seen before its record was durable");
      if (!process.is_alive || !state.has_state()) continue;
      auto [at, is_new] = steps.try_emplace(state.active(), state.step(), state.step());
      at->second = {std::min(at->second.first, state.step()),
                    std::max(at->second.second, state.step())};
      if (at->second.second - at->second.first > 1)
        violate("skew: two ranks of an epoch are more than a step apart");
      if (!process.order || process.order->record.epoch != state.active() ||
          state.step() >= options_.steps)
        continue;
      const Member held{.tiles_final = state.status().tiles_final};
      for (const auto& [tile, value] : process.tiles) {
        if (!tile_is_final(held, tile)) continue;
        const auto [found, first] = values.try_emplace({state.active(), state.step(), tile}, value);
        if (found->second != value) violate("one_tile: two ranks hold other bits of a final tile");
      }
    }
  }

  static constexpr Link agent_link = 1'000'000'000;

  ModelOptions options_;
  LighthouseRules rules_;
  CounterRandom random_;
  Instant now_{std::chrono::seconds(1000)};
  std::uint32_t term_ = 0;
  std::optional<LighthouseState> leader_;
  std::optional<EpochRecord> stored_;
  std::optional<EpochRecord> persisting_;
  bool is_durable_untold_ = false;
  bool agent_is_known_ = false;
  int faults_ = 0;
  std::uint64_t instances_ = 0;
  Link links_ = 0;
  std::map<std::uint64_t, ModelProcess> processes_;
  std::map<int, std::uint64_t> in_slot_;
  std::map<Link, std::deque<ToLighthouse>> up_;
  std::map<Link, std::deque<FromLighthouse>> down_;
  std::set<Link> ended_links_;   ///< the lighthouse will see the end
  std::set<Link> closed_links_;  ///< by the lighthouse
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::deque<DataMessage>> data_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> broken_pairs_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::int64_t> broken_in_epoch_;
  std::deque<std::uint64_t> reports_;
  std::set<std::uint64_t> to_be_killed_;
  std::vector<Act> acts_;
  // What was ever true, for the invariants.
  std::set<std::int64_t> durable_epochs_;
  std::map<std::int64_t, std::pair<std::uint64_t, std::int64_t>> bases_;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::uint64_t> history_;
  std::map<std::uint64_t, std::int64_t> newest_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::uint64_t, std::uint64_t>>
      votes_cast_;
  Coverage coverage_;
  std::string violation_;
  std::string trace_;
};

}  // namespace teson::quorum
