#include "teson/job/sample_ledger.h"

#include <map>

#include <fmt/format.h>

namespace teson::job {
namespace {

constexpr std::size_t kProblemsMax = 10;

void report(LedgerCheck& check, std::string text) {
  if (check.problems.size() < kProblemsMax) check.problems.push_back(std::move(text));
}

void check_line(const LedgerLine& line, const LedgerPlan& plan, LedgerCheck& check) {
  std::vector<int> seen(static_cast<std::size_t>(plan.lanes), 0);
  std::vector<std::int64_t> used(static_cast<std::size_t>(plan.lanes), 0);
  for (const LaneEntry& entry : line.lanes) {
    if (entry.lane < 0 || entry.lane >= plan.lanes) {
      report(check, fmt::format("step {}: lane {} does not exist; expected 0 to {}", line.step,
                                entry.lane, plan.lanes - 1));
      continue;
    }
    if (seen[static_cast<std::size_t>(entry.lane)]++ > 0) continue;
    if (entry.samples != plan.samples_per_lane) {
      report(check, fmt::format("step {} lane {}: expected {} samples, found {}", line.step,
                                entry.lane, plan.samples_per_lane, entry.samples));
    }
    if (plan.sample_hash && plan.sample_hash(line.step, entry.lane) != entry.sample_hash) {
      report(check, fmt::format("step {} lane {}: replica {} used other samples than planned",
                                line.step, entry.lane, entry.replica));
      continue;
    }
    used[static_cast<std::size_t>(entry.lane)] = entry.samples;
  }
  for (int lane = 0; lane < plan.lanes; ++lane) {
    const int times = seen[static_cast<std::size_t>(lane)];
    if (times == 1) check.samples_used += used[static_cast<std::size_t>(lane)];
    if (times != 1) {
      report(check,
             fmt::format("step {} lane {}: expected once, found {} times", line.step, lane, times));
    }
  }
}

}  // namespace

LedgerCheck check_ledger(const std::vector<LedgerLine>& lines, const LedgerPlan& plan) {
  LedgerCheck check;
  check.samples_planned = plan.steps * plan.lanes * plan.samples_per_lane;
  std::map<std::int64_t, const LedgerLine*> by_step;
  for (const LedgerLine& line : lines)
    by_step[line.step] = &line;
  std::int64_t expected = 1;
  const auto report_missing = [&](std::int64_t end) {
    if (expected < end) {
      report(check,
             fmt::format("steps {} to {}: expected in the ledger, not found", expected, end - 1));
    }
    expected = end + 1;
  };
  for (const auto& [step, line] : by_step) {
    if (step > plan.steps) break;
    if (step < 1) {
      report(check, fmt::format("step {} does not exist", step));
      continue;
    }
    report_missing(step);
    check_line(*line, plan, check);
  }
  report_missing(plan.steps + 1);
  return check;
}

Result<LedgerCheck> check_ledger(const std::filesystem::path& ledger, const LedgerPlan& plan) {
  TESON_TRY(const std::vector<LedgerLine> lines, read_ledger(ledger));
  return check_ledger(lines, plan);
}

}  // namespace teson::job
