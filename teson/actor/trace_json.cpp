#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/actor/trace.h"

namespace teson::actor::detail {

namespace {

using What = TraceEvent::What;

/// Of the slice from which the arrow of a message starts that was sent outside handlers; sending
/// takes longer.
constexpr std::int64_t send_slice_ns = 200;
/// Added to the number of a process that one of another machine has, too.
constexpr std::int64_t pid_step = 10'000'000;

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// An event and where it lies in the picture.
struct Placed {
  const TraceEvent* event = nullptr;
  std::size_t row = 0;  ///< "tid"
  std::int64_t begin_ns = 0;
  std::int64_t duration_ns = 0;
};

/// One process of the picture.
class Process {
 public:
  Process(const ProcTrace& trace, std::int64_t pid) : trace_(trace), pid_(pid) {
    for (const TracedActor& actor : trace.report.actors)
      actors_.emplace(actor.actor, &actor);
    place_all();
  }

  std::uint64_t proc() const { return trace_.proc; }
  std::int64_t pid() const { return pid_; }
  /// In the order of their begins.
  const std::vector<Placed>& events() const { return events_; }

  /// "Worker::step"
  std::string endpoint_name(const TraceEvent& handled) const {
    const auto found = actors_.find(handled.actor);
    if (found == actors_.end()) return fmt::format("actor {}", handled.actor);
    const auto& names = found->second->endpoints;
    return fmt::format("{}::{}", found->second->class_name,
                       handled.endpoint < names.size() ? names[handled.endpoint] : "?");
  }

  void write_names(std::string& out) const {
    fmt::format_to(
        std::back_inserter(out),
        R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":{}}}}})", pid_,
        json_text(fmt::format("{} (pid {}, host '{}')", trace_.name, trace_.pid, trace_.host)));
    for (const auto& [key, row] : rows_) {
      fmt::format_to(std::back_inserter(out),
                     ","
                     R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                     pid_, row, json_text(row_name(key.first, key.second)));
    }
  }

 private:
  void place_all() {
    for (const TraceEvent& event : trace_.report.events) {
      const auto row = rows_.emplace(std::pair(event.actor, event.thread), rows_.size() + 1);
      events_.push_back({&event, row.first->second, event.begin_ns, event.duration_ns});
    }
    std::stable_sort(events_.begin(), events_.end(), [](const Placed& left, const Placed& right) {
      return left.begin_ns < right.begin_ns;
    });
    std::unordered_map<std::size_t, std::int64_t> row_ends;
    for (Placed& placed : events_) {
      if (!has_slice(*placed.event)) continue;
      // Slices of a row must not overlap: the begin of a handler that still runs is known to a few
      // milliseconds only.
      std::int64_t& row_end = row_ends[placed.row];
      const std::int64_t begin = std::max(placed.begin_ns, row_end);
      placed.duration_ns =
          placed.event->what == What::sent
              ? send_slice_ns
              : std::max<std::int64_t>(placed.begin_ns + placed.duration_ns - begin, 0);
      placed.begin_ns = begin;
      row_end = begin + placed.duration_ns;
    }
  }
  /// What is sent within a handler lies in the handler's.
  static bool has_slice(const TraceEvent& event) {
    return event.what == What::handled || event.actor == 0;
  }
  std::string row_name(std::uint64_t actor, std::uint32_t thread) const {
    const auto found = actors_.find(actor);
    if (found != actors_.end()) return found->second->name;
    return actor == 0 ? fmt::format("thread {}", thread) : fmt::format("actor {}", actor);
  }

  const ProcTrace& trace_;
  const std::int64_t pid_;
  std::unordered_map<std::uint64_t, const TracedActor*> actors_;
  /// By actor, or by thread outside them.
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> rows_;
  std::vector<Placed> events_;
};

/// The text of the events, one a line.
class Writer {
 public:
  explicit Writer(const std::vector<Process>& processes) : processes_(processes) {
    for (const Process& process : processes) {
      for (const Placed& placed : process.events()) {
        if (placed.event->what == What::handled)
          handlers_.emplace(std::pair(placed.event->trace.message, process.proc()),
                            Handler{&process, &placed});
      }
    }
  }

  std::string write() {
    for (const Process& process : processes_) {
      begin_event();
      process.write_names(out_);
      for (const Placed& placed : process.events()) {
        if (placed.event->what == What::handled) {
          slice(process, placed, process.endpoint_name(*placed.event), "handler");
        } else {
          sent(process, placed);
        }
      }
    }
    return std::move(out_);
  }

 private:
  struct Handler {
    const Process* process = nullptr;
    const Placed* placed = nullptr;
  };

  void begin_event() {
    if (!out_.empty()) out_ += ",";
  }
  void slice(const Process& process, const Placed& placed, const std::string& name,
             const char* category) {
    begin_event();
    fmt::format_to(
        std::back_inserter(out_),
        R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"trace":"{:016x}"{}}}}})",
        category, json_text(name), process.pid(), placed.row, us(placed.begin_ns),
        us(placed.duration_ns), placed.event->trace.trace,
        placed.event->running ? R"(,"running":true)" : "");
  }
  void sent(const Process& process, const Placed& placed) {
    const auto found = handlers_.find(std::pair(placed.event->trace.message, placed.event->proc));
    if (placed.event->actor == 0) {
      const char* verb = placed.event->awaited ? "call" : "cast";
      slice(process, placed,
            found == handlers_.end()
                ? std::string(verb)
                : fmt::format("{} {}", verb,
                              found->second.process->endpoint_name(*found->second.placed->event)),
            "send");
    }
    if (found == handlers_.end()) return;
    ++arrows_;
    arrow("s", process, placed, "");
    arrow("f", *found->second.process, *found->second.placed, R"("bp":"e",)");
  }
  void arrow(const char* phase, const Process& process, const Placed& placed, const char* binding) {
    begin_event();
    fmt::format_to(
        std::back_inserter(out_),
        R"({{"ph":"{}",{}"cat":"message","name":"message","id":{},"pid":{},"tid":{},"ts":{:.3f},"args":{{"trace":"{:016x}"}}}})",
        phase, binding, arrows_, process.pid(), placed.row, us(placed.begin_ns),
        placed.event->trace.trace);
  }
  static double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

  const std::vector<Process>& processes_;
  /// By message and process.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Handler> handlers_;
  std::uint64_t arrows_ = 0;
  std::string out_;
};

}  // namespace

std::string chrome_trace(const std::vector<ProcTrace>& procs) {
  std::vector<Process> processes;
  processes.reserve(procs.size());
  std::set<std::int64_t> pids;
  std::uint64_t lost = 0;
  std::vector<std::string> silent;
  for (const ProcTrace& proc : procs) {
    std::int64_t pid = proc.pid;
    while (!pids.insert(pid).second)
      pid += pid_step;
    processes.emplace_back(proc, pid);
    lost += proc.report.lost;
    if (!proc.no_answer.empty()) silent.push_back(proc.name + ": " + proc.no_answer);
  }
  return fmt::format(
      R"({{"traceEvents":[{}],"displayTimeUnit":"ms","otherData":{{"events_lost":{},"no_answer":{}}}}})",
      Writer(processes).write(), lost,
      nlohmann::json(silent).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace teson::actor::detail
