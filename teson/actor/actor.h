#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "teson/actor/actor_ref.h"
#include "teson/actor/behaviour.h"
#include "teson/actor/call.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/node.h"
#include "teson/base/clock.h"

namespace teson::actor {

/// One actor of type T, wherever it lives, as seen from this process. Copyable; must not outlive
/// the System or Proc that gave it. Threads: any. Messages of one thread to one actor arrive in the
/// order sent, calls and casts alike.
template <typename T>
class Actor {
 public:
  Actor(detail::Node& node, ActorRef<T> ref, Duration deadline)
      : node_(&node), ref_(ref), deadline_(deadline) {}

  ActorRef<T> ref() const { return ref_; }
  /// The same actor, with another deadline for its calls.
  Actor within(Duration deadline) const { return {*node_, ref_, deadline}; }

  /// Sends; the reply comes through wait(). Whatever goes wrong, also in sending, is in the reply.
  template <auto Method, typename... Args>
  [[nodiscard]] CallOne<ReplyOf<Method>> call(const Args&... args) const {
    auto pending = node_->begin_call(ref_.proc, now() + deadline_);
    if (auto sent = send<Method>(pending->id(), args...); !sent)
      pending->complete_at(0, Failure(std::move(sent).error()));
    return CallOne<ReplyOf<Method>>(std::move(pending));
  }
  /// Sends without a reply. An error means that it was not sent; success does not mean that it was
  /// handled. If the handler fails, the actor ends and its owner is told.
  template <auto Method, typename... Args>
  Result<void> cast(const Args&... args) const {
    return send<Method>(0, args...);
  }

 private:
  template <auto Method, typename... Args>
  Result<void> send(std::uint64_t call, const Args&... args) const {
    net::PayloadWriter payload =
        detail::call_payload(ref_.actor, call, detail::endpoint_id<T, Method>());
    detail::encode_arguments<typename detail::MethodTraits<decltype(Method)>::Arguments>(payload,
                                                                                         args...);
    return node_->send(ref_.proc, std::move(payload).finish(), call != 0);
  }

  detail::Node* node_;
  ActorRef<T> ref_;
  Duration deadline_;
};

namespace detail {

/// What System::host and Proc::host do.
template <typename T>
ActorRef<T> host_actor(Node& node, std::string name, std::unique_ptr<T> actor,
                       ActorOptions options) {
  const std::uint64_t id = node.next_actor_id();
  // Shared, since what makes an actor must be copyable.
  auto behaviour = std::make_shared<std::unique_ptr<Behaviour>>(
      std::make_unique<TypedBehaviour<T>>(std::move(actor)));
  node.host(
      id, std::move(name),
      [behaviour]() -> Result<std::unique_ptr<Behaviour>> { return std::move(*behaviour); },
      options);
  return {node.self(), id};
}

}  // namespace detail
}  // namespace teson::actor
