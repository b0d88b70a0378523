#include "teson/actor/node.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "teson/actor/read_request.h"
#include "teson/base/check.h"
#include "teson/base/clock.h"
#include "teson/base/log.h"

namespace teson::actor::detail {

namespace {

/// How often an actor that waits to send its reply looks whether the process ends.
constexpr Duration reply_wait = std::chrono::milliseconds(50);
/// The messages of another proc are being taken on this thread, which is its channel's.
thread_local bool receiving = false;

bool goes_between_procs(Kind kind) {
  return kind == Kind::call || kind == Kind::reply || kind == Kind::undelivered;
}

}  // namespace

Error interface_mismatch(const std::string& class_name, std::uint64_t expected,
                         std::uint64_t found) {
  return {ErrorKind::invalid, fmt::format("interface of {}: expected hash {:016x}, found {:016x}; "
                                          "caller and callee were built from different versions "
                                          "of its header, rebuild both",
                                          class_name, expected, found)};
}

net::PayloadWriter call_payload(std::uint64_t actor, std::uint64_t call, EndpointId endpoint,
                                std::string_view slice) {
  net::PayloadWriter payload;
  net::encode_to(payload, CallHeader{actor, call, endpoint.interface, endpoint.index,
                                     static_cast<std::uint32_t>(slice.size()), next_message()});
  payload.append(slice.data(), slice.size());
  return payload;
}

CallHeader header_of(std::string_view payload) {
  const auto header = net::decode<CallHeader>(payload.substr(0, call_header_bytes));
  TESON_CHECK(header.has_value());
  return *header;
}

void log_undelivered(const UndeliveredCast& lost) {
  log_warning("actor", "{} could not take a message for actor {}: {}", lost.where, lost.actor,
              lost.error.describe());
}

Node::Node(std::uint64_t self, std::size_t rank, std::uint64_t first_actor, MailboxLimits limits,
           Hooks hooks)
    : self_(self),
      rank_(rank),
      limits_(limits),
      hooks_(std::move(hooks)),
      outlet_(std::make_shared<ReplyOutlet>(
          [this](std::uint64_t proc, std::uint64_t call, net::PayloadWriter text) {
            reply(proc, call, std::move(text));
          })),
      pending_(std::make_shared<PendingTable>(
          [this](std::uint64_t proc) { return routes_.where(proc); })),
      actors_(self),
      routes_(self),
      next_actor_(first_actor) {}
Node::~Node() {
  TESON_CHECK(closed_);
}

void Node::lose(std::uint64_t proc, const Error& why) {
  const net::Payload told(net::encode(ProcEnded{proc, why}));
  for (const std::uint64_t sender : routes_.remove(proc, why)) {
    if (const auto way = routes_.to(sender))
      way.route->channel->send_note(static_cast<std::uint16_t>(Kind::proc_ended), told);
  }
  pending_->fail_proc(proc, why);
}

void Node::lose_owner(const Error& why) {
  pending_->fail_others(self_, why);
}

Result<void> Node::send(std::uint64_t proc, const net::Payload& payload, bool awaited) {
  if (proc != self_) {
    if (trace_ring_.on()) trace_ring_.sent(proc, header_of(payload.text()));
    return awaited ? routes_.send_call(proc, payload) : routes_.send(proc, Kind::call, payload);
  }
  TESON_TRY(const auto header,
            net::decode<CallHeader>(payload.text().substr(0, call_header_bytes)));
  if (trace_ring_.on()) trace_ring_.sent(self_, header);
  return deliver(self_, header, net::Buffer(payload), true);
}

std::shared_ptr<PendingCall> Node::begin_call(std::uint64_t proc, Instant deadline) {
  auto pending = pending_->begin({proc}, deadline);
  if (proc == self_) return pending;
  if (const auto way = routes_.to(proc)) pending->read_from(way.route->channel->reader());
  return pending;
}

void Node::receive(std::uint64_t from, net::Message message) {
  receiving = true;
  take(from, std::move(message));
  receiving = false;
}

void Node::take(std::uint64_t from, net::Message message) {
  const auto kind = static_cast<Kind>(message.kind);
  if (kind == Kind::relayed && self_ != owner_proc)
    return receive_relayed(message.epoch, std::move(message.payload));
  if (const std::uint64_t other = message.epoch; other != owner_proc) {
    if (!goes_between_procs(kind)) {
      return log_warning("actor", "proc {} sent a message of kind {} that goes by way of the owner",
                         from, message.kind);
    }
    if (other == from) return;  // nobody goes that way to itself
    if (self_ == owner_proc) return pass_on(from, other, std::move(message));
    from = other;
  }
  switch (kind) {
    case Kind::call:
      return receive_call(from, std::move(message.payload));
    case Kind::reply:
      return receive_reply(from, std::move(message.payload));
    case Kind::spawn:
      return receive_spawn(from, std::move(message.payload));
    case Kind::actor_failed:
      return receive_actor_failed(from, message.payload);
    case Kind::undelivered:
      return receive_undelivered(from, message.payload);
    case Kind::inspect:
      return receive_inspect(from, message.payload);
    case Kind::stop_actor:
      return receive_stop_actor(from, message.payload);
    case Kind::stop:
      if (hooks_.stop_asked) hooks_.stop_asked();
      return;
    case Kind::proc_ended:
      return receive_ended(message.payload);
    case Kind::announced:
      return receive_announced(from, message.payload);
    case Kind::relay_taken:
      return receive_relay_taken(from, message.payload);
    case Kind::relayed:   // of a process to its owner
    case Kind::relay_to:  // for host agents
    case Kind::ping:
    case Kind::pong:       // that they came is all they say
    case Kind::admission:  // for who attaches
      return;
  }
  log_warning("actor", "proc {} sent a message of unknown kind {}", from, message.kind);
}

void Node::receive_call(std::uint64_t from, net::Buffer payload) {
  if (payload.size() < call_header_bytes) {
    log_warning("actor", "proc {} sent a call of {} bytes, expected at least {}", from,
                payload.size(), call_header_bytes);
    return;
  }
  const auto header = net::decode<CallHeader>(payload.bytes().first(call_header_bytes));
  TESON_CHECK(header.has_value());
  // A caller that is slow to take its replies is waited for by actors, not by this thread.
  const auto way = header->call == 0 ? Routes::Way() : routes_.to(from);
  const bool in_place = !way || way.route->channel->outgoing_bytes() == 0;
  if (auto delivered = deliver(from, *header, std::move(payload), in_place); !delivered)
    refuse(from, *header, delivered.error());
}

Result<void> Node::deliver(std::uint64_t from, const CallHeader& header, net::Buffer buffer,
                           bool in_place) {
  if (buffer.size() - call_header_bytes < header.slice_bytes) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a slice of {} bytes, found {}", header.slice_bytes,
                            buffer.size() - call_header_bytes));
  }
  return actors_.push({.from = from,
                       .call = header.call,
                       .actor = header.actor,
                       .trace = header.trace,
                       .endpoint = {header.interface, header.endpoint},
                       .buffer = std::move(buffer),
                       .slice_from = call_header_bytes,
                       .slice_bytes = header.slice_bytes},
                      in_place);
}

