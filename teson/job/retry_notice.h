#pragma once

#include <optional>
#include <string>

#include "teson/base/clock.h"

namespace teson::job {

/// When to tell people of something that is tried again until it works: once it has failed for a
/// while, then at growing intervals, or when the reason changes. Pure. One thread.
class RetryNotice {
 public:
  /// Failures of so short a time are nobody's business.
  static constexpr Duration patience = std::chrono::seconds(2);
  /// Between two notices: doubled from the first to the last; the first also where the reason
  /// changes.
  static constexpr Duration interval_first = std::chrono::seconds(10);
  static constexpr Duration interval_last = std::chrono::minutes(10);

  /// A try has failed. True: say so now.
  bool failed(const std::string& why, Instant now);
  /// A try has worked. True if a failure before it was told.
  bool worked();

 private:
  std::optional<Instant> since_;
  std::optional<Instant> told_;
  std::string told_why_;
  Duration interval_ = interval_first;
};

}  // namespace teson::job
