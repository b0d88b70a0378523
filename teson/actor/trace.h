#pragma once

// Traces of a System's processes; not for use outside actor/.

#include <cstdint>
#include <string>
#include <vector>

#include "teson/actor/trace_ring.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::actor::detail {

struct Runtime;

/// The part of a trace that one process has.
struct ProcTrace {
  std::uint64_t proc = 0;  ///< its number in its System; 0: the owner
  std::int64_t pid = 0;
  std::string host;
  std::string name;       ///< "workers rank 1"
  std::string no_answer;  ///< why there is no report, if there is none
  TraceReport report;
};

/// Has this process and those of its meshes remember their messages for so long, those that attach
/// meanwhile from then on, and gathers what they have. Blocks; `aborted` once
/// `cancel_fd` is readable, `overloaded` while another trace of the System is being taken.
Result<std::vector<ProcTrace>> take_trace(Runtime& runtime, Duration length, int cancel_fd);

/// As Chrome and Perfetto read it, on one line: a process each, a thread an actor, a slice a
/// handler, an arrow from where a message was sent to its handler.
std::string chrome_trace(const std::vector<ProcTrace>& procs);

}  // namespace teson::actor::detail
