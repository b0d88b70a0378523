#include "apps/teson/ps_text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/actor/shape.h"
#include "teson/job/text_width.h"

namespace teson::apps {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kNameColumns = 18;
constexpr std::size_t kStateColumns = 24;

std::string text_of(const Json& value) {
  return value.is_null() ? std::string() : job::printable(value.get<std::string>());
}

std::string duration_text(double ms) {
  return ms < 1000 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.1f} s", ms / 1000);
}

std::string state_of(const Json& actor) {
  const auto state = text_of(actor.at("state"));
  const auto busy = duration_text(actor.at("busy_ms").get<double>());
  if (state == "busy") return fmt::format("{} for {}", text_of(actor.at("handler")), busy);
  return state == "starting" ? fmt::format("starting for {}", busy) : state;
}

void add_actors(std::string& out, const Json& actors, const std::string& indent) {
  for (const Json& actor : actors) {
    out += fmt::format("{}{} {} {} waiting", indent,
                       job::pad_right(text_of(actor.at("name")) + " " + text_of(actor.at("class")),
                                      2 * kNameColumns),
                       job::pad_right(state_of(actor), kStateColumns),
                       actor.at("mailbox_messages").get<std::uint64_t>());
    const auto bytes = actor.at("mailbox_bytes").get<std::uint64_t>();
    if (bytes > 0) out += fmt::format(" ({} bytes)", bytes);
    out += fmt::format(", {} handled", actor.at("handled").get<std::uint64_t>());
    const auto refused = actor.at("refused").get<std::uint64_t>();
    if (refused > 0) out += fmt::format(", {} refused", refused);
    out += "\n";
    if (!actor.at("last_failure").is_null()) {
      out += fmt::format("{}  last failure: {}", indent, text_of(actor.at("last_failure")));
      if (!actor.at("last_failure_trace").is_null())
        out += fmt::format(" (trace {})", text_of(actor.at("last_failure_trace")));
      out += "\n";
    }
  }
}

/// "replica=1, shard=0"
std::string place_of(const Json& mesh, std::size_t rank) {
  actor::Shape shape;
  for (const Json& dimension : mesh.at("dimensions"))
    shape.dimensions.push_back(
        {text_of(dimension.at("name")), dimension.at("size").get<std::uint64_t>()});
  if (!shape.validate() || rank >= shape.ranks()) return "";
  std::string text;
  const auto coordinates = shape.coordinates(rank);
  for (std::size_t i = 0; i < coordinates.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "" : ", ", shape.dimensions[i].name, coordinates[i]);
  return text;
}

void add_proc(std::string& out, const Json& mesh, const Json& proc) {
  const auto rank = proc.at("rank").get<std::size_t>();
  const auto life = proc.at("incarnation").get<std::uint64_t>();
  out += fmt::format("  {} rank {} ({}), pid {}, {}", text_of(mesh.at("name")), rank,
                     place_of(mesh, rank), proc.at("pid").get<std::int64_t>(),
                     text_of(proc.at("state")));
  if (life > 0) out += fmt::format(", started again {} time{}", life, life == 1 ? "" : "s");
  const auto unanswered = proc.at("calls_unanswered").get<std::int64_t>();
  if (unanswered > 0)
    out += fmt::format(", owes {} answer{}", unanswered, unanswered == 1 ? "" : "s");
  out += "\n";
  for (const char* trouble : {"exit", "no_answer"}) {
    if (!proc.at(trouble).is_null()) out += fmt::format("    {}\n", text_of(proc.at(trouble)));
  }
  add_actors(out, proc.at("actors"), "    ");
}

/// Names of machines: the owner's, those of agents, those of processes; each once.
std::vector<std::string> hosts_of(const Json& snapshot) {
  std::vector<std::string> names{text_of(snapshot.at("host"))};
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Json& host : snapshot.at("hosts"))
    add(text_of(host.at("name")));
  for (const Json& mesh : snapshot.at("meshes")) {
    for (const Json& proc : mesh.at("procs"))
      add(text_of(proc.at("host")));
  }
  return names;
}

std::string to_text(const Json& snapshot) {
  std::string out;
  for (const std::string& name : hosts_of(snapshot)) {
    out += fmt::format("host {}\n", name);
    if (name == text_of(snapshot.at("host"))) {
      out += fmt::format("  owner, pid {}\n", snapshot.at("pid").get<std::int64_t>());
      add_actors(out, snapshot.at("actors"), "    ");
    }
    for (const Json& host : snapshot.at("hosts")) {
      if (text_of(host.at("name")) != name) continue;
      out += fmt::format("  agent, pid {}", host.at("pid").get<std::int64_t>());
      if (const auto relayed = host.at("relayed").get<std::uint64_t>(); relayed > 0)
        out += fmt::format(", {} large calls relayed", relayed);
      out += '\n';
      for (const char* trouble : {"gone", "no_answer"}) {
        if (!host.at(trouble).is_null()) out += fmt::format("    {}\n", text_of(host.at(trouble)));
      }
      add_actors(out, host.at("actors"), "    ");
    }
    for (const Json& mesh : snapshot.at("meshes")) {
      for (const Json& proc : mesh.at("procs")) {
        if (text_of(proc.at("host")) == name) add_proc(out, mesh, proc);
      }
    }
  }
  return out;
}

}  // namespace

Result<std::string> ps_text(std::string_view snapshot) {
  try {
    return to_text(Json::parse(snapshot));
  } catch (const Json::exception& error) {
    return fail(
        ErrorKind::failed,
        fmt::format("the answer is no snapshot as this program knows it: {}", error.what()));
  }
}

}  // namespace teson::apps
