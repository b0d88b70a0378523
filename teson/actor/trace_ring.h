#pragma once

// What a process remembers of its messages while a trace is taken; not for use outside actor/.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "teson/actor/trace_id.h"
#include "teson/base/clock.h"
#include "teson/base/thread.h"

namespace teson::actor::detail {

struct CallHeader;
struct Envelope;

/// A message that was sent, or the handler of one that arrived.
struct TraceEvent {
  enum class What : std::uint8_t { sent, handled };
  What what = What::sent;
  bool awaited = false;          ///< a call, not a cast
  bool running = false;          ///< the handler has not ended yet
  std::int64_t begin_ns = 0;     ///< of CLOCK_MONOTONIC
  std::int64_t duration_ns = 0;  ///< of a handler
  MessageTrace trace;
  std::uint64_t proc = 0;      ///< that it was sent to, as the sender counts
  std::uint64_t actor = 0;     ///< whose handler it is, or within whose it was sent; 0: outside
  std::uint32_t endpoint = 0;  ///< of the actor that it was sent to
  std::uint32_t thread = 0;    ///< that sent it outside handlers, as the system counts
};

/// What the actors in a trace are called.
struct TracedActor {
  std::uint64_t actor = 0;
  std::string name;
  std::string class_name;
  std::vector<std::string> endpoints;
};

/// What one process has remembered.
struct TraceReport {
  std::vector<TraceEvent> events;  ///< in the order of their ends
  std::uint64_t lost = 0;          ///< older ones, for which there was no room
  std::vector<TracedActor> actors;
};

/// The last events of one process. Off, it costs one relaxed load an event. Threads: any.
class TraceRing {
 public:
  static constexpr std::size_t events_max = 65536;

  bool on() const { return on_.load(std::memory_order_relaxed); }
  /// From now on remembers so many, at most events_max; what was there is forgotten.
  void begin(std::size_t events);
  /// What was remembered, and its memory with it. Off from then on.
  TraceReport end();

  // While on; dropped otherwise.
  void sent(std::uint64_t proc, const CallHeader& header);
  void handled(const Envelope& envelope, Instant begin);

 private:
  void add(const TraceEvent& event);

  std::atomic<bool> on_{false};
  Mutex mutex_;
  std::vector<TraceEvent> events_;
  std::size_t room_ = 0;
  std::size_t next_ = 0;  ///< where the oldest stands, once all room is taken
  std::uint64_t lost_ = 0;
};

/// The handler of a message, from `begin` to now.
TraceEvent handler_event(const Envelope& envelope, Instant begin);

}  // namespace teson::actor::detail
