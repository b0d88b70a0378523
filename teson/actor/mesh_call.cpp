// How messages to actors find the processes of their mesh.

#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "teson/actor/mesh_state.h"
#include "teson/base/clock.h"

namespace teson::actor::detail {

BegunCall MeshState::begin(const Targets& targets) const {
  std::lock_guard lock(mutex_);
  return begin_locked(targets, targets.region);
}

BegunCall MeshState::begin_choice(const Targets& targets) {
  std::lock_guard lock(mutex_);
  const std::size_t rank = least_busy_locked(targets);
  next_choice_ = rank + 1;
  return begin_locked(targets, *Region::make({.offset = rank}));
}

std::size_t MeshState::least_busy_locked(const Targets& targets) const {
  const Region& region = targets.region;
  // Among equals the first one from whose turn it is.
  const auto turn = [&](std::size_t rank) {
    return (rank + procs_.size() - next_choice_) % procs_.size();
  };
  const auto busyness = [&](std::size_t rank) {
    const bool serves = procs_[rank]->alive() && !targets.stopped->contains(rank);
    return std::tuple(!serves, procs_[rank]->unanswered(), turn(rank));
  };
  std::size_t best = region.rank_at(0);
  auto least = busyness(best);
  for (std::size_t i = 1; i < region.ranks(); ++i) {
    const std::size_t rank = region.rank_at(i);
    const auto found = busyness(rank);
    if (found >= least) continue;
    best = rank;
    least = found;
  }
  return best;
}

std::vector<std::shared_ptr<RemoteProc>> MeshState::procs_locked(const Region& region) const {
  std::vector<std::shared_ptr<RemoteProc>> procs;
  procs.reserve(region.ranks());
  for (std::size_t i = 0; i < region.ranks(); ++i)
    procs.push_back(procs_[region.rank_at(i)]);
  return procs;
}

Error MeshState::mesh_stopped() const {
  return {ErrorKind::disconnected, fmt::format("mesh '{}' has been stopped", options_.name)};
}

Error MeshState::stopped_error(std::size_t rank) const {
  return {ErrorKind::disconnected,
          fmt::format("the actor in rank {} of mesh '{}' was stopped by its owner", rank,
                      options_.name)};
}

BegunCall MeshState::begin_locked(const Targets& targets, const Region& region) const {
  const Instant until = now() + targets.deadline;
  if (stopped_) {
    BegunCall begun;
    begun.pending =
        std::make_shared<PendingCall>(0, std::vector<std::uint64_t>(region.ranks()), until);
    begun.pending->fail_all(mesh_stopped());
    return begun;
  }
  BegunCall begun = BegunCall::to(runtime_, procs_locked(region), until);
  if (begun.procs.size() == 1) begun.pending->read_from(begun.procs.front()->reader());
  if (targets.stopped->empty()) return begun;
  for (std::size_t i = 0; i < region.ranks(); ++i) {
    const std::size_t rank = region.rank_at(i);
    if (targets.stopped->contains(rank)) begun.refuse(i, stopped_error(rank));
  }
  return begun;
}

BegunCall BegunCall::to(Runtime& runtime, std::vector<std::shared_ptr<RemoteProc>> procs,
                        Instant deadline) {
  std::vector<std::uint64_t> ids;
  ids.reserve(procs.size());
  for (const auto& proc : procs) {
    proc->count_call();
    ids.push_back(proc->id());
  }
  return {runtime.node.pending().begin(std::move(ids), deadline), std::move(procs),
          &runtime.relays};
}

void BegunCall::refuse(std::size_t index, Error error) {
  std::exchange(procs[index], nullptr)->count_reply();
  pending->complete_at(index, Failure(std::move(error)));
}

void BegunCall::send(const net::Payload& payload, Kind kind) const {
  if (kind == Kind::call && !procs.empty()) {
    return relays->send(procs, payload,
                        [this](std::size_t i, Result<void> sent) { note(i, std::move(sent)); });
  }
  for (std::size_t i = 0; i < procs.size(); ++i) {
    if (procs[i]) note(i, procs[i]->send(kind, payload));
  }
}

void BegunCall::note(std::size_t index, Result<void> sent) const {
  if (sent) return;
  procs[index]->count_reply();
  if (auto gone = procs[index]->gone()) {
    pending->complete_at(index, Failure(std::move(*gone)));
  } else if (sent.error().kind != ErrorKind::disconnected) {
    pending->complete_at(index, Failure(std::move(sent).error()));
  }
  // Else it is dying: its end, which is about to be known, completes the slot and says how it
  // died.
}

Result<void> MeshState::send_cast(const Targets& targets, const net::Payload& payload) const {
  Result<void> result;
  const auto note = [&](Error error) {
    if (result) result = fail(std::move(error));
  };
  std::vector<std::shared_ptr<RemoteProc>> procs;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return fail(mesh_stopped());
    procs = procs_locked(targets.region);
    for (std::size_t i = 0; i < procs.size() && !targets.stopped->empty(); ++i) {
      const std::size_t rank = targets.region.rank_at(i);
      if (!targets.stopped->contains(rank)) continue;
      procs[i] = nullptr;
      note(stopped_error(rank));
    }
  }
  runtime_.relays.send(procs, payload, [&](std::size_t i, Result<void> sent) {
    if (!sent) note(procs[i]->gone().value_or(std::move(sent).error()));
  });
  return result;
}

Targets Targets::through(Region part) const {
  Targets some = *this;
  some.slice = net::encode(part.layout());
  some.region = std::move(part);
  return some;
}
BegunCall Targets::begin() const {
  return mesh->begin(*this);
}
BegunCall Targets::begin_choice() const {
  return mesh->begin_choice(*this);
}
Result<void> Targets::send_cast(const net::Payload& payload) const {
  return mesh->send_cast(*this, payload);
}
std::uint64_t Targets::proc_of(std::size_t rank) const {
  return mesh->proc(region.rank_at(rank))->id();
}

}  // namespace teson::actor::detail
