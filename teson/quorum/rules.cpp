#include "teson/quorum/rules.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "teson/quorum/deal.h"

namespace teson::quorum {
namespace {

/// What the insiders' answers say about the parent's history.
struct History {
  std::int64_t step = 0;  ///< b
  std::uint64_t chain = 0;
  Outcome outcome;
  std::vector<std::size_t> level;     ///< answers of insiders at b
  std::vector<std::size_t> prepared;  ///< of insiders at b - 1 that hold G_b
};

/// The most frequent chain among these answers; ties: the one of the lowest position.
std::uint64_t common_chain(const std::vector<Answer>& answers,
                           const std::vector<std::size_t>& which) {
  std::uint64_t best = 0;
  std::ptrdiff_t best_count = 0;
  for (const std::size_t i : which) {
    const auto count = std::count_if(which.begin(), which.end(), [&](std::size_t j) {
      return answers[j].status.chain == answers[i].status.chain;
    });
    if (count > best_count) {
      best = answers[i].status.chain;
      best_count = count;
    }
  }
  return best;
}

bool may_be_insider(const EpochRecord& parent, const Answer& answer, const BrokenRules& broken) {
  if (!answer.status.has_state) return false;
  if (broken.no_insider_needed) return true;
  return rank_of(parent, answer.member.id.instance) >= 0 &&
         (answer.status.active == parent.epoch || broken.status_without_record);
}

/// Nothing if there is no insider.
std::optional<History> read_history(const EpochRecord& parent, const std::vector<Answer>& answers,
                                    const BrokenRules& broken) {
  std::vector<std::size_t> insiders;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (may_be_insider(parent, answers[i], broken)) insiders.push_back(i);
  }
  if (insiders.empty()) return std::nullopt;
  History history;
  history.step = broken.status_without_record || broken.no_insider_needed ? 0 : parent.base_step;
  for (const std::size_t i : insiders)
    history.step = std::max(history.step, answers[i].status.step);
  for (const std::size_t i : insiders) {
    if (answers[i].status.step == history.step) history.level.push_back(i);
  }
  if (history.level.empty()) return std::nullopt;
  history.chain = common_chain(answers, history.level);
  std::erase_if(history.level,
                [&](std::size_t i) { return answers[i].status.chain != history.chain; });
  history.outcome = answers[history.level.front()].status.last_outcome;
  for (const std::size_t i : insiders) {
    const Status& status = answers[i].status;
    if (status.step == history.step - 1 && status.vote && status.vote->step == history.step &&
        history.outcome.step == history.step && status.vote->digest == history.outcome.digest) {
      history.prepared.push_back(i);
    }
  }
  return history;
}

/// All insiders are level and voted alike for the next step. The votes' result, else nothing.
std::optional<VoteResult> read_votes(const EpochRecord& parent, const std::vector<Answer>& answers,
                                     const History& history, const BrokenRules& broken) {
  std::vector<Vote> votes;
  for (const std::size_t i : history.level) {
    const std::optional<Vote>& vote = answers[i].status.vote;
    if (vote && vote->epoch == parent.epoch && vote->step == history.step + 1)
      votes.push_back(*vote);
  }
  const std::size_t all = history.level.size() + history.prepared.size();
  const bool enough = broken.majority_commits ? 2 * votes.size() > all : votes.size() == all;
  if (votes.empty() || !enough) return std::nullopt;
  return decide(votes);
}

void keep_holdings(EpochRecord& record, const std::vector<Answer>& answers, const History& history,
                   bool keep_finals) {
  std::set<std::int32_t> taken;
  for (Member& member : record.members) {
    for (const std::size_t i : history.level) {
      if (answers[i].member.id.instance != member.id.instance) continue;
      for (const std::int32_t lane : answers[i].status.lanes_held) {
        if (lane >= 0 && lane < record.lanes_total && taken.insert(lane).second)
          member.lanes_held.push_back(lane);
      }
      std::sort(member.lanes_held.begin(), member.lanes_held.end());
      if (keep_finals) member.tiles_final = answers[i].status.tiles_final;
    }
  }
}

void set_weights(EpochRecord& record) {
  if (record.mode == Mode::elastic) {
    for (Member& member : record.members)
      member.lanes = 0;
    const auto slices = lanes_by_member(record, record.base_step + 1);
    for (std::size_t i = 0; i < slices.size(); ++i)
      record.members[i].lanes = static_cast<std::int32_t>(slices[i].size());
    return;
  }
  const auto weights = choose_weights(record.lanes_total, static_cast<int>(record.members.size()));
  for (std::size_t i = 0; i < weights.size(); ++i)
    record.members[i].lanes = weights[i];
}

EpochRecord begin_record(const Proposal& proposal, const std::vector<Answer>& answers) {
  EpochRecord record;
  record.job = proposal.job;
  record.plan_hash = proposal.plan_hash;
  record.epoch = proposal.epoch;
  record.mode = proposal.mode;
  record.lanes_total = proposal.lanes_total;
  record.replicas_expected = proposal.replicas_expected;
  record.base_outcome.step = -1;
  for (const Answer& answer : answers) {
    Member member = answer.member;
    member.learner = true;
    member.lanes_held.clear();
    member.tiles_final.clear();
    record.members.push_back(std::move(member));
  }
  std::sort(record.members.begin(), record.members.end(), [](const Member& a, const Member& b) {
    return std::pair(a.id.replica, a.id.shard) < std::pair(b.id.replica, b.id.shard);
  });
  return record;
}

void mark_with_state(EpochRecord& record, std::uint64_t instance) {
  const int rank = rank_of(record, instance);
  if (rank >= 0) record.members[static_cast<std::size_t>(rank)].learner = false;
}

}  // namespace

