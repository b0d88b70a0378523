#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "teson/actor/actor_ref.h"
#include "teson/actor/call.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/node.h"
#include "teson/actor/reduce.h"
#include "teson/actor/region.h"
#include "teson/actor/sliceable.h"
#include "teson/actor/wire.h"
#include "teson/base/check.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::actor {

namespace detail {

class MeshState;
class Relays;
class RemoteProc;
struct Runtime;

/// A call that is registered but not yet sent, and the processes it goes to: a slot each.
struct BegunCall {
  std::shared_ptr<PendingCall> pending;
  std::vector<std::shared_ptr<RemoteProc>> procs;  ///< none where a slot is complete already
  Relays* relays = nullptr;                        ///< if there are any

  static BegunCall to(Runtime& runtime, std::vector<std::shared_ptr<RemoteProc>> procs,
                      Instant deadline);
  /// Completes a slot to which nothing is to be sent.
  void refuse(std::size_t index, Error error);
  /// Sends the payload; slots that cannot be reached are completed with the reason.
  void send(const net::Payload& payload, Kind kind = Kind::call) const;

 private:
  void note(std::size_t index, Result<void> sent) const;
};

/// Some ranks' actors of one spawn, without their type.
struct Targets {
  std::shared_ptr<MeshState> mesh;
  Region region;      ///< in ranks of the mesh of processes
  std::string slice;  ///< the region as messages carry it; empty: all that was spawned
  std::uint64_t actor = 0;
  Duration deadline{};
  /// Ranks whose actor was stopped: of the whole spawn, whose handles share it. Under the mutex of
  /// the mesh.
  std::shared_ptr<std::set<std::size_t>> stopped;

  Targets through(Region part) const;
  BegunCall begin() const;
  /// To the living rank with the fewest calls under way.
  BegunCall begin_choice() const;
  /// The first error; the others have been sent to all the same.
  Result<void> send_cast(const net::Payload& payload) const;
  Result<void> stop() const;
  std::uint64_t proc_of(std::size_t rank) const;
};

}  // namespace detail

/// Actors of type T, one in each of some processes of a mesh. A light handle: copyable, outlives
/// its mesh (calls are then `disconnected`), stays valid when ranks are replaced. Threads: any.
/// Messages of one thread arrive at each actor in the order sent, over all ways of sending and over
/// slices alike.
///
///   call      to all; waits for all, or for a quorum       call.h
///   call_one  to the only actor of a mesh of one
///   choose    to the one with the least to do
///   stream    to all; replies in the order they come
///   reduce    to all; one value out of all replies         reduce.h
///   cast      to all; no reply
///   stop      ends them
template <typename T>
class ActorMesh : public Sliceable<ActorMesh<T>> {
 public:
  explicit ActorMesh(detail::Targets targets) : targets_(std::move(targets)) {}

  const Region& region() const { return targets_.region; }
  /// The actors of some of its ranks, arranged as in `part`. Every rank of it must be in region().
  ActorMesh through(Region part) const { return ActorMesh(targets_.through(std::move(part))); }
  /// The same actors, with another deadline for their calls.
  ActorMesh within(Duration deadline) const {
    ActorMesh other = *this;
    other.targets_.deadline = deadline;
    return other;
  }
  /// The actor of one of its ranks as a value, in its present incarnation.
  ActorRef<T> ref(std::size_t rank) const { return {targets_.proc_of(rank), targets_.actor}; }

  template <auto Method, typename... Args>
  [[nodiscard]] Call<ReplyOf<Method>> call(const Args&... args) const {
    return Call<ReplyOf<Method>>(send<Method>(targets_.begin(), args...));
  }
  template <auto Method, typename... Args>
  [[nodiscard]] CallOne<ReplyOf<Method>> call_one(const Args&... args) const {
    TESON_CHECK(this->size() == 1, this->size());
    return CallOne<ReplyOf<Method>>(send<Method>(targets_.begin(), args...));
  }
  /// Calls the living rank that owes this process the fewest replies to calls of any kind; among
  /// equals in turn. If it dies before it has answered, the reply is the error that names it: only
  /// the caller knows whether a second try is harmless.
  template <auto Method, typename... Args>
  [[nodiscard]] CallOne<ReplyOf<Method>> choose(const Args&... args) const {
    return CallOne<ReplyOf<Method>>(send<Method>(targets_.begin_choice(), args...));
  }
  template <auto Method, typename... Args>
  [[nodiscard]] Stream<ReplyOf<Method>> stream(const Args&... args) const {
    return Stream<ReplyOf<Method>>(send<Method>(targets_.begin(), args...));
  }
  /// Blocks until every rank has replied or failed.
  template <auto Method, typename Operation, typename... Args>
  [[nodiscard]] Result<detail::ReducedOf<ReplyOf<Method>, Operation>> reduce(
      const Operation& operation, const Args&... args) const {
    return detail::reduce(stream<Method>(args...), operation);
  }
  /// An error (the first) means that some were not reached; success does not mean that it was
  /// handled. If a handler fails, its actor ends and SystemOptions::on_actor_failure is told.
  template <auto Method, typename... Args>
  Result<void> cast(const Args&... args) const {
    return targets_.send_cast(payload<Method>(0, args...));
  }

  /// Ends the actors; their processes live on. Each handles what was sent to it before, then its
  /// object is destroyed, on its thread. Messages that follow are refused as `disconnected`, saying
  /// that its owner has stopped it, and a process that replaces another does not get it again. It
  /// is no failure: nobody is told of one.
  /// Blocks until every rank has confirmed, at most until the deadline of this handle; then the
  /// error (`timed_out`) names the ranks that have not: their actors end when their handlers
  /// return. An actor that has ended before, and one whose process is dead, counts as stopped; so
  /// this may be called again. Not on the I/O thread, nor in a handler that runs in place.
  Result<void> stop() const { return targets_.stop(); }

 private:
  template <auto Method, typename... Args>
  net::Payload payload(std::uint64_t call, const Args&... args) const {
    using Arguments = typename detail::MethodTraits<decltype(Method)>::Arguments;
    net::PayloadWriter writer = detail::call_payload(
        targets_.actor, call, detail::endpoint_id<T, Method>(), targets_.slice);
    detail::encode_arguments<Arguments>(writer, args...);
    return std::move(writer).finish();
  }
  template <auto Method, typename... Args>
  std::shared_ptr<detail::PendingCall> send(detail::BegunCall begun, const Args&... args) const {
    begun.send(payload<Method>(begun.pending->id(), args...));
    return std::move(begun.pending);
  }

  detail::Targets targets_;
};

}  // namespace teson::actor
