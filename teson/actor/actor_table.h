#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "teson/actor/handler_frame.h"
#include "teson/actor/inspect.h"
#include "teson/actor/local_actor.h"
#include "teson/actor/trace_ring.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"

namespace teson::actor::detail {

/// The actors of a process, by number: those that live, and what is known of the last ones that have
/// ended. An actor that ends gives back its thread, its mailbox and its object; what it has said of
/// itself, and why it has ended, is kept a while. Threads: any, unless said otherwise.
class ActorTable {
 public:
  /// Actors that have ended and are remembered.
  static constexpr std::size_t ended_max = 100;

  /// `proc`: the number of this process.
  explicit ActorTable(std::uint64_t proc) : proc_(proc) {}

  /// Adds what `make` gives, which is asked at once. `invalid`: the number is in use; `aborted`: the
  /// process ends.
  Result<void> add(std::uint64_t id, const std::function<std::shared_ptr<LocalActor>()>& make);
  /// As of LocalActor::push; if it has ended, why; `invalid` for one that never was, or was forgotten.
  Result<void> push(Envelope envelope, bool in_place);
  /// As of LocalActor::fill.
  bool fill(std::uint64_t actor, std::uint64_t number, std::optional<net::Buffer> buffer);
  /// On the actor's thread, which is about to end: from now on the actor is one that has ended. The
  /// one before it, if there is one, which the thread must join.
  std::shared_ptr<LocalActor> bury(std::uint64_t id);

  /// By number.
  std::vector<ActorSnapshot> snapshots() const;
  /// What they are called, and the handlers that run now.
  void add_to(TraceReport& report) const;

  /// Ends all, waiting for running handlers. Idempotent. Not from an actor's thread.
  void close();

 private:
  struct Ended {
    ActorSnapshot seen;  ///< with its number
    TracedActor traced;
    Error why;
  };
  using Living = std::unordered_map<std::uint64_t, std::shared_ptr<LocalActor>>;
  /// Under mutex_. Nothing if it is not remembered.
  Ended* find_ended(std::uint64_t id);

  const std::uint64_t proc_;
  mutable Mutex mutex_;
  Living living_;
  std::deque<Ended> ended_;              ///< the last ones, in the order of their ends
  std::shared_ptr<LocalActor> leaving_;  ///< the last that was buried: its thread is about to end
  bool closed_ = false;
};

}  // namespace teson::actor::detail
