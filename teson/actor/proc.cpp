#include "teson/actor/proc.h"

#include <utility>

#include "teson/actor/proc_state.h"
#include "teson/base/clock.h"

namespace teson::actor {

namespace {

/// How long the last messages may take to leave.
constexpr Duration flush_wait = std::chrono::seconds(1);

}  // namespace

// The channel is read from the beginning, so that the parent's end is seen at any time.
Proc::Proc(std::shared_ptr<State> own) : state_(std::move(own)) {
  State* state = state_.get();
  state->node.routes().add(detail::owner_proc, {state->channel, "the parent process"});
  state->channel->start(
      {.on_message = [state](net::Message message) { state->on_message(std::move(message)); },
       .on_early_message =
           [state](net::Message& message) {
             if (!detail::is_reply(message)) return false;
             state->node.receive(detail::owner_proc, std::move(message));
             return true;
           },
       .on_cut = [state](const Error&) { state->resumption->on_cut(state->channel); },
       .on_resumed = [state] { state->resumption->on_resumed(); },
       .on_closed = [state](const Error& error) { state->on_closed(error); }});
  state->listen_to_agent();
  state->loop->run([state] { state->watch_owner(); });
}

Proc::~Proc() {
  // The loop lives until the actors have ended, so that an orphan whose actor hangs ends all the
  // same.
  state_->node.close();
  (void)state_->channel->flush(now() + flush_wait);
  state_->loop->run([this] {
    state_->owner_watch.cancel();
    state_->resumption->cancel();
    state_->channel.reset();
    state_->agent.reset();
  });
  if (state_->own_loop) state_->own_loop->stop();
  state_->hard_end.cancel();
}

void Proc::start() {
  state_->loop->run([this] { state_->start(); });
}

StopReason Proc::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->reason.has_value(); });
  return *state_->reason;
}

bool Proc::stopping() const {
  std::lock_guard lock(state_->mutex);
  return state_->reason.has_value();
}

void Proc::on_stop(std::function<void(StopReason)> function) {
  state_->loop->post([state = state_.get(), function = std::move(function)] {
    std::optional<StopReason> now;
    {
      std::lock_guard lock(state->mutex);
      now = state->reason;
      if (!now) state->told = function;
    }
    if (now) function(*now);
  });
}

void Proc::stop() {
  state_->stop(StopReason::asked);
}

void Proc::on_relay(std::function<void(net::Message)> function) {
  state_->loop->run([&] { state_->relay = std::move(function); });
}

void Proc::resume(std::unique_ptr<net::Channel> fresh) {
  state_->channel->resume(std::move(fresh));
}

const ProcContext& Proc::context() const {
  return state_->context;
}
net::Loop& Proc::loop() {
  return *state_->loop;
}
detail::Node& Proc::node() {
  return state_->node;
}
Duration Proc::call_deadline() const {
  return state_->options.call_deadline;
}

}  // namespace teson::actor
