#include "teson/actor/local_actor.h"

#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "teson/actor/wire.h"
#include "teson/base/check.h"

namespace teson::actor::detail {

namespace {

/// How many handlers may run in place within one another; deeper ones get the actor's thread.
constexpr int nesting_max = 8;
/// Handlers of such actors that run on this thread: theirs or another's.
thread_local int nesting = 0;

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
      hooks_(std::move(hooks)) {
  thread_ = std::thread([this, make = std::move(make)] { run(make); });
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
  if (in_place && options_.handlers == Handlers::in_place && !turn_taken_ && mailbox_.empty() &&
      !stopping_ && nesting < nesting_max) {
    turn_taken_ = true;
    lock.unlock();
    handle(envelope);
    lock.lock();
    turn_taken_ = false;
    const bool wake = stopping_ || !mailbox_.empty();
    lock.unlock();
    if (wake) changed_.notify_one();
    return {};
  }
  const std::size_t size = envelope.buffer.size();
  if (!mailbox_.empty() &&
      (mailbox_.size() >= limits_.messages_max || mailbox_bytes_ + size > limits_.bytes_max)) {
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

void LocalActor::run(const Make& make) {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  construct(make);
  std::unique_lock lock(mutex_);
  turn_taken_ = false;
  while (true) {
    changed_.wait(lock, [&] { return !turn_taken_ && (stopping_ || !mailbox_.empty()); });
    if (stopping_) break;
    turn_taken_ = true;
    const Envelope envelope = std::move(mailbox_.front());
    mailbox_.pop_front();
    mailbox_bytes_ -= envelope.buffer.size();
    lock.unlock();
    handle(envelope);
    lock.lock();
    turn_taken_ = false;
  }
  turn_taken_ = true;
  lock.unlock();
  drop_state({ErrorKind::aborted, fmt::format("actor '{}' was stopped", name_)});
}

void LocalActor::construct(const Make& make) {
  auto made = guarded(make);
  if (made) {
    behaviour_ = std::move(*made);
  } else {
    die(std::move(made).error().in("starting actor '" + name_ + "'"));
  }
}

void LocalActor::handle(const Envelope& envelope) {
  if (dead_) return refuse(envelope, ended());
  const bool in_place = options_.handlers == Handlers::in_place;
  nesting += in_place ? 1 : 0;
  dispatch(envelope);
  nesting -= in_place ? 1 : 0;
  // A dead actor's state goes at once, its address stays to say why.
  if (dead_) drop_state(ended());
}

void LocalActor::drop_state(const Error& why) {
  const HandlerFrame frame(why);
  behaviour_.reset();
}

void LocalActor::dispatch(const Envelope& envelope) {
  if (envelope.endpoint.interface != behaviour_->interface()) {
    return refuse(envelope,
                  interface_mismatch(name_, behaviour_->interface(), envelope.endpoint.interface));
  }
  const bool waiting = envelope.call != 0;
  const HandlerFrame frame(hooks_.outlet, place_, envelope);
  net::PayloadWriter reply = ReplyPath::begin_reply();
  const Handled handled = behaviour_->handle(envelope.endpoint.index, envelope.arguments(), reply);
  switch (handled.reply) {
    case Handled::Reply::refused:
      return refuse(envelope, *handled.error);
    case Handled::Reply::written:
      if (waiting) return hooks_.reply(envelope.from, envelope.call, std::move(reply));
      break;
    case Handled::Reply::later:
      if (waiting && frame.port_dropped()) refuse(envelope, handled.error.value_or(unanswered()));
      break;
  }
  if (handled.error) die(*handled.error);
}

void LocalActor::refuse(const Envelope& envelope, const Error& error) {
  if (envelope.call == 0) return hooks_.undelivered(envelope.from, error);
  net::PayloadWriter reply = ReplyPath::begin_reply();
  net::encode_to(reply, Result<void>(Failure(error)));
  hooks_.reply(envelope.from, envelope.call, std::move(reply));
}

void LocalActor::die(const Error& error) {
  dead_ = error;
  hooks_.failed(error);
}

Error LocalActor::ended() const {
  return {ErrorKind::disconnected,
          fmt::format("actor '{}' has ended: {}", name_, dead_->describe())};
}

}  // namespace teson::actor::detail
