#include "teson/actor/local_actor.h"

#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "teson/actor/wire.h"

namespace teson::actor::detail {

LocalActor::LocalActor(std::string name, SpawnPlace place, MailboxLimits limits, Make make,
                       Hooks hooks)
    : name_(std::move(name)), place_(std::move(place)), limits_(limits), hooks_(std::move(hooks)) {
  thread_ = std::thread([this, make = std::move(make)] { run(make); });
}

LocalActor::~LocalActor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

Result<void> LocalActor::push(Envelope envelope) {
  {
    std::lock_guard lock(mutex_);
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
  }
  arrived_.notify_one();
  return {};
}

void LocalActor::run(const Make& make) {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  auto made = guarded(make);
  std::unique_ptr<Behaviour> behaviour;
  if (made) {
    behaviour = std::move(*made);
    if (hooks_.constructed) hooks_.constructed({});
  } else {
    const Error error = std::move(made).error().in("starting actor '" + name_ + "'");
    if (hooks_.constructed) hooks_.constructed(Failure(error));
    die(error);
  }
  while (true) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return stopping_ || !mailbox_.empty(); });
    if (stopping_) break;
    const Envelope envelope = std::move(mailbox_.front());
    mailbox_.pop_front();
    mailbox_bytes_ -= envelope.buffer.size();
    lock.unlock();
    handle(envelope, behaviour.get());
    if (!dead_ || !behaviour) continue;
    // A dead actor's state goes at once, its address stays to say why.
    const Error why = ended();
    const HandlerFrame frame(why);
    behaviour.reset();
  }
  const Error why{ErrorKind::aborted, fmt::format("actor '{}' was stopped", name_)};
  const HandlerFrame frame(why);
  behaviour.reset();
}

void LocalActor::handle(const Envelope& envelope, Behaviour* behaviour) {
  if (dead_) return refuse(envelope, ended());
  if (envelope.endpoint.interface != behaviour->interface()) {
    return refuse(envelope,
                  interface_mismatch(name_, behaviour->interface(), envelope.endpoint.interface));
  }
  const bool waiting = envelope.call != 0;
  const HandlerFrame frame(hooks_.outlet, place_, envelope);
  std::string reply = ReplyPath::begin_reply();
  const Handled handled = behaviour->handle(envelope.endpoint.index, envelope.arguments(), reply);
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
  std::string reply = ReplyPath::begin_reply();
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
