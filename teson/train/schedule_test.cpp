#include "teson/train/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace teson::train {
namespace {

job::OptimizerSection config(job::ScheduleKind kind, std::int64_t warmup, std::int64_t decay,
                             double ratio = 0.1) {
  job::OptimizerSection optimizer;
  optimizer.learning_rate = 2e-3;
  optimizer.schedule = kind;
  optimizer.warmup_steps = warmup;
  optimizer.decay_steps = decay;
  optimizer.min_ratio = ratio;
  return optimizer;
}

TEST(Schedule, warms_up_in_equal_steps_to_the_peak) {
  for (const auto kind : {job::ScheduleKind::cosine, job::ScheduleKind::wsd}) {
    const auto optimizer = config(kind, 10, 20);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 0, 100), 2e-4);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 4, 100), 1e-3);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 9, 100), 2e-3);
  }
}

TEST(Schedule, cosine_ends_at_the_floor_in_the_last_step) {
  const auto optimizer = config(job::ScheduleKind::cosine, 10, 0);
  EXPECT_NEAR(learning_rate(optimizer, 54, 100), 1.1e-3,
              1e-15);  // half way: (1 + 0.1) / 2 of the peak
  // A third and two thirds of the way, where the cosine is 1/2 and -1/2.
  EXPECT_NEAR(learning_rate(optimizer, 39, 100), 2e-3 * (0.1 + 0.9 * 0.75), 1e-15);
  EXPECT_NEAR(learning_rate(optimizer, 69, 100), 2e-3 * (0.1 + 0.9 * 0.25), 1e-15);
  EXPECT_GT(learning_rate(optimizer, 98, 100), 2e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 99, 100), 2e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100000, 100), 2e-4);
}

TEST(Schedule, cosine_with_a_length_of_its_own_stays_at_the_floor) {
  const auto optimizer = config(job::ScheduleKind::cosine, 10, 20, 0.0);
  EXPECT_NEAR(learning_rate(optimizer, 19, 1000), 1e-3, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 29, 1000), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 500, 1000), 0.0);
  EXPECT_EQ(learning_rate(optimizer, 19, 1000), learning_rate(optimizer, 19, 50));
}

TEST(Schedule, stable_decay_holds_the_peak_then_falls_in_equal_steps) {
  const auto optimizer = config(job::ScheduleKind::wsd, 10, 20);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 100), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 79, 100), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 80, 100), 2e-3 * (1 - 0.9 / 20));
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 89, 100), 2e-3 * 0.55);
  EXPECT_NEAR(learning_rate(optimizer, 99, 100), 2e-4, 1e-18);
  EXPECT_NEAR(learning_rate(optimizer, 150, 100), 2e-4, 1e-18);
  EXPECT_DOUBLE_EQ(learning_rate(config(job::ScheduleKind::wsd, 0, 0), 99, 100), 2e-3);
}

TEST(Schedule, corners_stay_finite_and_within_the_peak) {
  for (const auto kind : {job::ScheduleKind::cosine, job::ScheduleKind::wsd}) {
    for (std::int64_t warmup : {0, 1, 3, 5}) {
      for (std::int64_t decay : {0, 1, 3, 5}) {
        for (std::int64_t step = 0; step < 7; ++step) {
          const double rate = learning_rate(config(kind, warmup, decay), step, 5);
          EXPECT_TRUE(std::isfinite(rate) && rate > 0 && rate <= 2e-3)
              << warmup << " " << decay << " " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace teson::train
