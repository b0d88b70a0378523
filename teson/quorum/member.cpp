#include "teson/quorum/member.h"

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/host_name.h"
#include "teson/base/log.h"
#include "teson/base/random.h"
#include "teson/quorum/uplink.h"

namespace teson::quorum {
namespace {

/// Until the lighthouse has said which heartbeat it wants.
constexpr Duration heartbeat_first = std::chrono::milliseconds(50);
/// A lighthouse that is silent for so many heartbeats is connected to again.
constexpr int silent_beats_max = 10;
/// Reports of one epoch that are kept.
constexpr std::size_t reports_max = 64;

Instant monotonic_now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

class MemberClient::Impl : public std::enable_shared_from_this<MemberClient::Impl> {
 public:
  Impl(net::Loop& loop, MemberOptions options)
      : loop_(loop),
        options_(std::move(options)),
        id_{options_.instance != 0 ? options_.instance : entropy64() | 1, options_.replica,
            options_.shard},
        state_(id_, options_.has_state, options_.step, options_.chain),
        incarnation_(options_.incarnation) {
    if (options_.host.empty()) options_.host = host_name();
  }

  void begin() {
    UplinkOptions uplink;
    uplink.lighthouse = options_.lighthouse;
    uplink.job = options_.job;
    uplink.secret = options_.secret;
    uplink.make_first = [this] { return ToLighthouse(make_hello()); };
    uplink.on_message = [this](const FromLighthouse& message) {
      heard_at_ = monotonic_now();
      std::visit([this](const auto& value) { handle(value); }, message);
    };
    uplink.on_link = [this](bool is_up) {
      if (is_up) heard_at_ = monotonic_now();
    };
    uplink.on_refused = [this](const Error& error) { end(error); };
    heard_at_ = monotonic_now();
    uplink_ = std::make_unique<Uplink>(loop_, std::move(uplink));
    uplink_->start();
    loop_.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->beat();
    });
  }

  void close() {
    end(Error{ErrorKind::aborted, "the member was closed"});
    if (uplink_) uplink_->close();
    // The beat in progress, if any, has ended when this returns; the next finds is_closed_.
    is_closed_ = true;
    loop_.run([this] { timer_.cancel(); });
  }

  Result<StartOrder> wait_start(Duration timeout) {
    std::unique_lock lock(mutex_);
    std::optional<StartOrder> order;
    const bool is_there = changed_.wait_for(lock, timeout, [&] {
      if (!ended_) order = state_.take_order();
      return ended_.has_value() || order.has_value();
    });
    if (ended_) return fail(*ended_);
    if (!is_there) {
      return fail(
          ErrorKind::timed_out,
          fmt::format(
              "no epoch has started for replica {} within {:.1f} s: the lighthouse at {} is {}",
              id_.replica, to_seconds(timeout), options_.lighthouse.to_string(),
              uplink_->is_up() ? "connected; members may be missing" : "not reachable"));
    }
    order_epoch_ = order->record.epoch;
    return std::move(*order);
  }

  bool fenced() const {
    const std::lock_guard lock(mutex_);
    return ended_.has_value() || state_.promised() > order_epoch_;
  }

  template <typename Function>
  auto with_state(Function&& function) {
    const std::lock_guard lock(mutex_);
    return function(state_);
  }

  void send_beat() {
    Beat beat;
    {
      const std::lock_guard lock(mutex_);
      beat.active = state_.active();
      beat.has_state = state_.has_state();
      beat.step = state_.step();
    }
    beat.phase = phase_.load(std::memory_order_relaxed);
    beat.progress = progress_.load(std::memory_order_relaxed);
    uplink_->send(beat);
  }

  /// Trouble in `epoch`, told now and once more after each reconnect for as long as the epoch
  /// lasts.
  void report(std::int64_t epoch, ToLighthouse message) {
    {
      const std::lock_guard lock(mutex_);
      if (reports_epoch_ != epoch) reports_.clear();
      reports_epoch_ = epoch;
      if (reports_.size() < reports_max) reports_.push_back(message);
    }
    uplink_->send(message);
  }

