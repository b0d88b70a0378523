#include "teson/actor/trace_ring.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "teson/actor/handler_frame.h"
#include "teson/actor/wire.h"
#include "teson/base/clock.h"

namespace teson::actor::detail {

namespace {

std::int64_t since_boot_ns(Instant instant) {
  return instant.time_since_epoch().count();
}

}  // namespace

TraceEvent handler_event(const Envelope& envelope, Instant begin) {
  const Duration took = now() - begin;
  return {.what = TraceEvent::What::handled,
          .awaited = envelope.call != 0,
          .begin_ns = since_boot_ns(begin),
          .duration_ns = std::max<std::int64_t>(took.count(), 0),
          .trace = envelope.trace,
          .actor = envelope.actor,
          .endpoint = envelope.endpoint.index};
}

void TraceRing::begin(std::size_t events) {
  std::lock_guard lock(mutex_);
  room_ = std::clamp<std::size_t>(events, 1, events_max);
  events_.clear();
  events_.reserve(room_);
  next_ = 0;
  lost_ = 0;
  on_.store(true, std::memory_order_relaxed);
}

TraceReport TraceRing::end() {
  std::lock_guard lock(mutex_);
  on_.store(false, std::memory_order_relaxed);
  room_ = 0;
  TraceReport report{.events = std::exchange(events_, {}), .lost = std::exchange(lost_, 0)};
  std::rotate(report.events.begin(),
              report.events.begin() + static_cast<std::ptrdiff_t>(std::exchange(next_, 0)),
              report.events.end());
  return report;
}

void TraceRing::sent(std::uint64_t proc, const CallHeader& header) {
  TraceEvent event{.what = TraceEvent::What::sent,
                   .awaited = header.call != 0,
                   .begin_ns = since_boot_ns(now()),
                   .trace = header.trace,
                   .proc = proc,
                   .endpoint = header.endpoint};
  const HandlerFrame* frame = HandlerFrame::current();
  if (frame != nullptr && frame->handling()) {
    event.actor = frame->envelope().actor;
  } else {
    event.thread = static_cast<std::uint32_t>(::gettid());
  }
  add(event);
}

void TraceRing::handled(const Envelope& envelope, Instant begin) {
  add(handler_event(envelope, begin));
}

void TraceRing::add(const TraceEvent& event) {
  std::lock_guard lock(mutex_);
  if (room_ == 0) return;
  if (events_.size() < room_) return events_.push_back(event);
  events_[next_] = event;
  next_ = (next_ + 1) % room_;
  ++lost_;
}

}  // namespace teson::actor::detail
