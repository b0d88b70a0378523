// What LighthouseState sees by the clock: absence, silence, hangs.

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "teson/quorum/lighthouse_state.h"

namespace teson::quorum {

void LighthouseState::watch_links() {
  std::vector<std::pair<std::uint64_t, Cause>> lost;
  for (const auto& [instance, peer] : peers_) {
    if (peer.link != 0 && now_ - peer.heard_at > rules_.bounds.silent())
      lost.emplace_back(instance, Cause::silent);
    if (peer.link == 0 && now_ > peer.return_by) lost.emplace_back(instance, Cause::link_lost);
  }
  for (const auto& [instance, cause] : lost) {
    expel(instance, cause,
          cause == Cause::silent
              ? fmt::format("nothing heard for {:.0f} ms", to_ms(rules_.bounds.silent()))
              : "its connection ended and it did not come back");
  }
}

void LighthouseState::watch_round() {
  if (!round_ || round_->is_persisting || now_ <= round_->answer_by) return;
  std::vector<std::uint64_t> missing;
  for (const std::uint64_t instance : round_->proposed) {
    if (!round_->answers.contains(instance) && peers_.at(instance).link != 0)
      missing.push_back(instance);
  }
  for (const std::uint64_t instance : missing) {
    expel(instance, Cause::no_status,
          fmt::format("no answer to the FENCE of epoch {} in {:.0f} ms", epoch_text(round_->epoch),
                      to_ms(rules_.bounds.answer())));
  }
}

void LighthouseState::watch_reports() {
  if (!unreachable_since_ || round_ || stage_ != Stage::running ||
      now_ - *unreachable_since_ < rules_.bounds.reconnect()) {
    return;
  }
  if (unreachable_rounds_ > 0 && trouble_step_ == record_->base_step) return expel_unreachable();
  ++unreachable_rounds_;
  trouble_step_ = record_->base_step;
  want_round("a data connection broke; its ends are alive and shall connect again");
}

void LighthouseState::expel_unreachable() {
  std::map<std::uint64_t, int> reports;
  for (const auto& [reporter, peer] : unreachable_) {
    ++reports[reporter];
    ++reports[peer];
  }
  std::uint64_t worst = 0;
  for (const auto& [instance, count] : reports) {
    if (!peers_.contains(instance)) continue;
    if (worst == 0 || count > reports[worst] ||
        (count == reports[worst] && rank_of(*record_, instance) > rank_of(*record_, worst))) {
      worst = instance;
    }
  }
  unreachable_.clear();
  unreachable_since_.reset();
  if (worst != 0)
    expel(worst, Cause::unreachable, "its data connections broke again in the same step");
}

void LighthouseState::watch_finished() {
  if (finished_.empty() || round_ || stage_ != Stage::running) return;
  for (const auto& [instance, peer] : peers_) {
    if (peer.member && peer.link != 0 && peer.beat.phase == Phase::waiting_for_peers &&
        now_ - peer.progress_at > rules_.bounds.reconnect()) {
      return want_round("a member waits for one that has left");
    }
  }
}

void LighthouseState::watch_progress() {
  if (stage_ != Stage::running || round_ || wanted_) return;
  std::vector<std::uint64_t> suspects;
  std::vector<std::uint64_t> waiting;
  for (const auto& [instance, peer] : peers_) {
    if (!peer.member) continue;
    if (peer.link == 0) return;
    (peer.beat.phase == Phase::waiting_for_peers ? waiting : suspects).push_back(instance);
  }
  const auto stands_still = [&](std::uint64_t instance, int times) {
    const Peer& peer = peers_.at(instance);
    return now_ - peer.progress_at > times * rules_.bounds.hang(peer.beat.phase, longest_progress_);
  };
  if (suspects.empty()) {
    // Nobody computes and nobody moves: a message was lost between them. A new epoch builds new
    // connections.
    const bool all = std::all_of(waiting.begin(), waiting.end(),
                                 [&](std::uint64_t i) { return stands_still(i, 1); });
    if (all && !waiting.empty()) want_round("all members wait for each other");
    return;
  }
  // With several suspects each could be waiting for another in a way it does not say: so more
  // patience.
  const int times = suspects.size() == 1 ? 1 : 3;
  if (!std::all_of(suspects.begin(), suspects.end(),
                   [&](std::uint64_t i) { return stands_still(i, times); }))
    return;
  const std::uint64_t worst =
      *std::min_element(suspects.begin(), suspects.end(), [&](std::uint64_t a, std::uint64_t b) {
        return peers_.at(a).progress_at < peers_.at(b).progress_at;
      });
  const Peer& peer = peers_.at(worst);
  if (peer.beat.phase == Phase::idle && waiting.empty()) return;  // nobody has anything to do
  expel(worst, Cause::hang,
        fmt::format("no progress for {:.1f} s in phase {} of step {}, while all others wait",
                    to_seconds(now_ - peer.progress_at), to_string(peer.beat.phase),
                    peer.beat.step + 1));
}

}  // namespace teson::quorum
