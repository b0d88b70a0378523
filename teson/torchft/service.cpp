#include "teson/torchft/service.h"

#include <algorithm>
#include <utility>

#include "teson/base/check.h"
#include "teson/base/log.h"
#include "teson/torchft/messages.h"

namespace teson::torchft {

/// One Quorum call. gRPC deletes it through OnDone. Whoever takes it out of the service's table,
/// under the lock, finishes it.
class QuorumCall final : public grpc::ServerUnaryReactor {
 public:
  QuorumCall(LighthouseService& service, grpc::ByteBuffer* response)
      : service_(service), response_(response) {}

  void answer(const grpc::ByteBuffer& reply) {
    *response_ = reply;
    Finish(grpc::Status::OK);
  }
  void OnCancel() override { service_.cancelled(this); }
  void OnDone() override { delete this; }

  quorum::TorchftTicket ticket = 0;

 private:
  LighthouseService& service_;
  grpc::ByteBuffer* response_;
};

namespace {

constexpr Duration wake_spacing_min = std::chrono::milliseconds(5);

grpc::Status as_status(const Error& error) {
  switch (error.kind) {
    case ErrorKind::invalid:
      return {grpc::StatusCode::INVALID_ARGUMENT, error.message};
    case ErrorKind::overloaded:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, error.message};
    default:
      return {grpc::StatusCode::INTERNAL, error.message};
  }
}

grpc::Status closing() {
  return {grpc::StatusCode::UNAVAILABLE, "the lighthouse is shutting down"};
}

}  // namespace

LighthouseService::LighthouseService(Settings settings, const Clock& clock)
    : settings_(std::move(settings)),
      clock_(clock),
      lighthouse_(settings_.rules, {}, settings_.quorum_id),
      timer_([this] { run_timer(); }) {}

LighthouseService::~LighthouseService() {
  close();
}

grpc::ServerUnaryReactor* LighthouseService::Quorum(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  auto member = read_member(*request);
  if (!member) {
    auto* refused = context->DefaultReactor();
    refused->Finish(as_status(member.error()));
    return refused;
  }
  auto* call = new QuorumCall(*this, response);
  std::optional<Formed> formed;
  grpc::Status refusal;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      refusal = closing();
    } else if (auto ticket = lighthouse_.join(std::move(*member), clock_.now()); !ticket) {
      refusal = as_status(ticket.error());
    } else {
      call->ticket = *ticket;
      calls_.emplace(*ticket, call);
      formed = tick_locked();
      if (calls_.size() == 1) wake_.notify_one();
    }
  }
  if (!refusal.ok()) call->Finish(refusal);
  if (formed) publish(std::move(*formed));
  return call;
}

grpc::ServerUnaryReactor* LighthouseService::Heartbeat(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  const auto heard = [&]() -> Result<void> {
    TESON_TRY(const auto replica_id, read_heartbeat(*request));
    const std::lock_guard lock(mutex_);
    return lighthouse_.heartbeat(replica_id, clock_.now());
  }();
  const grpc::Slice empty;  // the response has no fields
  *response = grpc::ByteBuffer(&empty, 1);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(heard ? grpc::Status::OK : as_status(heard.error()));
  return reactor;
}

void LighthouseService::cancelled(QuorumCall* call) {
  {
    const std::lock_guard lock(mutex_);
    if (calls_.erase(call->ticket) == 0) return;
    lighthouse_.leave(call->ticket, clock_.now());
  }
  call->Finish(grpc::Status::CANCELLED);
}

std::optional<LighthouseService::Formed> LighthouseService::tick_locked() {
  auto quorum = lighthouse_.tick(clock_.now());
  if (!quorum) return std::nullopt;
  Formed formed{std::move(*quorum), {}};
  for (const auto ticket : formed.quorum.tickets) {
    const auto entry = calls_.find(ticket);
    TESON_CHECK(entry != calls_.end(), ticket);
    formed.calls.push_back(entry->second);
    calls_.erase(entry);
  }
  return formed;
}

void LighthouseService::publish(Formed formed) {
  const auto& quorum = formed.quorum;
  if (quorum.changed) {
    log_info("torchft", "quorum {} formed with {} members", quorum.quorum_id,
             quorum.members.size());
    if (settings_.on_quorum) settings_.on_quorum(quorum.quorum_id, quorum.members.size());
  }
  const auto reply = write_reply(quorum, clock_.wall_ns());
  for (auto* call : formed.calls)
    call->answer(reply);
}

/// Nothing can change while nobody waits. The least distance is there for many members that fall
/// silent one after another.
Instant LighthouseService::next_wake_locked() const {
  const auto now = clock_.now();
  auto at = now + settings_.tick;
  if (const auto change = lighthouse_.next_change(now))
    at = std::min(at, std::max(*change, now + std::min(settings_.tick, wake_spacing_min)));
  return at;
}

void LighthouseService::run_timer() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (calls_.empty()) {
      wake_.wait(lock, [this] { return closed_ || !calls_.empty(); });
    } else {
      wake_.wait_until(lock, next_wake_locked(), [this] { return closed_ || calls_.empty(); });
    }
    if (closed_ || calls_.empty()) continue;
    auto formed = tick_locked();
    if (!formed) continue;
    lock.unlock();
    publish(std::move(*formed));
    lock.lock();
  }
}

void LighthouseService::close() {
  std::map<quorum::TorchftTicket, QuorumCall*> calls;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    calls.swap(calls_);
    for (const auto& [ticket, call] : calls)
      lighthouse_.leave(ticket, clock_.now());
  }
  wake_.notify_all();
  if (timer_.joinable()) timer_.join();
  for (const auto& [ticket, call] : calls)
    call->Finish(closing());
}

void LighthouseService::inspect(
    const std::function<void(const quorum::TorchftLighthouse&)>& reader) const {
  const std::lock_guard lock(mutex_);
  reader(lighthouse_);
}

}  // namespace teson::torchft
