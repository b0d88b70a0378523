#include "teson/job/summary.h"

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/job/test_folder.h"
#include "teson/job/text_width.h"

namespace teson::job {
namespace {

using testing::HasSubstr;

Summary example() {
  Summary summary;
  summary.steps = 100;
  summary.steps_planned = 100;
  summary.tokens = 102'400;
  summary.samples_planned = 1600;
  summary.samples_used = 1600;
  summary.loss_first = 6.25;
  summary.loss_last = 3.5;
  summary.seconds = 12.25;
  summary.tokens_per_s = 8359;
  summary.replicas = 2;
  summary.weights_sha256 = std::string(64, 'a');
  summary.failures_total = 5;
  summary.faults_unfired = {"kill:replica=0,step=90"};
  summary.failures = {
      {1, "SIGKILL", 20, true, {}, 1.25, 2.0, 8.5, 120.0, 900.0},
      {0, "正常でない終了", 40, false, {}, std::nullopt, 3.0, 9.0, 80.0, std::nullopt}};
  return summary;
}

TEST(Summary, comes_back_from_its_file) {
  const TestFolder folder;
  const auto path = folder.path() / "summary.json";
  ASSERT_TRUE(write_summary(example(), path));
  const auto again = read_summary(path);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(example()));
  EXPECT_EQ(again->failures[1].cause, "正常でない終了");
  EXPECT_EQ(again->failures[1].detect_ms, std::nullopt);
  EXPECT_EQ(again->val_loss, std::nullopt);
  EXPECT_EQ(again->failures_total, 5);
  EXPECT_EQ(again->faults_unfired, example().faults_unfired);
}

TEST(Summary, numbers_that_are_not_finite_become_null) {
  Summary summary = example();
  summary.loss_last = std::nan("");
  summary.tokens_per_s = INFINITY;
  EXPECT_THAT(to_json(summary), HasSubstr("\"loss_last\": null"));
  EXPECT_EQ(parse_summary(to_json(summary))->loss_last, std::nullopt);
  EXPECT_THAT(format_summary(summary), HasSubstr("6.2500 to not finite"));
}

TEST(Summary, every_cut_is_refused) {
  const std::string text = to_json(example());
  for (std::size_t length = 0; length + 2 < text.size(); length += 7)
    EXPECT_FALSE(parse_summary(text.substr(0, length)));
  EXPECT_FALSE(parse_summary("[]"));
  EXPECT_FALSE(parse_summary(R"({"steps":"x"})"));
}

TEST(Summary, the_table_of_failures_is_aligned_also_with_wide_characters) {
  std::istringstream text(format_summary(example()));
  std::vector<std::size_t> ends;
  std::string line;
  bool in_table = false;
  while (std::getline(text, line)) {
    if (line.find("first commit ms") != std::string::npos) in_table = true;
    if (in_table) ends.push_back(display_width(line));
  }
  ASSERT_EQ(ends.size(), 5u);  // head, two failures, p50, maximum
  EXPECT_THAT(ends, testing::Each(ends[0]));
}

TEST(Summary, says_what_people_want_to_know) {
  const std::string text = format_summary(example());
  for (const char* part : {"100 of 100", "1600 used of 1600 planned", "6.2500 to 3.5000", "0:12",
                           "SIGKILL (injected)", "120.0", "900.0", "102k", "8.36k"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  // Which figures are of all sessions, and which of this one.
  EXPECT_THAT(text, testing::ContainsRegex("the whole run\n(.*\n)*    failures +5\n"
                                           "  this session\n(.*\n)*    failures +2\n"));
  Summary stopped = example();
  stopped.val_loss = 4.5;
  stopped.val_loss_step = 50;
  EXPECT_THAT(format_summary(stopped), HasSubstr("4.5000 after step 50"));
  Summary failed;
  failed.status = "failed";
  failed.reason = "replica 1:\nexit code 3\x1b[31m";
  EXPECT_THAT(format_summary(failed), HasSubstr("failed: replica 1: exit code 3 [31m\n"));
}

TEST(Summary, many_failures_are_counted_not_listed) {
  Summary summary = example();
  summary.failures.assign(1000, summary.failures[0]);
  const std::string text = format_summary(summary);
  EXPECT_THAT(text, HasSubstr("and 980 more"));
  EXPECT_LT(text.size(), 4000u);
}

TEST(Quantile, by_the_nearest_rank) {
  // Example of the nearest-rank method, Wikipedia "Percentile": 15, 20, 35, 40, 50.
  const std::vector<double> values = {35, 20, 50, 15, 40};
  EXPECT_EQ(quantile(values, 0.05), 15.0);
  EXPECT_EQ(quantile(values, 0.30), 20.0);
  EXPECT_EQ(quantile(values, 0.40), 20.0);
  EXPECT_EQ(quantile(values, 0.50), 35.0);
  EXPECT_EQ(quantile(values, 1.00), 50.0);
  EXPECT_EQ(quantile({}, 0.5), std::nullopt);
}

TEST(TextWidth, of_narrow_wide_and_combining_characters) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("Tesón"), 5u);
  EXPECT_EQ(display_width("正常"), 4u);
  EXPECT_EQ(display_width("e\xcc\x81"), 1u);  // e and a combining acute
  EXPECT_EQ(display_width("🙂"), 2u);
  EXPECT_EQ(display_width("\xff\xc3"), 2u);
  EXPECT_EQ(truncate_to_width("正常終了", 5), "正常…");
  EXPECT_EQ(truncate_to_width("abc", 3), "abc");
  EXPECT_EQ(truncate_to_width("abcd", 1), "…");
  EXPECT_EQ(pad_right("正", 4), "正  ");
  EXPECT_EQ(pad_left("ab", 1), "ab");
  EXPECT_EQ(printable("a\n\x1b[2J\xff\xc2\x9b"
                      "b"),
            "a  [2J? b");
}

}  // namespace
}  // namespace teson::job
