#include "teson/actor/inspect.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/actor/inspect_call.h"
#include "teson/actor/mesh_state.h"
#include "teson/actor/node.h"
#include "teson/actor/read_request.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/runtime.h"
#include "teson/actor/system.h"
#include "teson/base/clock.h"
#include "teson/base/world.h"

namespace teson::actor {

const char* to_text(ActorState state) {
  static constexpr const char* texts[] = {"starting", "idle", "busy", "failed", "stopped"};
  return texts[static_cast<std::size_t>(state)];
}

const char* to_text(ProcState state) {
  static constexpr const char* texts[] = {"starting", "running", "ended"};
  return texts[static_cast<std::size_t>(state)];
}

namespace detail {

TraceReport Node::end_trace() {
  TraceReport report = trace_ring_.end();
  actors_.add_to(report);
  return report;
}

void Node::receive_inspect(std::uint64_t from, const net::Buffer& payload) {
  const auto request = read_request<InspectRequest>(from, payload.bytes(), "request to inspect");
  if (!request) return;
  auto text = ReplyPath::begin_reply();
  switch (request->what) {
    case InspectRequest::What::actors:
      net::encode_to(text, Result<std::vector<ActorSnapshot>>(inspect()));
      break;
    case InspectRequest::What::begin_trace:
      trace_ring_.begin(static_cast<std::size_t>(request->events));
      net::encode_to(text, Result<void>());
      break;
    case InspectRequest::What::end_trace:
      net::encode_to(text, Result<TraceReport>(end_trace()));
      break;
  }
  reply(from, request->call, std::move(text));
}

std::shared_ptr<PendingCall> begin_inspect(Runtime& runtime, InspectRequest request,
                                           const std::vector<std::shared_ptr<RemoteProc>>& procs,
                                           Instant deadline) {
  auto begun = BegunCall::to(runtime, procs, deadline);
  request.call = begun.pending->id();
  begun.send(net::Payload(net::encode(request)), Kind::inspect);
  return std::move(begun.pending);
}

namespace {

ProcSnapshot outline(const RemoteProc& proc) {
  ProcSnapshot snapshot{.rank = proc.place().rank,
                        .incarnation = proc.place().incarnation,
                        .pid = proc.pid(),
                        .host = proc.host(),
                        .state = proc.attached() ? ProcState::running : ProcState::starting,
                        .calls_unanswered = proc.unanswered()};
  if (const auto gone = proc.gone()) {
    snapshot.state = ProcState::ended;
    snapshot.exit = gone->message;
  }
  return snapshot;
}

/// The processes to ask, and where what they answer belongs.
struct Asked {
  std::vector<std::shared_ptr<RemoteProc>> procs;
  struct Place {
    std::vector<ActorSnapshot>* actors;
    std::string* no_answer;
  };
  std::vector<Place> places;
};

void ask(Runtime& runtime, const Asked& asked, Duration deadline) {
  if (asked.procs.empty()) return;
  const auto pending = begin_inspect(runtime, {}, asked.procs, now() + deadline);
  pending->wait();
  for (std::size_t i = 0; i < asked.procs.size(); ++i) {
    auto answer = decode_reply<std::vector<ActorSnapshot>>(*pending->take(i));
    if (answer) {
      *asked.places[i].actors = std::move(*answer);
    } else if (answer.error().kind == ErrorKind::timed_out) {
      *asked.places[i].no_answer = fmt::format("no answer within {:.1f} s", to_seconds(deadline));
    } else {
      *asked.places[i].no_answer = answer.error().message;
    }
  }
}

}  // namespace
}  // namespace detail

SystemSnapshot System::inspect(Duration deadline) {
  SystemSnapshot snapshot{
      .host = runtime_->host_name, .pid = own_pid(), .actors = runtime_->node.inspect()};
  detail::Asked asked;
  const auto links = runtime_->hosts.all();
  const auto meshes = runtime_->mesh_list.all();
  // The places must not move.
  snapshot.hosts.reserve(links.size());
  snapshot.meshes.reserve(meshes.size());
  for (const auto& link : links) {
    HostSnapshot& host = snapshot.hosts.emplace_back();
    host.name = link->name();
    host.pid = link->pid();
    host.relayed = link->relayed();
    const auto gone = link->gone();
    if (gone) host.gone = gone->message;
    const auto proc = link->proc();
    if (gone || !proc) continue;
    asked.procs.push_back(proc);
    asked.places.push_back({&host.actors, &host.no_answer});
  }
  for (const auto& state : meshes) {
    const auto members = state->members();
    if (!members) continue;
    MeshSnapshot& mesh = snapshot.meshes.emplace_back();
    mesh.name = members->name;
    mesh.dimensions = members->shape.dimensions;
    mesh.procs.reserve(members->procs.size());
    for (const auto& proc : members->procs) {
      ProcSnapshot& place = mesh.procs.emplace_back(detail::outline(*proc));
      if (place.state == ProcState::ended) continue;
      asked.procs.push_back(proc);
      asked.places.push_back({&place.actors, &place.no_answer});
    }
  }
  detail::ask(*runtime_, asked, deadline);
  return snapshot;
}

}  // namespace teson::actor