  void leave(bool finished, const std::string& why, Duration timeout) {
    {
      const std::lock_guard lock(mutex_);
      if (state_.left()) return;
      state_.leave();
    }
    uplink_->stop_soon();
    if (uplink_->send(Leave{finished, why})) uplink_->wait_down(monotonic_now() + timeout);
    close();
  }

  net::Loop& loop_;
  MemberOptions options_;
  const MemberId id_;
  std::atomic<Phase> phase_{Phase::idle};
  std::atomic<std::uint64_t> progress_{0};
  std::unique_ptr<Uplink> uplink_;

 private:
  Hello make_hello() {
    const std::lock_guard lock(mutex_);
    Hello hello;
    hello.job = options_.job;
    hello.id = id_;
    hello.data_address = options_.data_address;
    hello.host = options_.host;
    hello.pid = ::getpid();
    hello.plan_hash = options_.plan_hash;
    hello.lanes_total = options_.lanes_total;
    hello.mode = options_.mode;
    hello.has_state = state_.has_state();
    hello.step = state_.step();
    hello.chain = state_.chain();
    hello.incarnation = incarnation_;
    hello.active = state_.active();
    hello.promised = state_.promised();
    hello.work_ns = options_.work.count();
    return hello;
  }

  void handle(const Welcome& welcome) {
    if (welcome.heartbeat_ns > 0) heartbeat_ = Duration(welcome.heartbeat_ns);
    // A lighthouse that restarted has not heard of this.
    std::vector<ToLighthouse> again;
    {
      const std::lock_guard lock(mutex_);
      if (reports_epoch_ == state_.active()) again = reports_;
    }
    for (const ToLighthouse& report : again)
      uplink_->send(report);
  }

  void handle(const Refused& refused) {
    std::string text = refused.message;
    if (!refused.expected.empty() || refused.field != "expelled") {
      text = fmt::format("the lighthouse refused this process: {}: expected {}, found {}: {}",
                         refused.field, refused.expected, refused.found, refused.message);
    }
    end(Error{ErrorKind::invalid, std::move(text)});
    uplink_->stop_soon();
    uplink_->renew();
  }

  void handle(const Fence& fence) {
    Result<std::optional<Status>> status =
        with_state([&](MemberState& state) { return state.on_fence(fence); });
    if (!status) return end(status.error());
    if (!*status) return;
    if (options_.on_fence) options_.on_fence(fence.epoch);
    uplink_->send(std::move(**status));
  }

  void handle(const Start& start) {
    const Result<bool> applied =
        with_state([&](MemberState& state) { return state.on_start(start.record); });
    if (!applied) return end(applied.error());
    {
      const std::lock_guard lock(mutex_);
      incarnation_ = std::max(incarnation_, start.record.incarnation);
    }
    changed_.notify_all();
  }

  void handle(const Pulse&) {}
  void handle(const Event&) {}
  void handle(const RecordNews&) {}

  /// Every wait ends with `error`, and so does the work with peers.
  void end(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      ended_ = error;
      state_.leave();
    }
    changed_.notify_all();
    if (error.kind == ErrorKind::invalid) {
      log_error("quorum", "{}", error.message);
      if (options_.on_fence) options_.on_fence(std::numeric_limits<std::int64_t>::max());
    }
  }

  void beat() {
    if (is_closed_) return;
    if (uplink_->is_up()) {
      if (monotonic_now() - heard_at_.load() > silent_beats_max * heartbeat_) {
        log_warning("quorum", "the lighthouse is silent: connecting again");
        heard_at_ = monotonic_now();
        uplink_->renew();
      } else {
        send_beat();
      }
    }
    timer_ = loop_.after(heartbeat_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->beat();
    });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  MemberState state_;
  std::optional<Error> ended_;
  std::uint64_t incarnation_ = 0;  ///< of the state
  std::int64_t order_epoch_ = 0;
  std::vector<ToLighthouse> reports_;
  std::int64_t reports_epoch_ = 0;
  std::atomic<bool> is_closed_{false};
  std::atomic<Instant> heard_at_{Instant{}};
  Duration heartbeat_ = heartbeat_first;  ///< loop's thread
  net::Timer timer_;                      ///< loop's thread
};