void Node::pass_on(std::uint64_t from, std::uint64_t to, net::Message message) {
  const auto kind = static_cast<Kind>(message.kind);
  net::Payload payload(std::move(message.payload));
  const auto passed = routes_.send(to, kind, payload, from);
  if (passed) return;
  if (kind == Kind::call && payload.size() >= call_header_bytes) {
    refuse(from, header_of(payload.text()), passed.error(), to);
  } else if (kind == Kind::reply && payload.size() >= reply_header_bytes) {
    // Its caller does not take its replies: one that is smaller may still go, and nothing here waits.
    const auto header = net::decode<ReplyHeader>(payload.bytes().first(reply_header_bytes));
    Error why = passed.error().in("the call was handled, but its reply is lost");
    why.kind = ErrorKind::failed;
    refuse(to, {.call = header->call}, why, from);
  }
}

void Node::refuse(std::uint64_t from, const CallHeader& header, const Error& error,
                  std::uint64_t as) {
  if (header.call != 0) {
    std::string text(reply_header_bytes, '\0');
    net::encode_to(text, Result<void>(Failure(error)));
    std::memcpy(text.data(), &header.call, sizeof(header.call));
    (void)routes_.send(from, Kind::reply, net::Payload(std::move(text)), as);
  } else {
    tell_undelivered(from, header.actor, error, as);
  }
}

void Node::receive_reply(std::uint64_t from, net::Buffer payload) {
  if (payload.size() < reply_header_bytes) {
    log_warning("actor", "proc {} sent a reply of {} bytes, expected at least {}", from,
                payload.size(), reply_header_bytes);
    return;
  }
  const auto header = net::decode<ReplyHeader>(payload.bytes().first(reply_header_bytes));
  TESON_CHECK(header.has_value());
  pending_->reply(header->call, from, {std::move(payload), reply_header_bytes});
}

