#include "teson/job/retry_notice.h"

#include <vector>

#include <gtest/gtest.h>

namespace teson::job {
namespace {

using std::chrono::milliseconds;

// Seconds at which a try every 100 ms is told of.
std::vector<int> told_at(RetryNotice& notice, int seconds, int changes_at = -1) {
  std::vector<int> told;
  for (int i = 0; i <= 10 * seconds; ++i) {
    const char* why = changes_at >= 0 && i >= 10 * changes_at ? "timed out" : "refused";
    if (notice.failed(why, Instant(milliseconds(100 * i)))) told.push_back(i / 10);
  }
  return told;
}

TEST(RetryNotice, comes_after_a_while_and_then_at_growing_intervals) {
  RetryNotice notice;
  EXPECT_EQ(told_at(notice, 100), (std::vector<int>{2, 12, 32, 72}));
}

TEST(RetryNotice, a_new_reason_is_told_sooner) {
  RetryNotice notice;
  EXPECT_EQ(told_at(notice, 60, 40), (std::vector<int>{2, 12, 32, 42}));
}

TEST(RetryNotice, what_was_not_told_needs_no_end) {
  RetryNotice notice;
  EXPECT_FALSE(notice.failed("refused", Instant(milliseconds(0))));
  EXPECT_FALSE(notice.failed("refused", Instant(milliseconds(1900))));
  EXPECT_FALSE(notice.worked());
  EXPECT_FALSE(notice.failed("refused", Instant(milliseconds(2500))));
  EXPECT_TRUE(notice.failed("refused", Instant(milliseconds(4500))));
  EXPECT_TRUE(notice.worked());
  EXPECT_FALSE(notice.worked());
}

}  // namespace
}  // namespace teson::job
