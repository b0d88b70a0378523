#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "teson/base/clock.h"
#include "teson/quorum/torchft_quorum.h"
#include "teson/torchft/lighthouse.grpc.pb.h"

namespace teson::torchft {

class QuorumCall;

/// What the port serves. Calls come raw: a reply is serialized once and shared by all who get it,
/// and a malformed request gets a refusal of ours. One mutex guards the state; replies are built
/// and sent, and `on_quorum` is called, outside it.
class LighthouseService final : public ::torchft::LighthouseService::WithRawCallbackMethod_Quorum<
                                    ::torchft::LighthouseService::WithRawCallbackMethod_Heartbeat<
                                        ::torchft::LighthouseService::Service>> {
 public:
  struct Settings {
    quorum::TorchftRules rules;
    Duration tick{};
    std::int64_t quorum_id = 0;
    std::function<void(std::int64_t, std::size_t)> on_quorum;
  };
  /// `clock` must be the steady clock of this machine: the timer sleeps on it.
  LighthouseService(Settings settings, const Clock& clock);
  ~LighthouseService() override;

  grpc::ServerUnaryReactor* Quorum(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;

  /// The call ended without an answer.
  void cancelled(QuorumCall* call);
  /// Answers all that waits, and whatever comes later, with UNAVAILABLE; ends the timer.
  void close();

  /// A copy of what a status needs, under the lock.
  void inspect(const std::function<void(const quorum::TorchftLighthouse&)>& reader) const;

 private:
  struct Formed {
    quorum::TorchftQuorum quorum;
    std::vector<QuorumCall*> calls;
  };
  std::optional<Formed> tick_locked();
  void publish(Formed formed);
  void run_timer();
  Instant next_wake_locked() const;

  const Settings settings_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  quorum::TorchftLighthouse lighthouse_;
  std::map<quorum::TorchftTicket, QuorumCall*> calls_;
  bool closed_ = false;
  std::thread timer_;
};

}  // namespace teson::torchft
