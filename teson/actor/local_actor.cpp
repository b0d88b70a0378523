#include "teson/actor/local_actor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <time.h>

#include "teson/actor/wire.h"
#include "teson/base/check.h"
#include "teson/base/clock.h"
#include "teson/base/thread.h"
#include "teson/base/world.h"

namespace teson::actor::detail {

namespace {

/// How many handlers may run in place within one another; deeper ones get the actor's thread.
constexpr int nesting_max = 8;
/// Handlers of such actors that run on this thread: theirs or another's.
thread_local int nesting = 0;

/// As of the kernel's last tick: milliseconds old, and much cheaper than the exact time.
Instant recent_now() {
  if (World::current() != nullptr) return now();
  struct timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return Instant(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

}  // namespace

bool must_not_wait() {
  return nesting > 0;
}

LocalActor::LocalActor(std::string name, SpawnPlace place, MailboxLimits limits,
                       ActorOptions options, Make make, Hooks hooks)
    : name_(std::move(name)),
      place_(std::move(place)),
      limits_(limits),
      options_(options),
      hooks_(std::move(hooks)),
      turn_since_(recent_now()) {
  thread_ = Thread(name_, [this, make = std::move(make)] { run(make); }, Signals::taken);
}

LocalActor::~LocalActor() {
  TESON_CHECK(!thread_.joinable());
}

void LocalActor::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Result<void> LocalActor::push(Envelope envelope, bool in_place) {
  std::unique_lock lock(mutex_);
  if (ended_) {
    refused_ += envelope.stop ? 0 : 1;
    return Failure(*ended_);
  }
  if (in_place && !envelope.stop && envelope.awaits == 0 &&
      options_.handlers == Handlers::in_place && !turn_taken_ && mailbox_.empty() && !stopping_ &&
      nesting < nesting_max) {
    begin_turn(&envelope);
    lock.unlock();
    const bool handled = handle(envelope);
    lock.lock();
    end_turn(handled);
    const bool wake = stopping_ || ended_ || !mailbox_.empty();
    lock.unlock();
    if (wake) changed_.notify_one();
    return {};
  }
  const std::size_t size = envelope.bytes();
  if (!mailbox_.empty() && !envelope.stop &&
      (mailbox_.size() >= limits_.messages_max || mailbox_bytes_ + size > limits_.bytes_max)) {
    ++refused_;
    return fail(ErrorKind::overloaded,
                fmt::format("the mailbox of actor '{}' is full: {} messages, {} bytes (at most "
                            "{} and {}); try later",
                            name_, mailbox_.size(), mailbox_bytes_, limits_.messages_max,
                            limits_.bytes_max));
  }
  mailbox_bytes_ += size;
  mailbox_.push_back(std::move(envelope));
  const bool wake = !turn_taken_;  // who has the turn looks again at its end
  lock.unlock();
  if (wake) changed_.notify_one();
  return {};
}

bool LocalActor::fill(std::uint64_t number, std::optional<net::Buffer> buffer) {
  std::unique_lock lock(mutex_);
  const auto place = std::ranges::find(mailbox_, number, &Envelope::awaits);
  if (place == mailbox_.end()) return false;
  if (buffer) {
    place->buffer = std::move(*buffer);
    place->awaits = 0;
  } else {
    mailbox_bytes_ -= place->bytes();
    mailbox_.erase(place);
  }
  const bool wake = !turn_taken_ && ready();
  lock.unlock();
  if (wake) changed_.notify_one();
  return true;
}

void LocalActor::run(const Make& make) {
  construct(make);
  std::unique_lock lock(mutex_);
  turn_taken_ = false;
  if (behaviour_) names_ = behaviour_->names();
  while (true) {
    changed_.wait(lock, [&] { return !turn_taken_ && (stopping_ || ended_ || ready()); });
    if (stopping_ || ended_ || mailbox_.front().stop) return end(std::move(lock));
    const Envelope envelope = std::move(mailbox_.front());
    mailbox_.pop_front();
    mailbox_bytes_ -= envelope.bytes();
    begin_turn(&envelope);
    lock.unlock();
    const bool handled = handle(envelope);
    lock.lock();
    end_turn(handled);
  }
}

void LocalActor::end(std::unique_lock<Mutex> lock) {
  if (!ended_) {
    ended_ = {stopping_ ? ErrorKind::aborted : ErrorKind::disconnected,
              fmt::format("actor '{}' was stopped by {}", name_,
                          stopping_ ? "the end of its process" : "its owner")};
  }
  begin_turn(nullptr);
  const std::deque<Envelope> left = std::exchange(mailbox_, {});
  mailbox_bytes_ = 0;
  const bool process_ends = stopping_;
  if (!process_ends) {
    refused_ += static_cast<std::uint64_t>(
        std::count_if(left.begin(), left.end(), [](const Envelope& one) { return !one.stop; }));
  }
  lock.unlock();
  {
    const HandlerFrame frame(*ended_);
    behaviour_.reset();
  }
  lock.lock();
  turn_taken_ = false;
  lock.unlock();
  const auto before = hooks_.ended();
  for (const Envelope& envelope : left) {
    if (process_ends) break;
    if (envelope.stop) {
      answer(envelope, {});
    } else {
      refuse(envelope, *ended_);
    }
  }
  if (before) before->join();
}

void LocalActor::begin_turn(const Envelope* envelope) {
  turn_taken_ = true;
  turn_since_ = recent_now();
  handled_now_ = envelope;
}

void LocalActor::end_turn(bool handled) {
  turn_taken_ = false;
  handled_now_ = nullptr;
  ++(handled ? handled_ : refused_);
}

ActorSnapshot LocalActor::snapshot() const {
  std::lock_guard lock(mutex_);
  ActorSnapshot snapshot{.name = name_,
                         .mailbox_messages = mailbox_.size(),
                         .mailbox_bytes = mailbox_bytes_,
                         .handled = handled_,
                         .refused = refused_,
                         .last_failure = last_failure_,
                         .last_failure_trace = last_failure_trace_};
  if (names_) snapshot.class_name = names_->class_name;
  if (turn_taken_) snapshot.busy = std::max(Duration::zero(), recent_now() - turn_since_);
  if (handled_now_ != nullptr && names_) {
    snapshot.handler = names_->endpoint(handled_now_->endpoint.index);
    snapshot.trace = handled_now_->trace.trace;
  }
  snapshot.state = failed_        ? ActorState::failed
                   : ended_       ? ActorState::stopped
                   : !turn_taken_ ? ActorState::idle
                   : names_       ? ActorState::busy
                                  : ActorState::starting;
  return snapshot;
}

std::optional<TraceEvent> LocalActor::running() const {
  std::lock_guard lock(mutex_);
  if (handled_now_ == nullptr) return std::nullopt;
  TraceEvent event = handler_event(*handled_now_, turn_since_);
  event.running = true;
  return event;
}

TracedActor LocalActor::traced() const {
  std::lock_guard lock(mutex_);
  TracedActor traced{.name = name_};
  if (!names_) return traced;
  traced.class_name = names_->class_name;
  traced.endpoints.assign(names_->endpoints.begin(), names_->endpoints.end());
  return traced;
}

void LocalActor::construct(const Make& make) {
  auto made = guarded(make);
  if (made) {
    behaviour_ = std::move(*made);
  } else {
    const Error error = std::move(made).error().in("starting actor '" + name_ + "'");
    note_failure(error, 0);
    die(error);
  }
}

bool LocalActor::handle(const Envelope& envelope) {
  const bool in_place = options_.handlers == Handlers::in_place;
  const bool traced = hooks_.trace != nullptr && hooks_.trace->on();
  const Instant begun = traced ? now() : Instant();
  nesting += in_place ? 1 : 0;
  const bool handled = dispatch(envelope);
  nesting -= in_place ? 1 : 0;
  if (traced && handled) hooks_.trace->handled(envelope, begun);
  return handled;
}

bool LocalActor::dispatch(const Envelope& envelope) {
  if (envelope.endpoint.interface != behaviour_->interface()) {
    refuse(envelope,
           interface_mismatch(name_, behaviour_->interface(), envelope.endpoint.interface));
    return false;
  }
  const bool waiting = envelope.call != 0;
  const HandlerFrame frame(hooks_.outlet, place_, envelope);
  net::PayloadWriter reply = ReplyPath::begin_reply();
  const Handled handled = behaviour_->handle(envelope.endpoint.index, envelope.arguments(), reply);
  if (handled.error && handled.reply != Handled::Reply::refused)
    note_failure(*handled.error, envelope.trace.trace);
  switch (handled.reply) {
    case Handled::Reply::refused:
      refuse(envelope, *handled.error);
      return false;
    case Handled::Reply::written:
      if (!waiting) break;
      hooks_.reply(envelope.from, envelope.call, std::move(reply));
      return true;
    case Handled::Reply::later:
      if (waiting && frame.port_dropped()) refuse(envelope, handled.error.value_or(unanswered()));
      break;
  }
  if (handled.error) die(*handled.error);
  return true;
}

void LocalActor::refuse(const Envelope& envelope, const Error& error) {
  if (envelope.call == 0) return hooks_.undelivered(envelope.from, error);
  answer(envelope, Failure(error));
}

void LocalActor::answer(const Envelope& envelope, const Result<void>& result) {
  net::PayloadWriter reply = ReplyPath::begin_reply();
  net::encode_to(reply, result);
  hooks_.reply(envelope.from, envelope.call, std::move(reply));
}

void LocalActor::note_failure(const Error& error, std::uint64_t trace) {
  std::string text = error.describe();
  if (text.size() > ActorSnapshot::failure_bytes_max) text.resize(ActorSnapshot::failure_bytes_max);
  std::lock_guard lock(mutex_);
  last_failure_ = std::move(text);
  last_failure_trace_ = trace;
}

void LocalActor::die(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    failed_ = true;
    ended_ = {ErrorKind::disconnected,
              fmt::format("actor '{}' has ended: {}", name_, error.describe())};
  }
  hooks_.failed(error);
}

Error LocalActor::why() const {
  std::lock_guard lock(mutex_);
  return *ended_;
}

}  // namespace teson::actor::detail
