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
#include "teson/net/socket.h"

namespace teson::actor::detail {

namespace {

/// Of all processes of a trace together, so that what it is written to stays of a size to be read.
constexpr std::size_t events_of_all_max = std::size_t{1} << 18;
constexpr std::size_t events_of_one_min = 1024;
constexpr Duration answer_deadline = std::chrono::seconds(3);

/// What is traced: the owner first.
struct Traced {
  std::vector<ProcTrace> procs;
  std::vector<std::shared_ptr<RemoteProc>> others;  ///< all but the first
};

Traced all_procs(Runtime& runtime) {
  Traced traced;
  traced.procs.push_back({.pid = ::getpid(), .host = runtime.host_name, .name = "owner"});
  for (const auto& mesh : runtime.mesh_list.all()) {
    const auto members = mesh->members();
    if (!members) continue;
    for (const auto& proc : members->procs) {
      if (!proc->alive() || !proc->attached()) continue;
      traced.others.push_back(proc);
      traced.procs.push_back(
          {.proc = proc->id(),
           .pid = proc->pid(),
           .host = proc->host(),
           .name = fmt::format("{} rank {}", members->name, proc->place().rank)});
    }
  }
  return traced;
}

}  // namespace

Result<std::vector<ProcTrace>> take_trace(Runtime& runtime, Duration length, int cancel_fd) {
  const std::unique_lock one_at_a_time(runtime.trace_mutex, std::try_to_lock);
  if (!one_at_a_time) {
    return fail(ErrorKind::overloaded,
                "a trace is being taken already: try again when it has ended");
  }
  Traced traced = all_procs(runtime);
  const std::size_t events = std::max(events_of_one_min, events_of_all_max / traced.procs.size());
  const auto ask = [&](InspectRequest request) {
    const auto pending = begin_inspect(runtime, request, traced.others,
                                       std::chrono::steady_clock::now() + answer_deadline);
    pending->wait();
    return pending;
  };
  runtime.node.trace_ring().begin(events);
  (void)ask({.what = InspectRequest::What::begin_trace, .events = events});
  const auto waited =
      net::wait_for(-1, POLLIN, std::chrono::steady_clock::now() + length, cancel_fd);
  const auto reports = ask({.what = InspectRequest::What::end_trace});
  traced.procs[0].report = runtime.node.end_trace();
  if (!waited && waited.error().kind == ErrorKind::aborted)
    return fail(ErrorKind::aborted, "the process is ending");
  for (std::size_t i = 0; i < traced.others.size(); ++i) {
    auto report = decode_reply<TraceReport>(*reports->take(i));
    ProcTrace& proc = traced.procs[i + 1];
    if (report) {
      proc.report = std::move(*report);
    } else {
      proc.no_answer = report.error().message;
    }
  }
  return std::move(traced.procs);
}

}  // namespace teson::actor::detail
