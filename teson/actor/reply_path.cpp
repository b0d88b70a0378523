#include "teson/actor/reply_path.h"

#include <mutex>
#include <utility>

#include "teson/actor/handler_frame.h"
#include "teson/actor/wire.h"
#include "teson/net/codec.h"

namespace teson::actor::detail {

Error unanswered() {
  return {ErrorKind::failed, "the actor dropped the call's port without an answer"};
}

void ReplyOutlet::send(std::uint64_t proc, std::uint64_t call, net::PayloadWriter reply) {
  std::shared_lock lock(mutex_);
  if (send_) send_(proc, call, std::move(reply));
}

void ReplyOutlet::close() {
  std::unique_lock lock(mutex_);
  send_ = {};
}

ReplyPath& ReplyPath::operator=(ReplyPath&& other) noexcept {
  if (this != &other) {
    drop();
    outlet_ = std::move(other.outlet_);
    proc_ = other.proc_;
    call_ = other.call_;
  }
  return *this;
}

net::PayloadWriter ReplyPath::begin_reply() {
  constexpr char header[reply_header_bytes] = {};
  net::PayloadWriter reply;
  reply.append(header, sizeof(header));
  return reply;
}

void ReplyPath::send(net::PayloadWriter reply) {
  const auto outlet = std::move(outlet_);
  if (call_ != 0) outlet->send(proc_, call_, std::move(reply));
}

void ReplyPath::drop() {
  if (!awaited()) return;
  HandlerFrame* frame = HandlerFrame::current();
  if (frame != nullptr && frame->owes(outlet_.get(), proc_, call_)) {
    // The handler may be failing: then its error is the better answer.
    frame->port_dropped_ = true;
    outlet_ = nullptr;
    return;
  }
  net::PayloadWriter reply = begin_reply();
  if (frame != nullptr && frame->ended_ != nullptr) {
    net::encode_to(reply, Result<void>(Failure(*frame->ended_)));
  } else {
    net::encode_to(reply, Result<void>(Failure(unanswered())));
  }
  send(std::move(reply));
}

}  // namespace teson::actor::detail
