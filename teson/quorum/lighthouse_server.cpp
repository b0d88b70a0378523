#include "teson/quorum/lighthouse_server.h"

#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/log.h"
#include "teson/net/channel.h"
#include "teson/quorum/record_store.h"

namespace teson::quorum {
namespace {

constexpr std::size_t outgoing_bytes_max = std::size_t{16} << 20;

Instant monotonic_now() {
  return std::chrono::steady_clock::now();
}

Result<void> check_options(const LighthouseOptions& options) {
  if (options.job.empty() || options.job.size() > net::job_id_bytes_max) {
    return fail(ErrorKind::invalid,
                fmt::format("lighthouse: the job's name must have 1 to {} bytes, it has {}",
                            net::job_id_bytes_max, options.job.size()));
  }
  if (options.replicas_expected < 1 || options.replicas_min < 1 ||
      options.replicas_min > options.replicas_expected) {
    return fail(ErrorKind::invalid,
                fmt::format("lighthouse: expected 1 <= min replicas <= replicas, found {} and {}",
                            options.replicas_min, options.replicas_expected));
  }
  if (options.heartbeat < std::chrono::milliseconds(1) ||
      options.heartbeat > std::chrono::minutes(1)) {
    return fail(ErrorKind::invalid,
                fmt::format("lighthouse: expected a heartbeat of 1 ms to 60 s, found {:.3f} ms",
                            to_ms(options.heartbeat)));
  }
  return {};
}

}  // namespace

class LighthouseServer::Impl : public std::enable_shared_from_this<LighthouseServer::Impl> {
 public:
  Impl(net::Loop& loop, LighthouseOptions options, RecordStore store)
      : loop_(loop), options_(std::move(options)), store_(std::move(store)) {
    LighthouseRules rules;
    rules.job = options_.job;
    rules.bounds.heartbeat = options_.heartbeat;
    rules.bounds.hang_floor = options_.hang_floor;
    rules.replicas_expected = options_.replicas_expected;
    rules.replicas_min = options_.replicas_min;
    state_.emplace(std::move(rules), store_.term(), store_.record(), monotonic_now());
  }