void Node::receive_spawn(std::uint64_t from, net::Buffer payload) {
  const auto buffer = std::make_shared<net::Buffer>(std::move(payload));
  auto request = read_request<SpawnRequest>(from, buffer->bytes(), "spawn request");
  if (!request) return;
  const auto how = served(*request);
  auto region = Region::make(std::move(request->region));
  const SpawnPlace place{region.value_or(Region()), rank_};
  const auto where = region.and_then([&](const Region& all) { return place.in(all); });
  // What is refused becomes an actor too, one that is dead: calls that follow learn why.
  auto started = start_actor(
      request->actor, request->name, from, place,
      [how, where, buffer, arguments = request->arguments]() -> Result<std::unique_ptr<Behaviour>> {
        if (!how) return Failure(how.error());
        if (!where) return Failure(where.error());
        return how->factory(arguments, *where);
      },
      how ? how->options : ActorOptions{});
  if (!started) {
    log_warning("actor", "proc {} asked for actor '{}': {}", from, request->name,
                started.error().describe());
  }
}

Result<Node::Served> Node::served(const SpawnRequest& request) const {
  std::lock_guard lock(mutex_);
  const auto found = served_.find(request.class_hash);
  if (found == served_.end()) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "this program does not serve actors of class {}; name it with serve<{}>() in its main",
            request.class_name, request.class_name));
  }
  if (found->second.interface != request.interface) {
    return Failure(
        interface_mismatch(request.class_name, found->second.interface, request.interface));
  }
  return found->second;
}

void Node::receive_actor_failed(std::uint64_t from, const net::Buffer& payload) {
  auto failed = net::decode<ActorFailed>(payload.bytes());
  if (failed && hooks_.actor_failed)
    hooks_.actor_failed({from, routes_.where(from), failed->actor, failed->name, failed->error});
}

void Node::receive_undelivered(std::uint64_t from, const net::Buffer& payload) {
  auto lost = net::decode<Undelivered>(payload.bytes());
  if (lost && hooks_.undelivered)
    hooks_.undelivered({from, routes_.where(from), lost->actor, lost->error});
}

void Node::receive_ended(const net::Buffer& payload) {
  if (self_ == owner_proc) return;  // who knows it first
  const auto ended = read_request<ProcEnded>(owner_proc, payload.bytes(), "end of a process");
  if (ended && ended->proc != self_ && ended->proc != owner_proc) lose(ended->proc, ended->error);
}

void Node::receive_announced(std::uint64_t from, const net::Buffer& payload) {
  if (self_ == owner_proc) return;  // who announces them
  const auto call = read_request<Announced>(from, payload.bytes(), "announced call");
  if (!call) return;
  auto early = announced_.announce(*call);
  if (!early) return log_warning("actor", "proc {}: {}", from, early.error().describe());
  const CallHeader& header = call->header;
  Envelope envelope{.from = from,
                    .call = header.call,
                    .actor = header.actor,
                    .trace = header.trace,
                    .endpoint = {header.interface, header.endpoint},
                    .slice_from = call_header_bytes,
                    .slice_bytes = header.slice_bytes};
  const bool here = early->has_value();
  Result<void> placed;
  if (here) {
    placed = check_relayed(*call, (*early)->size());
    envelope.buffer = std::move(**early);
  } else {
    envelope.awaits = call->number;
    envelope.awaited_bytes = call->bytes;
  }
  if (placed) placed = actors_.push(std::move(envelope), false);
  if (!placed) announced_.withdraw(call->number);
  if (!placed || here) tell_relay_taken(call->number);
  if (!placed) refuse(from, header, placed.error());
}

Result<void> Node::check_relayed(const Announced& call, std::size_t bytes) {
  if (bytes == call.bytes && bytes >= call_header_bytes + call.header.slice_bytes) return {};
  return fail(ErrorKind::invalid,
              fmt::format("expected a call of {} bytes with a slice of {}, found {}", call.bytes,
                          call.header.slice_bytes, bytes));
}

void Node::receive_relayed(std::uint64_t number, net::Buffer payload) {
  const auto call = announced_.arrive(number, payload);
  if (!call) return;
  const auto fits = check_relayed(*call, payload.size());
  const bool placed = actors_.fill(call->header.actor, number,
                                   fits ? std::optional(std::move(payload)) : std::nullopt);
  tell_relay_taken(number);
  if (placed && !fits) refuse(owner_proc, call->header, fits.error());
}

