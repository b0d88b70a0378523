#include "teson/actor/actor_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace teson::actor::detail {

namespace {

/// With its number.
ActorSnapshot snapshot_of(std::uint64_t id, const LocalActor& actor) {
  ActorSnapshot seen = actor.snapshot();
  seen.actor = id;
  return seen;
}

TracedActor traced_of(std::uint64_t id, const LocalActor& actor) {
  TracedActor traced = actor.traced();
  traced.actor = id;
  return traced;
}

}  // namespace

ActorTable::Ended* ActorTable::find_ended(std::uint64_t id) {
  const auto found = std::find_if(ended_.begin(), ended_.end(),
                                  [id](const Ended& ended) { return ended.seen.actor == id; });
  return found == ended_.end() ? nullptr : &*found;
}

Result<void> ActorTable::add(std::uint64_t id,
                             const std::function<std::shared_ptr<LocalActor>()>& make) {
  std::lock_guard lock(mutex_);
  if (closed_) return fail(ErrorKind::aborted, "the process is ending");
  if (living_.contains(id) || find_ended(id) != nullptr) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a new actor number, found {} in use", id));
  }
  // Under the lock: it may end at once, and is then looked for here.
  living_.emplace(id, make());
  return {};
}

Result<void> ActorTable::push(Envelope envelope, bool in_place) {
  std::shared_ptr<LocalActor> actor;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = living_.find(envelope.actor); found != living_.end()) {
      actor = found->second;
    } else if (Ended* ended = find_ended(envelope.actor)) {
      ended->seen.refused += envelope.stop ? 0 : 1;
      return Failure(ended->why);
    }
  }
  if (actor) return actor->push(std::move(envelope), in_place);
  return fail(ErrorKind::invalid,
              fmt::format("proc {} has no actor {}; it was not spawned there, or has ended and is "
                          "no longer among the last {} that have",
                          proc_, envelope.actor, ended_max));
}

bool ActorTable::fill(std::uint64_t actor, std::uint64_t number,
                      std::optional<net::Buffer> buffer) {
  std::shared_ptr<LocalActor> living;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = living_.find(actor); found != living_.end()) living = found->second;
  }
  return living && living->fill(number, std::move(buffer));
}

std::shared_ptr<LocalActor> ActorTable::bury(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = living_.find(id);
  if (found == living_.end()) return nullptr;  // close waits for this thread
  auto actor = std::move(found->second);
  living_.erase(found);
  ended_.push_back({snapshot_of(id, *actor), traced_of(id, *actor), actor->why()});
  if (ended_.size() > ended_max) ended_.pop_front();
  return std::exchange(leaving_, std::move(actor));
}

std::vector<ActorSnapshot> ActorTable::snapshots() const {
  std::vector<ActorSnapshot> list;
  std::unique_lock lock(mutex_);
  for (const auto& ended : ended_)
    list.push_back(ended.seen);
  for (const auto& [id, actor] : living_)
    list.push_back(snapshot_of(id, *actor));
  lock.unlock();
  std::sort(list.begin(), list.end(),
            [](const auto& one, const auto& other) { return one.actor < other.actor; });
  return list;
}

void ActorTable::add_to(TraceReport& report) const {
  std::lock_guard lock(mutex_);
  for (const auto& ended : ended_)
    report.actors.push_back(ended.traced);
  for (const auto& [id, actor] : living_) {
    if (const auto running = actor->running()) report.events.push_back(*running);
    report.actors.push_back(traced_of(id, *actor));
  }
}

void ActorTable::close() {
  Living living;
  std::shared_ptr<LocalActor> leaving;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    living.swap(living_);
    leaving.swap(leaving_);
  }
  for (const auto& [id, actor] : living)
    actor->stop();
  if (leaving) leaving->join();
}

}  // namespace teson::actor::detail
