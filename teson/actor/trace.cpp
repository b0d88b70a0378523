#include "teson/actor/trace.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "teson/actor/inspect_call.h"
#include "teson/actor/mesh_state.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/runtime.h"
#include "teson/base/clock.h"
#include "teson/base/world.h"
#include "teson/net/socket.h"

namespace teson::actor::detail {

namespace {

/// Of all processes of a trace together, so that what it is written to stays of a size to be read.
constexpr std::size_t events_of_all_max = std::size_t{1} << 18;
constexpr std::size_t events_of_one_min = 1024;
constexpr Duration answer_deadline = std::chrono::seconds(3);
/// How often it is looked for processes that have attached meanwhile.
constexpr Duration look_interval = std::chrono::milliseconds(50);

/// One trace that is being taken.
class Tracing {
 public:
  explicit Tracing(Runtime& runtime) : runtime_(runtime) {
    procs_.push_back({.pid = own_pid(), .host = runtime.host_name, .name = "owner"});
  }

  /// Has those remember that do not yet.
  void begin() {
    const bool first = events_ == 0;
    const std::size_t known = others_.size();
    for (const auto& mesh : runtime_.mesh_list.all()) {
      if (const auto members = mesh->members()) add_new(*members);
    }
    if (first) {
      events_ = std::max(events_of_one_min, events_of_all_max / procs_.size());
      runtime_.node.trace_ring().begin(events_);
    }
    if (others_.size() == known) return;
    const std::vector fresh(others_.begin() + static_cast<std::ptrdiff_t>(known), others_.end());
    // Nobody waits for what they say to this.
    (void)begin_inspect(runtime_, {.what = InspectRequest::What::begin_trace, .events = events_},
                        fresh, now());
  }

  std::vector<ProcTrace> end() {
    const auto pending = begin_inspect(runtime_, {.what = InspectRequest::What::end_trace}, others_,
                                       now() + answer_deadline);
    pending->wait();
    procs_[0].report = runtime_.node.end_trace();
    for (std::size_t i = 0; i < others_.size(); ++i) {
      auto report = decode_reply<TraceReport>(*pending->take(i));
      ProcTrace& proc = procs_[i + 1];
      if (report) {
        proc.report = std::move(*report);
      } else {
        proc.no_answer = report.error().message;
      }
    }
    return std::move(procs_);
  }

 private:
  void add_new(const MeshState::Members& members) {
    for (const auto& proc : members.procs) {
      if (!proc->alive() || !proc->attached()) continue;
      if (std::find(others_.begin(), others_.end(), proc) != others_.end()) continue;
      others_.push_back(proc);
      procs_.push_back({.proc = proc->id(),
                        .pid = proc->pid(),
                        .host = proc->host(),
                        .name = fmt::format("{} rank {}", members.name, proc->place().rank)});
    }
  }

  Runtime& runtime_;
  std::vector<ProcTrace> procs_;                     ///< the owner first
  std::vector<std::shared_ptr<RemoteProc>> others_;  ///< all but the first
  std::size_t events_ = 0;                           ///< of a process
};

}  // namespace

Result<std::vector<ProcTrace>> take_trace(Runtime& runtime, Duration length, int cancel_fd) {
  const std::unique_lock one_at_a_time(runtime.trace_mutex, std::try_to_lock);
  if (!one_at_a_time) {
    return fail(ErrorKind::overloaded,
                "a trace is being taken already: try again when it has ended");
  }
  const Instant until = now() + length;
  Tracing tracing(runtime);
  Result<void> waited;
  do {
    tracing.begin();
    waited = net::wait_for(-1, POLLIN, std::min(until, now() + look_interval), cancel_fd);
  } while (now() < until && waited.error().kind == ErrorKind::timed_out);
  auto procs = tracing.end();
  if (waited.error().kind != ErrorKind::timed_out) return Failure(waited.error());
  return procs;
}

}  // namespace teson::actor::detail