  Result<void> begin() {
    net::ChannelListenerOptions listen;
    listen.channel.handshake.job_id = options_.job;
    listen.channel.handshake.purpose = "quorum";
    listen.channel.handshake.secret = options_.secret;
    listen.channel.payload_bytes_max = message_bytes_max;
    listen.channel.outgoing_bytes_max = outgoing_bytes_max;
    TESON_TRY(listener_,
              net::ChannelListener::listen(
                  loop_, options_.address, std::move(listen),
                  [this](std::unique_ptr<net::Channel> channel) { accept(std::move(channel)); }));
    loop_.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->tick();
    });
    return {};
  }

  void close() {
    listener_.reset();
    loop_.run([this] {
      is_closed_ = true;
      timer_.cancel();
      closers_.clear();
      links_.clear();
    });
  }

  Snapshot snapshot() {
    Snapshot result;
    loop_.run([&] {
      result.stage = state_->stage();
      result.record = state_->record();
      result.known = state_->known();
    });
    return result;
  }

  const net::Address& address() const { return listener_->address(); }

 private:
  void accept(std::unique_ptr<net::Channel> channel) {
    if (is_closed_ || has_failed_) return;
    if (links_.size() >= links_max) {
      if (!std::exchange(is_told_full_, true))
        log_warning("lighthouse", "{} connections are open: further ones are turned away",
                    links_max);
      return;
    }
    const Link link = ++links_made_;
    net::Channel& added = *(links_[link] = std::move(channel));
    added.start({.on_open = {},
                 .on_message = [this, link](net::Message message) { receive(link, message); },
                 .on_closed =
                     [this, link](const Error&) {
                       // Not here: the channel is still calling.
                       loop_.post([weak = weak_from_this(), link] {
                         if (const auto self = weak.lock()) self->forget(link);
                       });
                       if (!is_closed_ && !has_failed_)
                         perform(state_->on_link_lost(link, monotonic_now()));
                     }});
  }

  void forget(Link link) {
    links_.erase(link);
    closers_.erase(link);
  }

  void receive(Link link, const net::Message& message) {
    if (is_closed_ || has_failed_ || closers_.contains(link)) return;
    auto unpacked = unpack_to_lighthouse(message.kind, message.payload.text());
    if (!unpacked) {
      log_warning("lighthouse", "link {}: {}", link, unpacked.error().describe());
      links_.at(link)->close();
      return;
    }
    perform(state_->on_message(link, *unpacked, monotonic_now()));
  }

  void perform(std::vector<Output> more) {
    std::deque<Output> outputs(std::make_move_iterator(more.begin()),
                               std::make_move_iterator(more.end()));
    while (!outputs.empty() && !has_failed_) {
      const Output output = std::move(outputs.front());
      outputs.pop_front();
      if (const auto* persist = std::get_if<Persist>(&output)) {
        for (Output& next : make_durable(persist->record))
          outputs.push_back(std::move(next));
      } else {
        perform_one(output);
      }
    }
  }

  std::vector<Output> make_durable(const EpochRecord& record) {
    const Result<void> written = store_.swap(record);
    if (!written) {
      step_down(written.error().in("the epoch record could not be written"));
      return {};
    }
    log_info("lighthouse", "{}", describe(*store_.record()));
    return state_->on_persisted(*store_.record(), monotonic_now());
  }

  void perform_one(const Output& output) {
    if (const auto* send = std::get_if<Send>(&output)) {
      send_to(send->link, send->message);
    } else if (const auto* push = std::get_if<Push>(&output)) {
      log_event(push->event);
      Packed packed = pack(FromLighthouse(push->event));
      const net::Payload payload(std::move(packed.payload));
      for (const Link link : state_->agents())
        send_packed(link, packed.kind, payload);
    } else if (const auto* close = std::get_if<CloseLink>(&output)) {
      close_soon(close->link);
    }
  }

  void send_to(Link link, const FromLighthouse& message) {
    if (const auto* start = std::get_if<Start>(&message)) {
      // The same bytes for every member.
      if (!start_payload_ || start_epoch_ != start->record.epoch) {
        Packed packed = pack(message);
        start_kind_ = packed.kind;
        start_payload_ = net::Payload(std::move(packed.payload));
        start_epoch_ = start->record.epoch;
      }
      return send_packed(link, start_kind_, *start_payload_);
    }
    Packed packed = pack(message);
    send_packed(link, packed.kind, net::Payload(std::move(packed.payload)));
  }

  void send_packed(Link link, std::uint16_t kind, const net::Payload& payload) {
    const auto found = links_.find(link);
    if (found == links_.end() || closers_.contains(link)) return;
    const Result<void> sent = found->second->send(kind, payload);
    if (!sent && sent.error().kind == ErrorKind::overloaded) found->second->close();
  }

  /// What was sent before has a heartbeat to arrive; the other side usually hangs up by itself.
  void close_soon(Link link) {
    if (!links_.contains(link) || closers_.contains(link)) return;
    closers_[link] = loop_.after(options_.heartbeat, [weak = weak_from_this(), link] {
      const auto self = weak.lock();
      if (!self) return;
      if (const auto found = self->links_.find(link); found != self->links_.end())
        found->second->close();
    });
  }

  void log_event(const Event& event) {
    const LogLevel level = event.kind == EventKind::expelled || event.kind == EventKind::trouble ||
                                   event.kind == EventKind::refused ||
                                   event.kind == EventKind::waiting_proof
                               ? LogLevel::warning
                               : LogLevel::info;
    if (log_level() > level) return;
    log_line(level, "lighthouse",
             fmt::format("{} replica={} instance={:016x} epoch={} cause={} {}",
                         to_string(event.kind), event.id.replica, event.id.instance,
                         epoch_text(event.epoch), to_string(event.cause), event.text));
  }

  void step_down(const Error& error) {
    has_failed_ = true;
    log_error("lighthouse", "{}", error.describe());
    loop_.post([weak = weak_from_this(), error] {
      const auto self = weak.lock();
      if (!self || self->is_closed_) return;
      self->links_.clear();
      if (self->options_.on_failed) self->options_.on_failed(error);
    });
  }

  void tick() {
    if (is_closed_ || has_failed_) return;
    perform(state_->tick(monotonic_now()));
    if (!has_failed_ && !state_->in_round()) {
      if (const Result<void> mirrored = store_.mirror(); !mirrored && !mirror_failed_) {
        mirror_failed_ = true;
        log_warning("lighthouse", "the record's second copy: {}", mirrored.error().describe());
      }
    }
    timer_ = loop_.after(options_.heartbeat / 2, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->tick();
    });
  }

  net::Loop& loop_;
  LighthouseOptions options_;
  RecordStore store_;
  std::optional<LighthouseState> state_;
  std::unique_ptr<net::ChannelListener> listener_;
  std::map<Link, std::unique_ptr<net::Channel>> links_;
  std::map<Link, net::Timer> closers_;
  Link links_made_ = 0;
  std::optional<net::Payload> start_payload_;
  std::uint16_t start_kind_ = 0;
  std::int64_t start_epoch_ = 0;
  net::Timer timer_;
  bool is_closed_ = false;
  bool is_told_full_ = false;
  bool has_failed_ = false;
  bool mirror_failed_ = false;
};

LighthouseServer::LighthouseServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<LighthouseServer>> LighthouseServer::start(net::Loop& loop,
                                                                  LighthouseOptions options) {
  TESON_TRY_VOID(check_options(options));
  TESON_TRY(RecordStore store, RecordStore::open(options.record_path));
  if (store.record() && store.record()->job != options.job) {
    return fail(
        ErrorKind::invalid,
        fmt::format("'{}' is the record of job '{}', this lighthouse is for '{}': give each "
                    "job a record file of its own",
                    options.record_path.string(), store.record()->job, options.job));
  }
  TESON_TRY_VOID(store.begin_term());
  auto impl = std::make_shared<Impl>(loop, std::move(options), std::move(store));
  TESON_TRY_VOID(impl->begin());
  return std::unique_ptr<LighthouseServer>(new LighthouseServer(std::move(impl)));
}

LighthouseServer::~LighthouseServer() {
  impl_->close();
}
const net::Address& LighthouseServer::address() const {
  return impl_->address();
}
LighthouseServer::Snapshot LighthouseServer::snapshot() const {
  return impl_->snapshot();
}

}  // namespace teson::quorum
