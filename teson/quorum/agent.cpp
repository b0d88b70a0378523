#include "teson/quorum/agent.h"

#include <deque>
#include <mutex>
#include <utility>

#include "teson/base/log.h"
#include "teson/quorum/uplink.h"

namespace teson::quorum {

class Agent::Impl {
 public:
  Impl(net::Loop& loop, AgentOptions options) : options_(std::move(options)) {
    UplinkOptions uplink;
    uplink.lighthouse = options_.lighthouse;
    uplink.job = options_.job;
    uplink.secret = options_.secret;
    uplink.make_first = [this] {
      return ToLighthouse(Observe{protocol_version, options_.job, options_.name});
    };
    uplink.on_message = [this](const FromLighthouse& message) {
      std::visit([this](const auto& value) { handle(value); }, message);
    };
    uplink.on_link = [this](bool is_up) {
      if (options_.on_link) options_.on_link(is_up);
    };
    uplink.on_unreachable = options_.on_unreachable;
    uplink.on_refused = [this](const Error& error) {
      handle(Refused{"handshake", "", "", error.message});
    };
    uplink_ = std::make_unique<Uplink>(loop, std::move(uplink));
    uplink_->start();
  }

  void report(ReportDead report) {
    const std::lock_guard lock(mutex_);
    if (reports_.size() >= reports_kept_max) reports_.pop_front();
    reports_.push_back(report);
    uplink_->send(std::move(report));
  }

  std::unique_ptr<Uplink> uplink_;

 private:
  void handle(const RecordNews& news) {
    {
      // The first answer on a link: it is an agent's link now. Reports from before are told again;
      // once more does no harm.
      const std::lock_guard lock(mutex_);
      for (const ReportDead& report : reports_)
        uplink_->send(report);
    }
    if (options_.on_record) options_.on_record(news);
  }
  void handle(const Event& event) {
    if (options_.on_event) options_.on_event(event);
  }
  void handle(const Refused& refused) {
    uplink_->stop_soon();
    if (options_.on_refused) return options_.on_refused(refused);
    log_error("quorum", "the lighthouse refused this agent: {}: {}", refused.field,
              refused.message);
  }
  void handle(const Welcome&) {}
  void handle(const Fence&) {}
  void handle(const Start&) {}
  void handle(const Pulse&) {}

  AgentOptions options_;
  std::mutex mutex_;
  std::deque<ReportDead> reports_;
};

Agent::Agent(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Agent> Agent::start(net::Loop& loop, AgentOptions options) {
  return std::unique_ptr<Agent>(new Agent(std::make_shared<Impl>(loop, std::move(options))));
}

Agent::~Agent() {
  close();
}

void Agent::report_dead(std::uint64_t instance, Cause cause, const std::string& what, Instant at) {
  impl_->report(ReportDead{instance, cause, at.time_since_epoch().count(), what});
}

bool Agent::connected() const {
  return impl_->uplink_->is_up();
}
void Agent::close() {
  impl_->uplink_->close();
}

}  // namespace teson::quorum
