#include "teson/quorum/torchft_quorum.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::quorum {
namespace {

struct Census {
  std::vector<std::string_view> present;  ///< healthy participants, sorted
  std::size_t healthy = 0;
  bool shrink_only = false;
  std::optional<Instant> first_joined;
  bool previous_alive = false;  ///< a member of the last quorum is healthy, whether it asked or not
};

bool in_previous(const TorchftState& state, std::string_view id) {
  return state.previous && std::binary_search(state.previous->begin(), state.previous->end(), id);
}

Census take_census(const TorchftState& state, const TorchftRules& rules, Instant now) {
  Census census;
  auto asked = state.participants.begin();
  for (const auto& [id, last] : state.heartbeats) {
    if (now - last >= rules.heartbeat_timeout) continue;
    ++census.healthy;
    if (!census.previous_alive) census.previous_alive = in_previous(state, id);
    while (asked != state.participants.end() && asked->first < id)
      ++asked;
    if (asked == state.participants.end() || asked->first != id) continue;
    census.present.push_back(id);
    census.shrink_only |= asked->second.shrink_only;
    if (!census.first_joined || asked->second.joined < *census.first_joined)
      census.first_joined = asked->second.joined;
  }
  return census;
}

/// Who would be in the quorum: all present or, while someone present wants no newcomers, those of
/// the last quorum. If nobody of the last quorum lives there is nothing to shrink from.
std::vector<std::string> candidates(const TorchftState& state, const Census& census) {
  const bool shrink = census.shrink_only && state.previous && census.previous_alive;
  std::vector<std::string> ids;
  for (const auto id : census.present)
    if (!shrink || in_previous(state, id)) ids.emplace_back(id);
  return ids;
}

bool all_present(const std::vector<std::string>& previous, const Census& census) {
  return std::includes(census.present.begin(), census.present.end(), previous.begin(),
                       previous.end());
}

}  // namespace

TorchftDecision torchft_decide(const TorchftState& state, const TorchftRules& rules, Instant now) {
  const auto census = take_census(state, rules, now);
  const auto present = census.present.size();
  const auto census_text =
      fmt::format("[{}/{} participants healthy][{} heartbeating][shrink_only={}]", present,
                  state.participants.size(), census.healthy, census.shrink_only);
  auto members = candidates(state, census);
  const auto not_yet = [&](std::string why) {
    return TorchftDecision{false, {}, fmt::format("{} {}", why, census_text)};
  };

  if (members.size() < std::max<std::size_t>(rules.min_replicas, 1))
    return not_yet(
        fmt::format("New quorum not ready, only have {} participants, need min_replicas {}",
                    members.size(), rules.min_replicas));
  if (state.previous && all_present(*state.previous, census))
    return {true, std::move(members), "Fast quorum found! " + census_text};
  // Against a split brain. The majority is one of the members that can be heard now.
  if (present <= census.healthy / 2)
    return not_yet(fmt::format(
        "New quorum not ready, only have {} participants, need at least half of {} healthy workers",
        present, census.healthy));
  if (present != census.healthy && now - *census.first_joined < rules.join_timeout)
    return not_yet(
        fmt::format("Valid quorum with {} participants, waiting for {} healthy but not "
                    "participating stragglers due to join timeout",
                    present, census.healthy - present));
  return {true, std::move(members), "Valid quorum found " + census_text};
}

std::optional<Instant> torchft_next_change(const TorchftState& state, const TorchftRules& rules,
                                           Instant now) {
  std::optional<Instant> next;
  const auto consider = [&](Instant at) {
    if (at > now && (!next || at < *next)) next = at;
  };
  if (state.participants.empty()) return next;
  for (const auto& [id, last] : state.heartbeats)
    consider(last + rules.heartbeat_timeout);
  if (const auto census = take_census(state, rules, now); census.first_joined)
    consider(*census.first_joined + rules.join_timeout);
  return next;
}

TorchftLighthouse::TorchftLighthouse(TorchftRules rules, TorchftLimits limits,
                                     std::int64_t quorum_id)
    : rules_(rules), limits_(limits) {
  state_.quorum_id = quorum_id;
}