MemberClient::MemberClient(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<MemberClient> MemberClient::start(net::Loop& loop, MemberOptions options) {
  auto impl = std::make_shared<Impl>(loop, std::move(options));
  impl->begin();
  return std::unique_ptr<MemberClient>(new MemberClient(std::move(impl)));
}

MemberClient::~MemberClient() {
  impl_->close();
}

std::uint64_t MemberClient::instance() const {
  return impl_->id_.instance;
}
Result<StartOrder> MemberClient::wait_start(Duration timeout) {
  return impl_->wait_start(timeout);
}
bool MemberClient::fenced() const {
  return impl_->fenced();
}

Result<void> MemberClient::set_level(std::int64_t epoch, std::int64_t step, std::uint64_t chain) {
  TESON_TRY_VOID(
      impl_->with_state([&](MemberState& state) { return state.set_level(epoch, step, chain); }));
  impl_->send_beat();
  return {};
}

Result<void> MemberClient::begin_step(std::int64_t epoch, std::int64_t step) {
  return impl_->with_state([&](MemberState& state) { return state.begin_step(epoch, step); });
}

Result<void> MemberClient::hold_lane(std::int64_t epoch, std::int32_t lane) {
  return impl_->with_state([&](MemberState& state) { return state.hold_lane(epoch, lane); });
}

Result<void> MemberClient::hold_final(std::int64_t epoch, std::size_t tile) {
  return impl_->with_state([&](MemberState& state) { return state.hold_final(epoch, tile); });
}

Result<void> MemberClient::prepare(const Vote& vote) {
  return impl_->with_state([&](MemberState& state) { return state.prepare(vote); });
}

Result<void> MemberClient::commit(std::int64_t epoch, const Outcome& outcome) {
  return impl_->with_state([&](MemberState& state) { return state.commit(epoch, outcome); });
}

void MemberClient::set_phase(Phase phase) {
  impl_->phase_.store(phase, std::memory_order_relaxed);
}

void MemberClient::add_progress(std::uint64_t amount) {
  impl_->progress_.fetch_add(amount, std::memory_order_relaxed);
}

void MemberClient::report_peer_lost(std::int64_t epoch, int rank, const std::string& what) {
  const std::uint64_t peer = impl_->with_state([&](MemberState& state) -> std::uint64_t {
    const auto& record = state.record();
    if (!record || record->epoch != epoch || rank < 0 ||
        static_cast<std::size_t>(rank) >= record->members.size())
      return 0;
    return record->members[static_cast<std::size_t>(rank)].id.instance;
  });
  if (peer != 0) impl_->report(epoch, PeerLost{epoch, peer, what});
}

void MemberClient::report_mismatch(std::int64_t epoch, std::int64_t step,
                                   const std::vector<int>& ranks) {
  Mismatch mismatch{epoch, step, {}};
  impl_->with_state([&](MemberState& state) {
    const auto& record = state.record();
    if (!record || record->epoch != epoch) return;
    for (const int rank : ranks) {
      if (rank < 0 || static_cast<std::size_t>(rank) >= record->members.size()) continue;
      mismatch.instances.push_back(record->members[static_cast<std::size_t>(rank)].id.instance);
    }
  });
  impl_->report(epoch, std::move(mismatch));
}

void MemberClient::leave(bool finished, const std::string& why, Duration timeout) {
  impl_->leave(finished, why, timeout);
}
void MemberClient::close() {
  impl_->close();
}
Status MemberClient::status() const {
  return impl_->with_state([](MemberState& state) { return state.status(); });
}
bool MemberClient::connected() const {
  return impl_->uplink_->is_up();
}

}  // namespace teson::quorum
