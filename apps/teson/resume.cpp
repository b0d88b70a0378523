#include "apps/teson/resume.h"

#include <fmt/format.h>

#include "teson/checkpoint/checkpoint.h"

namespace teson::apps {

Result<void> check_checkpoints(const job::Config& config, RunJournal& journal,
                               const std::stop_token& stop) {
  SystemDisk disk;
  const CheckpointStore store(job::checkpoint_dir(config), disk);
  const auto newest = store.newest_complete(stop);
  if (!newest) {
    const Error& error = newest.error();
    if (error.kind == ErrorKind::invalid || error.kind == ErrorKind::aborted) return fail(error);
    return fail(error.kind, fmt::format("the newest checkpoint cannot be read: {}; mend that, or "
                                        "begin from nothing with --start-anew",
                                        error.message));
  }
  for (const auto& skipped : newest->skipped)
    pass_over(config, journal, skipped.path, skipped.reason);
  if (!newest->checkpoint && journal.committed_before() > 0) {
    journal.warning(fmt::format(
        "the run had committed step {}, but '{}' holds no checkpoint: it begins again at step 1",
        journal.committed_before(), store.root().string()));
  }
  return {};
}

void pass_over(const job::Config& config, RunJournal& journal, const std::filesystem::path& path,
               const std::string& reason) {
  // Every worker reports it; the first report counts.
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return;
  SystemDisk disk;
  const auto aside = CheckpointStore(job::checkpoint_dir(config), disk).set_aside(path);
  journal.warning(fmt::format(
      "checkpoint '{}' is damaged and passed over ({}); {}", path.filename().string(), reason,
      aside ? "it is kept as '" + aside->filename().string() + "'" : aside.error().message));
}

}  // namespace teson::apps
