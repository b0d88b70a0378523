// How an owner ends actors while their processes live on.

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "teson/actor/mesh_state.h"
#include "teson/actor/node.h"
#include "teson/actor/read_request.h"
#include "teson/actor/reduce.h"
#include "teson/actor/wire.h"
#include "teson/base/clock.h"

namespace teson::actor::detail {

Result<void> Targets::stop() const {
  return mesh->stop_actors(*this);
}

Result<void> MeshState::stop_actors(const Targets& targets) {
  BegunCall begun;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return {};
    for (const std::size_t rank : targets.region.ranks_list())
      targets.stopped->insert(rank);
    std::erase_if(recipes_, [](const Recipe& recipe) {
      return recipe.stopped->size() == recipe.region.ranks();
    });
    begun = BegunCall::to(runtime_, procs_locked(targets.region), now() + targets.deadline);
  }
  begun.send(net::Payload(net::encode(StopActor{targets.actor, begun.pending->id()})),
             Kind::stop_actor);
  begun.pending->wait();
  std::vector<RankError> failures;
  for (std::size_t i = 0; i < begun.pending->size(); ++i) {
    auto confirmed = decode_reply<void>(*begun.pending->take(i));
    // With its process the actor has ended, too.
    if (!confirmed && confirmed.error().kind != ErrorKind::disconnected)
      failures.push_back({i, std::move(confirmed).error()});
  }
  if (failures.empty()) return {};
  return fail(ranks_failed(begun.pending->size(), std::move(failures)).in("stopping actors"));
}

Result<void> Node::stop_hosted(std::uint64_t proc, std::uint64_t actor, Duration deadline) {
  if (proc != self_) {
    return fail(ErrorKind::invalid,
                fmt::format("expected an actor that this process hosts, found one of {}; an actor "
                            "of a mesh is stopped by ActorMesh::stop",
                            routes_.where(proc)));
  }
  const auto pending = pending_->begin({self_}, now() + deadline);
  const auto taken =
      actors_.push({.from = self_, .call = pending->id(), .actor = actor, .stop = true}, false);
  if (!taken) return {};  // it has ended before
  pending->wait();
  return decode_reply<void>(*pending->take(0));
}

void Node::receive_stop_actor(std::uint64_t from, const net::Buffer& payload) {
  const auto request = read_request<StopActor>(from, payload.bytes(), "request to stop an actor");
  if (!request) return;
  const auto taken = actors_.push(
      {.from = from, .call = request->call, .actor = request->actor, .stop = true}, false);
  if (taken) return;
  // It has ended before.
  auto text = ReplyPath::begin_reply();
  net::encode_to(text, Result<void>());
  reply(from, request->call, std::move(text));
}

}  // namespace teson::actor::detail
