#include "teson/actor/inspect_json.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace teson::actor {

namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json trace_or_null(std::uint64_t trace) {
  return trace == 0 ? Json() : Json(fmt::format("{:016x}", trace));
}

Json to_value(const ActorSnapshot& actor);
Json to_value(const Dimension& dimension);
Json to_value(const ProcSnapshot& proc);
Json to_value(const HostSnapshot& host);
Json to_value(const MeshSnapshot& mesh);

template <typename T>
Json to_values(const std::vector<T>& list) {
  Json values = Json::array();
  for (const T& each : list)
    values.push_back(to_value(each));
  return values;
}

Json to_value(const ActorSnapshot& actor) {
  // Numbers beyond 2^53 are texts: not every reader of JSON keeps them.
  return {{"actor", fmt::format("{}", actor.actor)},
          {"name", actor.name},
          {"class", text_or_null(actor.class_name)},
          {"state", to_text(actor.state)},
          {"handler", text_or_null(actor.handler)},
          {"busy_ms", std::round(to_ms(actor.busy))},
          {"trace", trace_or_null(actor.trace)},
          {"mailbox_messages", actor.mailbox_messages},
          {"mailbox_bytes", actor.mailbox_bytes},
          {"handled", actor.handled},
          {"refused", actor.refused},
          {"last_failure", text_or_null(actor.last_failure)},
          {"last_failure_trace", trace_or_null(actor.last_failure_trace)}};
}

Json to_value(const Dimension& dimension) {
  return {{"name", dimension.name}, {"size", dimension.size}};
}

Json to_value(const ProcSnapshot& proc) {
  return {{"rank", proc.rank},
          {"incarnation", proc.incarnation},
          {"pid", proc.pid},
          {"host", proc.host},
          {"state", to_text(proc.state)},
          {"exit", text_or_null(proc.exit)},
          {"no_answer", text_or_null(proc.no_answer)},
          {"calls_unanswered", proc.calls_unanswered},
          {"actors", to_values(proc.actors)}};
}

Json to_value(const HostSnapshot& host) {
  return {{"name", host.name},
          {"pid", host.pid},
          {"gone", text_or_null(host.gone)},
          {"no_answer", text_or_null(host.no_answer)},
          {"relayed", host.relayed},
          {"actors", to_values(host.actors)}};
}

Json to_value(const MeshSnapshot& mesh) {
  return {{"name", mesh.name},
          {"dimensions", to_values(mesh.dimensions)},
          {"procs", to_values(mesh.procs)}};
}

}  // namespace

std::string to_json(const SystemSnapshot& snapshot) {
  const Json whole = {{"host", snapshot.host},
                      {"pid", snapshot.pid},
                      {"actors", to_values(snapshot.actors)},
                      {"hosts", to_values(snapshot.hosts)},
                      {"meshes", to_values(snapshot.meshes)}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace teson::actor
