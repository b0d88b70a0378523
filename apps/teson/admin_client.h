#pragma once

#include <string>
#include <string_view>

#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace CLI {
class App;
}

namespace teson::apps {

/// Says on the command line whom ask_admin is to ask.
void add_admin_run(CLI::App& command, std::string& run);

/// One line of an admin endpoint (docs/formats/admin.md) in answer to another. `run`: the folder of
/// a run, or the address of another program's endpoint (unix:/PATH). `wait`: how long the answer
/// may take. Errors: `invalid`, there is no run there; `disconnected`, it has ended; else what the
/// endpoint said.
Result<std::string> ask_admin(const std::string& run, std::string_view line, Duration wait);

/// Whether the run of a folder goes on. `invalid`: there is no run there.
Result<bool> is_running(const std::string& run);

}  // namespace teson::apps
