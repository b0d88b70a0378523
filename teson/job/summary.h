#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/job/failure_ledger.h"

namespace teson::job {

/// How a run ended and what it did (docs/formats/run_folder.md). A session is one `teson train`; a
/// run may have several. Fields that are not known stay unset: null in the file, a dash in the table.
struct Summary {
  std::string status = "completed";  ///< completed, stopped (on request), failed
  std::string reason;                ///< of a failed run

  // Of the whole run.
  std::int64_t steps = 0;  ///< committed
  std::int64_t steps_planned = 0;
  std::int64_t steps_skipped = 0;  ///< committed without an update
  std::int64_t tokens = 0;
  std::int64_t samples_planned = 0;
  std::int64_t samples_used = 0;
  std::optional<double> loss_first, loss_last;  ///< mean per token
  std::optional<double> val_loss;               ///< the last one measured …
  std::optional<std::int64_t> val_loss_step;    ///< … after this step
  std::optional<double> unigram_entropy;  ///< of the training split's tokens, nats: the loss of a
                                          ///< model that knows only frequencies
  std::string weights_sha256;
  std::int64_t failures_total = 0;          ///< of all sessions
  std::vector<std::string> faults_unfired;  ///< planned with --inject, and not put in so far

  // Of this session.
  std::int64_t steps_lost = 0;  ///< committed and then lost
  double seconds = 0;           ///< wall time
  double tokens_per_s = 0;
  int replicas = 0;
  std::vector<FailureRow> failures;
};

/// JSON, indented, with a final newline.
std::string to_json(const Summary& summary);
/// From summary.json; instants of failures are not kept.
Result<Summary> parse_summary(std::string_view json);
Result<void> write_summary(const Summary& summary, const std::filesystem::path& path);
Result<Summary> read_summary(const std::filesystem::path& path);

/// For people: figures, then one row a failure with its phases in milliseconds, then their p50 and
/// maximum where there are several. At most `failures_max` rows; the rest are counted.
std::string format_summary(const Summary& summary, std::size_t failures_max = 20);

/// The value at quantile q (0 … 1) of unsorted values, by the nearest rank; unset for none.
std::optional<double> quantile(std::vector<double> values, double q);

}  // namespace teson::job
