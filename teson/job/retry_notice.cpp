#include "teson/job/retry_notice.h"

#include <algorithm>

namespace teson::job {

bool RetryNotice::failed(const std::string& why, Instant now) {
  if (!since_) since_ = now;
  if (told_) {
    const Duration wait = why == told_why_ ? interval_ : interval_first;
    if (now - *told_ < wait) return false;
    interval_ = std::min(2 * interval_, interval_last);
  } else if (now - *since_ < patience) {
    return false;
  }
  told_ = now;
  told_why_ = why;
  return true;
}

bool RetryNotice::worked() {
  const bool was_told = told_.has_value();
  *this = RetryNotice{};
  return was_told;
}

}  // namespace teson::job