Result<void> TorchftLighthouse::heartbeat(std::string_view replica_id, Instant now) {
  if (replica_id.empty())
    return fail(ErrorKind::invalid, "replica_id: expected the member's name, found nothing");
  if (replica_id.size() > limits_.replica_id_bytes_max)
    return fail(ErrorKind::invalid, fmt::format("replica_id: expected at most {} bytes, found {}",
                                                limits_.replica_id_bytes_max, replica_id.size()));
  forget_silent(now);
  if (const auto known = state_.heartbeats.find(replica_id); known != state_.heartbeats.end()) {
    known->second = now;
    return {};
  }
  if (state_.heartbeats.size() >= limits_.heartbeats_max)
    return fail(
        ErrorKind::overloaded,
        fmt::format("replica_id '{}': already {} members are known, the most that are kept; "
                    "try again when silent ones were forgotten",
                    replica_id, state_.heartbeats.size()));
  state_.heartbeats.emplace(replica_id, now);
  return {};
}

/// Silent members are kept for a while, so that a status can show them, but give way when the table
/// is full.
void TorchftLighthouse::forget_silent(Instant now) {
  if (now < next_sweep_) return;
  next_sweep_ = now + rules_.heartbeat_timeout / 2;
  const bool full = state_.heartbeats.size() >= limits_.heartbeats_max;
  const auto kept = rules_.heartbeat_timeout * (full ? 1 : limits_.heartbeat_kept_timeouts);
  std::erase_if(state_.heartbeats, [&](const auto& entry) { return now - entry.second >= kept; });
}

namespace {

/// A member in a quorum's message: its bytes, their tag and their length.
std::size_t bytes_in_quorum(const TorchftMember& member) {
  return member.payload.size() + 8;
}

}  // namespace

Result<TorchftTicket> TorchftLighthouse::join(TorchftMember member, Instant now) {
  const auto size = bytes_in_quorum(member);
  if (member.payload.size() > limits_.payload_bytes_max)
    return fail(ErrorKind::invalid,
                fmt::format("member '{:.100}': expected at most {} bytes, found {}",
                            member.replica_id, limits_.payload_bytes_max, member.payload.size()));
  if (waiting_.size() >= limits_.waiting_max)
    return fail(
        ErrorKind::overloaded,
        fmt::format("already {} calls wait for a quorum, the most that may", waiting_.size()));
  if (waiting_bytes_ + size > limits_.quorum_bytes_max)
    return fail(
        ErrorKind::overloaded,
        fmt::format("member '{:.100}': {} bytes more would make the quorum larger than the {} "
                    "bytes that members can read; send less data",
                    member.replica_id, size, limits_.quorum_bytes_max));
  TESON_TRY_VOID(heartbeat(member.replica_id, now));
  const auto ticket = ++last_ticket_;
  participate(ticket, member, now);
  waiting_bytes_ += size;
  waiting_.emplace(ticket, std::move(member));
  return ticket;
}

void TorchftLighthouse::participate(TorchftTicket ticket, const TorchftMember& member,
                                    Instant now) {
  state_.participants.insert_or_assign(member.replica_id,
                                       TorchftParticipant{now, member.shrink_only, ticket});
}

void TorchftLighthouse::leave(TorchftTicket ticket, Instant now) {
  const auto call = waiting_.find(ticket);
  if (call == waiting_.end()) return;
  const auto member = std::move(call->second);
  waiting_bytes_ -= bytes_in_quorum(member);
  waiting_.erase(call);
  const auto participant = state_.participants.find(member.replica_id);
  if (participant == state_.participants.end() || participant->second.ticket != ticket) return;
  state_.participants.erase(participant);
  const auto older = std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const auto& other) {
    return other.second.replica_id == member.replica_id;
  });
  if (older != waiting_.rend()) participate(older->first, older->second, now);
}

std::optional<TorchftQuorum> TorchftLighthouse::tick(Instant now) {
  auto decision = torchft_decide(state_, rules_, now);
  reason_ = std::move(decision.reason);
  if (!decision.ready) return std::nullopt;

  TorchftQuorum quorum;
  bool failures = false;
  for (const auto& id : decision.members) {
    const auto& member = waiting_.at(state_.participants.at(id).ticket);
    failures |= member.commit_failures > 0;
    quorum.members.push_back(member);
  }
  quorum.changed = failures || !state_.previous || *state_.previous != decision.members;
  if (quorum.changed) ++state_.quorum_id;
  quorum.quorum_id = state_.quorum_id;
  state_.previous = std::move(decision.members);

  state_.participants.clear();
  for (auto call = waiting_.begin(); call != waiting_.end();) {
    if (in_previous(state_, call->second.replica_id)) {
      quorum.tickets.push_back(call->first);
      waiting_bytes_ -= bytes_in_quorum(call->second);
      call = waiting_.erase(call);
    } else {
      participate(call->first, call->second, now);
      ++call;
    }
  }
  TESON_CHECK(!quorum.tickets.empty(), quorum.quorum_id);
  return quorum;
}

}  // namespace teson::quorum