void Node::receive_relay_taken(std::uint64_t from, const net::Buffer& payload) {
  if (!hooks_.relay_taken) return;
  const auto taken = read_request<RelayTaken>(from, payload.bytes(), "receipt of a call");
  if (taken) hooks_.relay_taken(from, taken->number);
}

void Node::tell_relay_taken(std::uint64_t number) {
  if (const auto way = routes_.to(owner_proc)) {
    way.route->channel->send_note(static_cast<std::uint16_t>(Kind::relay_taken),
                                  net::Payload(net::encode(RelayTaken{number})));
  }
}

void Node::tell_undelivered(std::uint64_t from, std::uint64_t actor, const Error& error,
                            std::uint64_t as) {
  if (from != self_) {
    (void)routes_.send(from, Kind::undelivered,
                       net::Payload(net::encode(Undelivered{actor, error})), as);
  } else if (hooks_.undelivered) {
    hooks_.undelivered({self_, routes_.where(self_), actor, error});
  }
}

std::uint64_t Node::next_actor_id() {
  std::lock_guard lock(mutex_);
  return next_actor_++;
}

void Node::host(std::uint64_t id, std::string name, LocalActor::Make make, ActorOptions options) {
  const auto started = start_actor(id, std::move(name), self_, {}, std::move(make), options);
  TESON_CHECK(started.has_value(), id);
}

Result<void> Node::start_actor(std::uint64_t id, std::string name, std::uint64_t owner,
                               SpawnPlace place, LocalActor::Make make, ActorOptions options) {
  LocalActor::Hooks hooks{
      .reply = [this](std::uint64_t proc, std::uint64_t call,
                      net::PayloadWriter text) { reply(proc, call, std::move(text)); },
      .undelivered = [this, id](std::uint64_t proc,
                                const Error& error) { tell_undelivered(proc, id, error); },
      .failed = [this, owner, id, name](const Error& error) { tell_owner(owner, id, name, error); },
      .ended = [this, id] { return actors_.bury(id); },
      .outlet = outlet_,
      .trace = &trace_ring_};
  return actors_.add(id, [&] {
    return std::make_shared<LocalActor>(std::move(name), std::move(place), limits_, options,
                                        std::move(make), std::move(hooks));
  });
}

void Node::tell_owner(std::uint64_t owner, std::uint64_t actor, const std::string& name,
                      const Error& error) {
  if (owner == self_) {
    if (hooks_.actor_failed) hooks_.actor_failed({self_, routes_.where(self_), actor, name, error});
  } else {
    (void)routes_.send(owner, Kind::actor_failed,
                       net::Payload(net::encode(ActorFailed{actor, name, error})));
  }
}

void Node::reply(std::uint64_t proc, std::uint64_t call, net::PayloadWriter text) {
  text.overwrite(0, std::as_bytes(std::span(&call, 1)));
  const net::Payload payload = std::move(text).finish();
  if (proc == self_) {
    pending_->reply(call, proc, {net::Buffer(payload), reply_header_bytes});
    return;
  }
  send_reply(proc, call, payload);
}

void Node::send_reply(std::uint64_t proc, std::uint64_t call, const net::Payload& reply) {
  while (const auto way = routes_.to(proc)) {
    const auto sent = routes_.send(proc, Kind::reply, reply);
    if (sent || sent.error().kind == ErrorKind::disconnected ||
        sent.error().kind == ErrorKind::aborted)
      return;
    if (sent.error().kind != ErrorKind::overloaded)
      return refuse(proc, {.call = call}, sent.error());
    if (receiving) {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      if (!late_replies_) late_replies_ = std::make_unique<SerialThread>("teson-replies");
      return late_replies_->post([this, proc, call, reply] { send_reply(proc, call, reply); });
    }
    // The caller takes its replies too slowly: its actor waits, not the memory.
    (void)way.route->channel->flush(now() + reply_wait);
    std::lock_guard lock(mutex_);
    if (closed_) return;
  }
}

void Node::serve(std::uint64_t class_hash, Served served) {
  std::lock_guard lock(mutex_);
  served_[class_hash] = std::move(served);
}

void Node::close() {
  std::unique_ptr<SerialThread> late_replies;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    late_replies.swap(late_replies_);
  }
  pending_->close({ErrorKind::aborted, "the process is ending"});
  actors_.close();
  late_replies.reset();
  outlet_->close();
  routes_.clear();
}

}  // namespace teson::actor::detail
