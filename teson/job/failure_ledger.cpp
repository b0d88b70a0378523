#include "teson/job/failure_ledger.h"

#include <algorithm>

namespace teson::job {
namespace {

double between(Instant from, Instant to) {
  return std::max(0.0, to_ms(to - from));
}

}  // namespace

int FailureLedger::newest(int replica) const {
  for (std::size_t i = rows_.size(); i > 0; --i) {
    if (rows_[i - 1].replica == replica) return static_cast<int>(i - 1);
  }
  return -1;
}

void FailureLedger::injected(int replica, Instant at) {
  if (const int index = newest(replica); index >= 0) {
    FailureRow& row = rows_[static_cast<std::size_t>(index)];
    if (!row.injected && row.detected >= at) {
      row.injected = true;
      row.detect_ms = between(at, row.detected);
      return;
    }
  }
  injections_[replica] = at;
}

void FailureLedger::died(int replica, std::string cause, Instant at) {
  if (const int index = newest(replica);
      index >= 0 && !progress_[static_cast<std::size_t>(index)].replaced)
    return;
  FailureRow row;
  row.replica = replica;
  row.cause = std::move(cause);
  row.step = step_;
  row.detected = at;
  if (const auto injection = injections_.find(replica); injection != injections_.end()) {
    row.injected = true;
    row.detect_ms = between(injection->second, at);
    injections_.erase(injection);
  }
  rows_.push_back(std::move(row));
  progress_.emplace_back();
  spawns_.erase(replica);
}

void FailureLedger::cause_known(int replica, std::string cause) {
  if (const int row = newest(replica); row >= 0)
    rows_[static_cast<std::size_t>(row)].cause = std::move(cause);
}

void FailureLedger::fenced(std::uint64_t, Instant at) {
  for (FailureRow& row : rows_) {
    if (!row.fence_ms && !row.reconfigure_ms && at >= row.detected)
      row.fence_ms = between(row.detected, at);
  }
}

void FailureLedger::started(std::uint64_t epoch, const std::vector<int>& members, Instant at) {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    FailureRow& row = rows_[i];
    const bool listed = std::find(members.begin(), members.end(), row.replica) != members.end();
    if (row.reconfigure_ms || at < row.detected || (listed && !progress_[i].replaced)) continue;
    row.reconfigure_ms = between(row.detected, at);
    progress_[i].start_epoch = epoch;
  }
}

void FailureLedger::committed(std::int64_t step, std::uint64_t epoch, Instant at) {
  step_ = std::max(step_, step);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].commit_ms || !progress_[i].start_epoch || epoch < *progress_[i].start_epoch)
      continue;
    rows_[i].commit_ms = between(rows_[i].detected, at);
  }
}

void FailureLedger::spawned(int replica, Instant at) {
  spawns_[replica] = at;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].replica == replica) progress_[i].replaced = true;
  }
}

void FailureLedger::rejoined(int replica, Instant at) {
  const int index = newest(replica);
  const auto spawn = spawns_.find(replica);
  if (index < 0 || spawn == spawns_.end()) return;
  FailureRow& row = rows_[static_cast<std::size_t>(index)];
  if (!row.rejoin_ms) row.rejoin_ms = between(spawn->second, at);
}

}  // namespace teson::job
