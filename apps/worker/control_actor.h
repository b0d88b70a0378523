#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "teson/job/control.h"

namespace teson::comm {
class HostTransport;
}
namespace teson::quorum {
class MemberClient;
}
namespace teson::train {
class Trainer;
}

namespace teson::apps {

/// What the control actor and the end of the process say to the step loop. Threads: any.
class ControlState {
 public:
  ControlState();
  ~ControlState();

  /// Blocks until the controller's order came; nothing if the process is to end first.
  std::optional<job::WorkerOrder> wait_order();
  /// The step loop runs from here …
  void begin(train::Trainer& trainer, quorum::MemberClient* member, comm::HostTransport* transport);
  /// … to here: none of them is touched afterwards. Idempotent.
  void end();
  bool stopping() const;

  Result<void> take_order(const job::WorkerOrder& order);
  void stop_at_boundary();
  void checkpoint_now();
  /// The process is to end: whatever the step loop waits for is ended, on a thread of this object.
  /// Returns at once.
  void stop();

 private:
  void run_stopper();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<job::WorkerOrder> order_;
  bool ordered_ = false;
  bool stopping_ = false;
  bool leaving_ = false;  ///< the stopper is inside the three below
  bool closed_ = false;
  bool stop_wanted_ = false;
  bool checkpoint_wanted_ = false;
  train::Trainer* trainer_ = nullptr;
  quorum::MemberClient* member_ = nullptr;
  comm::HostTransport* transport_ = nullptr;
  std::thread stopper_;
};

/// The actor behind job::WorkerControl.
std::unique_ptr<job::WorkerControl> control_actor(std::shared_ptr<ControlState> state);

}  // namespace teson::apps