Duration Bounds::hang(Phase phase, Duration longest) const {
  const bool may_be_slow =
      phase != Phase::compute && phase != Phase::applying && phase != Phase::waiting_for_peers;
  return std::max({10 * heartbeat, 4 * longest, may_be_slow ? 15 * hang_floor : hang_floor});
}

Decision decide_next(const EpochRecord& parent, const Proposal& proposal,
                     std::vector<Answer> answers, const BrokenRules& broken) {
  const std::optional<History> history = read_history(parent, answers, broken);
  if (!history) return NoInsider{};
  EpochRecord record = begin_record(proposal, answers);
  record.parent = parent.epoch;
  record.incarnation = parent.incarnation;
  record.base_step = history->step;
  record.base_chain = history->chain;
  record.base_outcome = history->outcome;
  for (const std::size_t i : history->level)
    mark_with_state(record, answers[i].member.id.instance);
  for (const std::size_t i : history->prepared)
    mark_with_state(record, answers[i].member.id.instance);

  const std::optional<VoteResult> votes = read_votes(parent, answers, *history, broken);
  if (votes && votes->unanimous()) {
    record.verdict = Verdict::commit;
    record.base_step = votes->outcome.step;
    record.base_outcome = votes->outcome;
    record.base_chain = chain_next(history->chain, votes->outcome);
  } else {
    record.verdict = proposal.mode == Mode::exact ? Verdict::go_on : Verdict::discard;
    if (record.verdict == Verdict::go_on)
      keep_holdings(record, answers, *history, !votes.has_value());
    // A newcomer from a checkpoint of this very step, with the same history, needs nothing from a
    // donor.
    for (const Answer& answer : answers) {
      if (answer.status.has_state && answer.status.step == record.base_step &&
          answer.status.chain == record.base_chain) {
        mark_with_state(record, answer.member.id.instance);
      }
    }
  }
  set_weights(record);
  return NewRecord{std::move(record)};
}

Decision decide_first(std::int64_t parent_epoch, std::uint64_t incarnation,
                      const Proposal& proposal, std::vector<Answer> answers) {
  std::sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) {
    return std::pair(a.member.id.replica, a.member.id.shard) <
           std::pair(b.member.id.replica, b.member.id.shard);
  });
  std::int64_t step = -1;
  for (const Answer& answer : answers) {
    if (answer.status.has_state) step = std::max(step, answer.status.step);
  }
  if (step < 0) return NoState{};
  std::vector<std::size_t> level;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].status.has_state && answers[i].status.step == step) level.push_back(i);
  }
  EpochRecord record = begin_record(proposal, answers);
  record.parent = parent_epoch;
  record.incarnation = incarnation;
  record.verdict = Verdict::discard;
  record.base_step = step;
  record.base_chain = common_chain(answers, level);
  Conflict conflict;
  for (const std::size_t i : level) {
    if (answers[i].status.chain == record.base_chain) {
      mark_with_state(record, answers[i].member.id.instance);
    } else {
      conflict.instances.push_back(answers[i].member.id.instance);
      conflict.chain_found = answers[i].status.chain;
    }
  }
  if (!conflict.instances.empty()) {
    conflict.chain_expected = record.base_chain;
    conflict.text = fmt::format(
        "most ranks have the state of step {} with history {:016x}, this one has another "
        "({:016x}): it was started from another "
        "checkpoint, seed or build; start it from the same ones",
        step, conflict.chain_expected, conflict.chain_found);
    return conflict;
  }
  set_weights(record);
  return NewRecord{std::move(record)};
}

}  // namespace teson::quorum
