#include "teson/job/live_line.h"

#include <cmath>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "teson/base/fd.h"
#include "teson/job/text_width.h"

namespace teson::job {
namespace {

using testing::HasSubstr;
using testing::Not;

Progress example() {
  Progress progress;
  progress.step = 120;
  progress.steps = 400;
  progress.loss = 5.83121;
  progress.tokens_per_s = 21'430;
  progress.replicas_alive = 2;
  progress.replicas = 3;
  progress.failures = 1;
  progress.seconds_left = 42;
  return progress;
}

TEST(FormatProgress, shows_everything_where_there_is_room) {
  EXPECT_EQ(format_progress(example(), 200),
            "step 120/400  loss 5.8312  21.4k tok/s  replicas 2/3  failures 1  left 0:42");
  Progress nan = example();
  nan.loss = std::nan("");
  nan.note = "replica 1 is\ncoming back";
  EXPECT_THAT(format_progress(nan, 200), HasSubstr("loss not finite"));
  EXPECT_THAT(format_progress(nan, 200), HasSubstr("  replica 1 is coming back"));
}

TEST(FormatProgress, never_exceeds_the_width_and_keeps_the_step_longest) {
  Progress progress = example();
  progress.note = "正常でない終了 🙂";
  for (std::size_t columns = 1; columns < 120; ++columns) {
    const std::string line = format_progress(progress, columns);
    EXPECT_LE(display_width(line), columns);
    if (columns >= 12) {
      EXPECT_THAT(line, HasSubstr("step 120/400"));
    }
  }
  EXPECT_EQ(format_progress(example(), 30), "step 120/400  loss 5.8312");
}

TEST(Format, seconds_and_counts) {
  EXPECT_EQ(format_seconds(0), "0:00");
  EXPECT_EQ(format_seconds(59.6), "1:00");
  EXPECT_EQ(format_seconds(723), "12:03");
  EXPECT_EQ(format_seconds(11109), "3:05:09");
  EXPECT_EQ(format_seconds(187200), "2d 04:00");
  EXPECT_EQ(format_seconds(std::nan("")), "?");
  EXPECT_EQ(format_seconds(1e300), "over 30 years");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(21'430), "21.4k");
  EXPECT_EQ(format_count(3'210'000), "3.21M");
  EXPECT_EQ(format_count(999'999), "1.00M");
  EXPECT_EQ(format_count(8.03e9), "8.03G");
}

class LiveLineTest : public testing::Test {
 protected:
  LiveLineTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
    options_.fd = write_.get();
  }
  std::string output() {
    char buffer[1 << 16];
    const ssize_t got = ::read(read_.get(), buffer, sizeof buffer);
    return std::string(buffer, got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  static Progress at(std::int64_t step) {
    Progress progress = example();
    progress.step = step;
    return progress;
  }
  void wait(int ms) { clock_.advance(std::chrono::milliseconds(ms)); }

  Fd read_, write_;
  ManualClock clock_;
  LiveLine::Options options_;
};

TEST_F(LiveLineTest, plain_lines_come_at_a_bounded_rate_and_only_for_new_steps) {
  LiveLine live(clock_, options_);
  live.update(at(1));
  EXPECT_THAT(output(), HasSubstr("step 1/400"));
  for (int step = 2; step < 100; ++step) {
    wait(40);
    live.update(at(step));
  }
  EXPECT_EQ(output(), "");
  wait(2000);
  live.update(at(100));
  EXPECT_THAT(output(), HasSubstr("step 100/400"));
  wait(60'000);
  live.update(at(100));
  EXPECT_EQ(output(), "");
  wait(1);
  live.update(at(101));
  EXPECT_THAT(output(), HasSubstr("step 101/400"));
  live.update(at(102));
  live.finish();
  EXPECT_THAT(output(), HasSubstr("step 102/400"));
  live.finish();
  EXPECT_EQ(output(), "");
}

TEST_F(LiveLineTest, a_terminal_has_one_line_that_is_rewritten_and_cleared) {
  options_.terminal = true;
  options_.columns = 40;
  LiveLine live(clock_, options_);
  live.update(at(1));
  std::string drawn = output();
  EXPECT_EQ(drawn.rfind("\r\x1b[K", 0), 0u);
  EXPECT_THAT(drawn, Not(HasSubstr("\n")));
  EXPECT_LE(display_width(drawn.substr(4)), 39u);
  live.update(at(2));
  EXPECT_EQ(output(), "");
  wait(100);
  live.update(at(3));
  EXPECT_THAT(output(), HasSubstr("step 3/400"));
  live.message("replica 1 died: \x1b[31mSIGKILL\nsecond line");
  EXPECT_EQ(output(), "\r\x1b[Kreplica 1 died:  [31mSIGKILL second line\n");
  live.update(at(4));  // at once, since the line was taken away
  EXPECT_THAT(output(), HasSubstr("step 4/400"));
  live.finish();
  EXPECT_EQ(output(), "\r\x1b[K");
}

TEST_F(LiveLineTest, nothing_older_than_a_message_is_drawn_after_it) {
  LiveLine live(clock_, options_);
  live.update(at(1));
  live.update(at(2));
  EXPECT_THAT(output(), Not(HasSubstr("step 2/400")));
  live.message("replica 1 failed");
  live.finish();
  EXPECT_EQ(output(), "replica 1 failed\n");
  // A history that goes back to the step drawn last overtakes the update of a later one.
  live.update(at(5));
  live.update(at(6));
  live.update(at(5));
  output();
  live.finish();
  EXPECT_EQ(output(), "");
}

TEST_F(LiveLineTest, a_closed_output_is_no_reason_to_stop) {
  options_.fd = -1;
  LiveLine live(clock_, options_);
  live.update_now(at(1));
  live.message("x");
}

TEST_F(LiveLineTest, many_threads_write_whole_lines) {
  LiveLine live(clock_, options_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&live] {
      for (int k = 0; k < 50; ++k)
        live.message("0123456789");
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  std::string expected;
  for (int i = 0; i < 200; ++i)
    expected += "0123456789\n";
  EXPECT_EQ(output(), expected);
}

TEST_F(LiveLineTest, the_width_follows_the_window) {
  int main_end = -1, terminal = -1;
  struct winsize size = {24, 60, 0, 0};
  ASSERT_EQ(::openpty(&main_end, &terminal, nullptr, nullptr, &size), 0);
  const Fd held(main_end), shown(terminal);
  ::fcntl(main_end, F_SETFL, O_NONBLOCK);
  const auto drawn = [&] {
    char buffer[4096];
    const ssize_t got = ::read(main_end, buffer, sizeof buffer);
    return display_width(
        std::string_view(buffer, got > 4 ? static_cast<std::size_t>(got) : 4).substr(4));
  };
  options_.fd = terminal;
  options_.terminal = true;
  LiveLine live(clock_, options_);
  Progress progress = example();
  progress.note = std::string(300, 'x');
  live.update_now(progress);
  const std::size_t narrow = drawn();
  EXPECT_LE(narrow, 59u);
  size.ws_col = 200;
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  live.update_now(progress);
  const std::size_t wide = drawn();
  EXPECT_GT(wide, narrow);
  EXPECT_LE(wide, 199u);
}

}  // namespace
}  // namespace teson::job
