#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "teson/base/error.h"
#include "teson/job/records.h"

namespace teson::job {

/// What the committed history should hold: steps 1 … steps, lanes 0 … lanes-1.
struct LedgerPlan {
  std::int64_t steps = 0;
  int lanes = 0;
  std::int64_t samples_per_lane = 0;
  /// The planned hash of a lane's samples; may be empty: hashes are then not compared.
  std::function<std::uint64_t(std::int64_t step, int lane)> sample_hash = {};
};

struct LedgerCheck {
  std::int64_t samples_planned = 0;
  std::int64_t samples_used = 0;      ///< of lanes that occur exactly once
  std::vector<std::string> problems;  ///< the first 10, each naming step and lane
  bool complete() const { return problems.empty() && samples_planned == samples_used; }
};

/// Whether every planned (step, lane) was used exactly once. Lines of steps beyond plan.steps are
/// not looked at: they were not committed in the history that counts.
LedgerCheck check_ledger(const std::vector<LedgerLine>& lines, const LedgerPlan& plan);
Result<LedgerCheck> check_ledger(const std::filesystem::path& ledger, const LedgerPlan& plan);

}  // namespace teson::job
