#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "apps/teson/run_journal.h"
#include "teson/base/error.h"
#include "teson/job/config.h"

namespace teson::apps {

/// Reads the newest checkpoint of a run in full before anything is started, so that all workers
/// find the same. Damaged ones are passed over as pass_over says. One that cannot be read for
/// another reason, or that all are damaged, is an error: nothing begins at step 0 beside
/// checkpoints. `aborted` when `stop` was asked for.
Result<void> check_checkpoints(const job::Config& config, RunJournal& journal,
                               const std::stop_token& stop);

/// Tells of a damaged checkpoint, and renames it so that nobody tries or removes it.
void pass_over(const job::Config& config, RunJournal& journal, const std::filesystem::path& path,
               const std::string& reason);

}  // namespace teson::apps
